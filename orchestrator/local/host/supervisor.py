"""`--workers N`: N processes on one data directory and one listening socket.

Python runs one core per process; the stores allow several processes. The socket is opened here and
inherited, so a request that waits in its queue survives the death of any worker, and a second
platform on the port is refused. Worker 0 also runs the timers and the change feed.

Every worker holds one end of a socket pair: it tells us when it is ready, and it sees the end of
the file when we die, however we die, and stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

logger = logging.getLogger("orchestrator.local.host")

READY: Final = b"ready\n"
FIRST_DELAY_S: Final = 0.2
LONGEST_DELAY_S: Final = 10.0
STEADY_S: Final = 30.0
"""A worker that lived this long is started again without a longer wait."""
KILL_AFTER_S: Final = 15.0
"""From SIGTERM to SIGKILL: the workers' own grace and some."""

Command = Callable[[int, int, int], Sequence[str]]
"""(worker, socket fd, control fd) -> argv"""


def child_command(data: Path) -> Command:
    """The usual worker: this package's `__main__`."""

    def command(worker: int, sock: int, control: int) -> Sequence[str]:
        return (
            sys.executable,
            # Else a file in the working directory that is named like one of our packages would be
            # imported in its place: by the workers only, as `weft` does not look there either.
            "-P",
            "-m",
            "orchestrator.local.host",
            *("--data", str(data)),
            *("--worker", str(worker)),
            *("--socket", str(sock)),
            *("--control", str(control)),
        )

    return command


class Supervisor:
    """Starts workers, starts them again when they die, stops them all."""

    def __init__(self, command: Command, workers: int, sock: socket.socket) -> None:
        self._command = command
        self._sock = sock
        self._stop = asyncio.Event()
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._ready = [asyncio.Event() for _ in range(workers)]
        self._failed_first = False

    @property
    def pids(self) -> dict[int, int]:
        """Process id of each living worker."""
        return {worker: process.pid for worker, process in self._processes.items()}

    def stop(self) -> None:
        """Ask `run` to end."""
        self._stop.set()

    async def run(self, on_ready: Callable[[], None]) -> int:
        """Until SIGTERM, SIGINT or `stop`, or until a worker ends before it was ever ready (exit
        code 1: its own output says why). `on_ready` is called once all workers serve."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        try:
            keepers = [
                asyncio.create_task(self._keep(worker), name=f"worker-{worker}")
                for worker in range(len(self._ready))
            ]
            announcing = asyncio.create_task(self._announce(on_ready))
            await self._stop.wait()
            announcing.cancel()
            await self._end()
            await asyncio.gather(*keepers)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        return 1 if self._failed_first else 0

    async def _announce(self, on_ready: Callable[[], None]) -> None:
        for ready in self._ready:
            await ready.wait()
        on_ready()

    async def _keep(self, worker: int) -> None:
        loop = asyncio.get_running_loop()
        delay = FIRST_DELAY_S
        while not self._stop.is_set():
            began = loop.time()
            code = await self._run_once(worker)
            if self._stop.is_set():
                return
            if not self._ready[worker].is_set():
                logger.error(
                    "a worker ended before it was ready",
                    extra={"action": "worker_failed", "worker": worker, "code": code},
                )
                self._failed_first = True
                self._stop.set()
                return
            delay = FIRST_DELAY_S if loop.time() - began >= STEADY_S else delay
            logger.warning(
                "a worker died, starting it again",
                extra={"action": "worker_died", "worker": worker, "code": code},
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), delay)
            delay = min(delay * 2, LONGEST_DELAY_S)

    async def _run_once(self, worker: int) -> int:
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(worker, self._sock.fileno(), theirs.fileno()),
                pass_fds=(self._sock.fileno(), theirs.fileno()),
                env=_environment(worker),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._processes[worker] = process
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            if self._stop.is_set():  # asked to stop while the process was being made
                process.terminate()
            if await reader.readline() == READY:
                self._ready[worker].set()
            return await process.wait()
        finally:
            writer.close()
            del self._processes[worker]

    async def _end(self) -> None:
        for process in list(self._processes.values()):
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + KILL_AFTER_S
        for worker, process in list(self._processes.items()):
            try:
                await asyncio.wait_for(process.wait(), max(0.0, deadline - loop.time()))
            except TimeoutError:
                logger.error(
                    "a worker did not stop and is killed",
                    extra={"action": "worker_killed", "worker": worker},
                )
                with contextlib.suppress(ProcessLookupError):
                    process.kill()


def _environment(worker: int) -> dict[str, str]:
    """Ours, but the package is found from any working directory, and a name that was given to this
    worker is not shared: leases tell workers apart by it."""
    root = str(Path(__file__).parents[3])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    changed = {"PYTHONPATH": os.pathsep.join(paths)}
    if name := os.environ.get("WEFT_WORKER"):
        changed["WEFT_WORKER"] = f"{name}-{worker}"
    return {**os.environ, **changed}
