"""An event loop without time and without luck: the heart of the simulation.

Virtual time jumps to the next timer when nothing can run, so an hour costs milliseconds. The order
in which ready callbacks run is drawn from a seeded random source, so one seed is one interleaving.
Every callback belongs to a process (by its context): one that has crashed simply is never called
again, at whatever await it stood, and no `finally` of it runs. That is what SIGKILL does;
cancelling tasks, as tests often do, is not.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
import types
from collections.abc import Callable, Generator
from typing import Any

_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Process:
    """Something that can crash or freeze. `steps` counts its callbacks: the places where it may."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps = 0
        self.dead = False
        self.frozen_until = 0.0
        self.parked: list[asyncio.Handle] = []
        self.step: Callable[[], None] | None = None  # looks before every callback
        self.context = contextvars.copy_context()
        self.context.run(_PROCESS.set, self)


def current() -> Process | None:
    """The process whose code runs now; None: the world's own."""
    return _PROCESS.get()


class Stuck(Exception):
    """Nothing can ever run again, or something runs for ever."""


MAX_STEPS = 400_000


class SimLoop(asyncio.BaseEventLoop):
    """See the module. `time()` is in virtual seconds from 0."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._now = 0.0
        self._runnable: list[asyncio.Handle] = []
        self._ready = self._runnable  # type: ignore[assignment]  # for call_soon_threadsafe
        self._timers: list[tuple[float, asyncio.TimerHandle]] = []  # a heap
        self.alive: set[asyncio.Task[Any]] = set()
        """Also what only hangs together with itself: a crashed process's task that was collected as
        garbage would run its `finally` after all, whenever Python happens to collect."""
        self.steps = 0
        self.failed: Callable[[str], None] = lambda text: None  # told of what nobody awaits
        self.set_exception_handler(lambda loop, context: None)
        self.set_task_factory(_task)

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """At once, on this thread: threads would bring luck back."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def spawn(self, process: Process | None, work: Any, name: str = "") -> asyncio.Task[Any]:
        """Run a coroutine as part of `process`."""
        context = process.context if process is not None else contextvars.Context()
        return self.create_task(work, name=name, context=context)  # pyright: ignore

    def freeze(self, process: Process, seconds: float) -> None:
        """Nothing of the process runs for so long: a paused container, a swapped-out machine."""
        process.frozen_until = max(process.frozen_until, self._now + seconds)
        self.call_later(seconds, self._thaw, process, context=contextvars.Context())

    def _thaw(self, process: Process) -> None:
        if process.frozen_until <= self._now + 1e-9 and not process.dead:
            process.frozen_until = 0.0
            self._runnable += process.parked
            process.parked = []

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        """As asyncio's, without its looks at whether the loop is debugged: it is half of a run."""
        handle = _Handle(callback, args, self, context)
        self._runnable.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """In `delay` virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """At a virtual time."""
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, timer))
        return timer

    def _run_once(self) -> None:
        """Callbacks one by one until the loop is stopped. In one function: calls are dear here."""
        timers, ready, random = self._timers, self._runnable, self._rng.random
        while not self._stopping:  # type: ignore[attr-defined]
            while timers and (timers[0][0] <= self._now + 1e-9 or timers[0][1]._cancelled):  # type: ignore[attr-defined]
                when, timer = heapq.heappop(timers)
                if not timer._cancelled:  # type: ignore[attr-defined]
                    # What is left of a float must pass, too, or time stands still.
                    self._now = max(self._now, when)
                    ready.append(timer)
            if not ready:
                if not timers:
                    raise Stuck("nothing is ready and no timer is set")
                self._now = max(self._now, timers[0][0])
                continue
            position = int(random() * len(ready))
            handle = ready[position]
            ready[position] = ready[-1]
            ready.pop()
            if handle._cancelled:  # type: ignore[attr-defined]
                continue
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise Stuck(f"more than {MAX_STEPS} callbacks, at {self._now} s")
            process = handle._context.get(_PROCESS)  # type: ignore[attr-defined]
            if process is not None and not self._runs(process):
                process.parked.append(handle)  # of the dead: for the undertaker, in the end
                continue
            handle._run()

    def _runs(self, process: Process) -> bool:
        """Whether the process can take a step, and is still alive and awake after its look."""
        if process.dead or process.frozen_until > self._now:
            return False
        process.steps += 1
        if process.step is None:
            return True
        process.step()
        return not process.dead and process.frozen_until <= self._now

    def _process_events(self, event_list: Any) -> None:
        """There are no file descriptors here."""

    def _write_to_self(self) -> None:
        """There is no selector to wake."""

    def finish(self, processes: list[Process]) -> None:
        """End what is left when a run is over, so that nothing is collected half done: the dead
        rise for a moment, and every task is cancelled, also one that another's end has begun."""
        for process in processes:
            process.step, process.dead, process.frozen_until = None, False, 0.0
            self._runnable += process.parked
            process.parked = []
        while left := [task for task in self.alive if not task.done()]:
            for task in left:
                task.cancel()
            self.run_until_complete(_end(left))
        self.close()


class _Handle(asyncio.Handle):
    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: Any, context: Any) -> None:
        _fill(self, callback, args, loop, context)


class _Timer(asyncio.TimerHandle):
    __slots__ = ()

    def __init__(self, when: float, callback: Any, args: Any, loop: Any, context: Any) -> None:
        _fill(self, callback, args, loop, context)
        self._when = when
        self._scheduled = False  # not in asyncio's own heap


def _fill(handle: Any, callback: Any, args: Any, loop: Any, context: Any) -> None:
    handle._context = contextvars.copy_context() if context is None else context
    handle._loop = loop
    handle._callback = callback
    handle._args = args
    handle._cancelled = False
    handle._repr = handle._source_traceback = None


async def sleep(seconds: float) -> None:
    """`asyncio.sleep` in a `SimLoop`, of which most of a run consists."""
    if seconds <= 0:
        await _turn()
        return
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(seconds, _wake, future)
    try:
        await future
    except BaseException:
        timer.cancel()
        raise


@types.coroutine
def _turn() -> Generator[None]:
    yield


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _task(loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    loop.alive.add(task)
    task.add_done_callback(_background, context=contextvars.Context())
    return task


def _background(task: asyncio.Task[Any]) -> None:
    """What the engine runs in the background must handle its own errors: nobody else would see
    them."""
    loop: Any = task.get_loop()
    loop.alive.discard(task)
    if task.get_name().startswith("weft-") and not task.cancelled() and task.exception():
        loop.failed(f"background task {task.get_name()} raised {task.exception()!r}")


async def _end(left: list[asyncio.Task[Any]]) -> None:
    for _ in range(100_000):
        if all(task.done() for task in left):
            return
        await asyncio.sleep(0)
    raise AssertionError(f"tasks that do not end: {[task for task in left if not task.done()]}")
