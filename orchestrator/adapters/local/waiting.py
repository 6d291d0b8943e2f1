"""Who waits for messages of which queue, in line, within one event loop.

Waking everybody for one message would make all but one look in vain; waking nobody when the woken
one is cancelled would leave a message lying. So: first come, first woken, and a turn that is not
used is passed on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable


class WaitingLines:
    """One line of waiting coroutines per queue."""

    def __init__(self, queues: Iterable[str]) -> None:
        self._lines: dict[str, deque[asyncio.Future[None]]] = {name: deque() for name in queues}

    def __contains__(self, queue: str) -> bool:
        return queue in self._lines

    def anybody(self) -> bool:
        """Whether somebody waits, in any line."""
        return any(self._lines.values())

    async def wait(self, queue: str, seconds: float) -> None:
        """Until woken, or so long. Returns nothing: the caller looks for itself."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        line = self._lines[queue]
        line.append(future)
        timer = loop.call_later(seconds, _set, future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.wake(queue, 1)
            raise
        finally:
            timer.cancel()
            with contextlib.suppress(ValueError):
                line.remove(future)

    def wake(self, queue: str, count: int) -> None:
        """Wake the first `count` in line."""
        line = self._lines[queue]
        while line and count > 0:
            future = line.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1

    def wake_all(self) -> None:
        """Wake everybody."""
        for queue, line in self._lines.items():
            self.wake(queue, len(line))


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
