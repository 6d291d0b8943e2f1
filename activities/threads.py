"""Threads for plain activities: one per running call, reused when idle, left behind when hung.

A shared pool would not do: a call that hangs for ever keeps its place, and enough of them stop
every neighbour without a word. Python cannot kill a thread, so a hung one is abandoned: nobody
waits for it, its late result is dropped, it is counted, and beyond a limit new calls are refused
aloud. Threads are daemons, so that a hung one cannot keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

MAX_ABANDONED: Final = 64  # each holds its stack and whatever its call holds
MAX_IDLE: Final = 16  # kept for reuse: starting a thread costs about 50 µs
IDLE_SECONDS: Final = 60.0

T = TypeVar("T")


class Saturated(Exception):
    """Too many abandoned threads are alive, or the system gives no new one."""


class Job(Generic[T]):
    """A call in its thread. `future` belongs to the event loop that started it."""

    def __init__(
        self, host: ThreadHost, work: Callable[[], T], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._host = host
        self.work = work
        self.loop = loop
        self.future: asyncio.Future[T] = loop.create_future()
        self.finished = False  # guarded by the host's lock, like `abandoned`
        self.abandoned = False

    def abandon(self) -> None:
        """Stop waiting: the result is dropped and the thread counts as stuck until it ends."""
        self._host.abandon(self)

    def deliver(self, result: T) -> None:
        """Hand the result to the loop; called in the thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self._settle, result)

    def _settle(self, result: T) -> None:
        if not self.future.done():
            self.future.set_result(result)


class ThreadHost:
    """Starts jobs in daemon threads. Safe to use from several event loops."""

    def __init__(
        self,
        *,
        max_abandoned: int = MAX_ABANDONED,
        max_idle: int = MAX_IDLE,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._max_abandoned = max_abandoned
        self._max_idle = max_idle
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._idle: list[queue.SimpleQueue[Job[object] | None]] = []
        self._abandoned = 0

    @property
    def abandoned(self) -> int:
        """Number of abandoned threads that are still alive."""
        with self._lock:
            return self._abandoned

    def start(self, work: Callable[[], T]) -> Job[T]:
        """Run `work`, which must not raise, in a thread of its own. Must be called on an event
        loop. Raises `Saturated`."""
        with self._lock:
            if self._abandoned >= self._max_abandoned:
                raise Saturated(f"{self._abandoned} hung calls occupy this worker")
            inbox = self._idle.pop() if self._idle else None
        job: Job[T] = Job(self, work, asyncio.get_running_loop())
        if inbox is None:
            inbox = queue.SimpleQueue()
            thread = threading.Thread(
                target=self._serve, args=(inbox,), name="weft-activity", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as exc:  # "can't start new thread"
                raise Saturated(str(exc)) from exc
        inbox.put(job)  # pyright: ignore[reportArgumentType] - a queue of jobs of any result
        return job

    def abandon(self, job: Job[T]) -> None:
        """See `Job.abandon`."""
        with self._lock:
            if not job.finished and not job.abandoned:
                job.abandoned = True
                self._abandoned += 1

    def close(self) -> None:
        """End the idle threads; running ones end with their call."""
        with self._lock:
            self._max_idle = 0
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _serve(self, inbox: queue.SimpleQueue[Job[object] | None]) -> None:
        """Body of a thread: jobs until it is idle for too long, not needed, or was abandoned."""
        while True:
            try:
                job = inbox.get(timeout=self._idle_seconds)
            except queue.Empty:
                with self._lock:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        return
                continue  # taken by `start` at this very moment: its job is on the way
            if job is None:
                return
            result = job.work()
            with self._lock:
                job.finished = True
                abandoned = job.abandoned
                if abandoned:
                    self._abandoned -= 1
                keep = not abandoned and len(self._idle) < self._max_idle
                if keep:
                    self._idle.append(inbox)
            if not abandoned:
                job.deliver(result)
            del job, result  # an idle thread must not keep a payload alive
            if not keep:
                return
