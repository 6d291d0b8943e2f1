"""Calls of the store in a thread of their own, those that wait together in one commit.

The disk must not hold up the event loop, and one sync is enough for all who have come while the
last one ran. Each is answered after its sync, and one that fails undoes nothing of its neighbours.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from orchestrator.local.durable.store import DurableStore

MAX_CALLS: Final = 64
"""In one commit: the first one waits for the last one's work."""

T = TypeVar("T")
_Job = tuple[Callable[..., Any], tuple[Any, ...], "asyncio.Future[Any]"]
_Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Grouped:
    """The only user of `store`, once started; `close` closes it. Of one event loop."""

    def __init__(self, store: DurableStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="durable-store", daemon=True)
        self._thread.start()

    async def __call__(self, call: Callable[..., T], *arguments: Any) -> T:
        """What `call` returns, once it is on the disk; raises what it raises."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((call, arguments, future))
        return await future

    async def close(self) -> None:
        """Do what was asked for, then close the file. Nothing may be asked for after."""
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _work(self) -> None:
        ended = False
        while not ended:
            jobs: list[_Job] = []
            job = self._jobs.get()
            while job is not None:
                jobs.append(job)
                if len(jobs) == MAX_CALLS or self._jobs.empty():
                    break
                job = self._jobs.get()
            ended = job is None
            answers = self._do(jobs)
            self._loop.call_soon_threadsafe(_answer, answers)
        self._store.close()

    def _do(self, jobs: list[_Job]) -> list[_Answer]:
        answers: list[_Answer] = []
        sync = any(not getattr(call, "repeatable", False) for call, _, _ in jobs)
        try:
            with self._store.group(sync=sync):
                for call, arguments, future in jobs:
                    try:
                        answers.append((future, call(*arguments), None))
                    except Exception as error:
                        answers.append((future, None, error))
        except Exception as error:  # it was not committed: nobody's was
            return [(future, None, error) for _, _, future in jobs]
        return answers


def _answer(answers: list[_Answer]) -> None:
    for future, result, error in answers:
        if future.done():  # who asked was cancelled
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
