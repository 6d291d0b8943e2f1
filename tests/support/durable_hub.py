"""Runs durable functions of an app on the real hub and a real file, on a clock that jumps, in one
task after the other: the same run every time, and so one that can be stopped after any write.

`run` drives an orchestration to its rest; `every_crash` drives it again and again, each time with a
process that dies at another write, and compares. Both take `Input`s: what clients do, and when.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import azure.functions as func

from orchestrator.local.durable import clients
from orchestrator.local.durable import events as ev
from orchestrator.local.durable.clients import Status
from orchestrator.local.durable.hub import Hub, inline
from orchestrator.local.durable.store import Call, DurableStore
from orchestrator.local.host.indexing import (
    ActivityBinding,
    IndexedFunction,
    OrchestrationBinding,
    index,
)

NOW = 1_800_000_000_000


class Crash(Exception):
    """The process is dead."""


@dataclass
class JumpingClock:
    """Time stands still until it is set."""

    ms: int = NOW

    def now(self) -> int:
        return self.ms

    async def sleep(self, ms: int) -> None:
        raise AssertionError("the hub does not sleep by the clock")


@dataclass
class Ledger:
    """What all processes of one run have recorded."""

    recorded: set[tuple[str, str, int]] = field(default_factory=set)  # ends of activities
    ran: list[tuple[str, str, int]] = field(default_factory=list)
    writes: int = 0


class MortalStore(DurableStore):
    """Dies at its write number `last` of the run: after it, or (`before`) just before."""

    def __init__(self, path: Path, ledger: Ledger, last: int = 0, *, before: bool = False) -> None:
        self.ledger = ledger
        self.last = last
        self.before = before
        super().__init__(path, durable=False)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        with super().transaction() as db:
            yield db
            self.ledger.writes += 1
            if self.before and self.ledger.writes == self.last:
                raise Crash
        if self.ledger.writes == self.last:
            raise Crash

    def claim_calls(self, owner: str, now: int, until: int, limit: int) -> list[Call]:
        calls = super().claim_calls(owner, now, until, limit)
        for call in calls:
            key = (call.instance, call.execution, call.task)
            assert key not in self.ledger.recorded, f"ran again although its end is known: {call}"
            self.ledger.ran.append(key)
        return calls

    def finish_call(self, call: Call, event: dict[str, Any]) -> bool:
        key = (call.instance, call.execution, call.task)
        succeeded = event["EventType"] == ev.TASK_COMPLETED  # a rewind repeats what failed
        try:
            done = super().finish_call(call, event)
        except Crash:
            if not self.before and succeeded:
                self.ledger.recorded.add(key)
            raise
        if done and succeeded:
            self.ledger.recorded.add(key)
        return done


@dataclass(frozen=True)
class Input:
    """What a client does `at` ms after the start: `act(store, now)`, a use case of `clients`."""

    at: int
    act: Callable[[DurableStore, int], Any]


def start(name: str, payload: str | None = None, *, instance: str = "i", at: int = 0) -> Input:
    """`payload`: JSON text, as the client library sends it: of JSON text."""
    return Input(
        at, lambda store, now: clients.start(store, instance, name, payload, now, f"{instance}-x0")
    )


def raised(name: str, payload: str = '"x"', *, instance: str = "i", at: int = 0) -> Input:
    return Input(at, lambda store, now: clients.raise_event(store, instance, name, payload, now))


@cache
def _indexed(app: func.FunctionApp) -> list[IndexedFunction]:
    return index(app, {"COSMOS_DATABASE": "weft"})  # Weft's own app may be given


def new_hub(
    app: func.FunctionApp, store: DurableStore, clock: JumpingClock, ids: Iterator[int]
) -> Hub:
    """A process, so to speak. Functions run on the spot."""
    functions = _indexed(app)
    orchestrators: dict[str, IndexedFunction] = {}
    activities: dict[str, IndexedFunction] = {}
    for function in functions:
        if isinstance(function.binding, OrchestrationBinding):
            orchestrators[function.binding.name] = function
        elif isinstance(function.binding, ActivityBinding):
            activities[function.binding.name] = function
    return Hub(
        store,
        orchestrators={name: _Direct(one) for name, one in orchestrators.items()},
        activities={name: _Direct(one) for name, one in activities.items()},
        plain={name: partial(_call, one) for name, one in orchestrators.items()},
        clock=clock,
        new_id=lambda: f"id{next(ids)}",
        call=inline,
    )


async def run(
    app: func.FunctionApp, path: Path, inputs: Sequence[Input], *, until: int = 10**12
) -> Run:
    """Everything that happens within `until` ms, on a process that lives."""
    world = Run(app, path)
    await world.go(inputs, until)
    return world


async def every_crash(
    app: func.FunctionApp, directory: Path, inputs: Sequence[Input], instance: str = "i"
) -> int:
    """Die at each write, before and after it, and go on with a fresh process: always the same end,
    and no activity twice whose end was recorded. Number of deaths."""
    whole = await run(app, directory / "whole.db", inputs)
    expected, writes = whole.seen(instance), whole.ledger.writes
    assert writes > 1
    for before, last in itertools.product((False, True), range(1, writes + 1)):
        world = Run(app, directory / f"{before}-{last}.db", last=last, before=before)
        await world.go(inputs)
        assert world.deaths == 1, (before, last)
        assert world.seen(instance) == expected, (before, last)
        OPEN.remove(world)
        world.close()
    return 2 * writes


OPEN: list[Run] = []


def close_all() -> None:
    """Close the files of all runs; for a fixture."""
    while OPEN:
        OPEN.pop().close()


class Run:
    """One history of processes on one file."""

    def __init__(
        self, app: func.FunctionApp, path: Path, *, last: int = 0, before: bool = False
    ) -> None:
        self.app = app
        self.path = path
        self.clock = JumpingClock()
        self.ledger = Ledger()
        self.deaths = 0
        self._ids = itertools.count()
        self.client = DurableStore(path, durable=False)  # clients do not die
        self.store = MortalStore(path, self.ledger, last, before=before)
        self.hub = new_hub(app, self.store, self.clock, self._ids)
        OPEN.append(self)

    async def go(self, inputs: Sequence[Input] = (), until: int = 10**12) -> None:
        """Until nothing more happens: inputs at their times (after the start), timers at theirs."""
        left = sorted(inputs, key=lambda one: one.at)
        while True:
            while left and NOW + left[0].at <= self.clock.ms:
                left.pop(0).act(self.client, self.clock.ms)
            if await self._step():
                continue
            due = self.client.next_due(self.clock.ms)
            times = [NOW + left[0].at] if left else []
            times += [due] if due is not None else []
            if not times or min(times) > NOW + until:
                return
            self.clock.ms = max(self.clock.ms, min(times))

    async def _step(self) -> bool:
        try:
            return await self.hub.step()
        except Crash:
            await self._die()
            return True

    async def _die(self) -> None:
        self.deaths += 1
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.store.close()
        self.store = MortalStore(self.path, self.ledger)
        with self.client.transaction() as db:  # as if the leases had run out, at the same time
            db.execute("UPDATE instances SET lease_until = 0")
            db.execute("UPDATE activities SET lease_until = 0")
        self.hub = new_hub(self.app, self.store, self.clock, self._ids)

    def status(self, instance: str = "i") -> Status:
        """As clients see it."""
        found = clients.find(self.client, instance)
        assert found is not None, instance
        return found

    def seen(self, instance: str = "i") -> tuple[str, str | None, str | None]:
        """What must not depend on crashes."""
        status = self.status(instance)
        return status.shown, status.output, status.custom_status

    def history(self, instance: str = "i") -> list[dict[str, Any]]:
        """Of the present execution."""
        return clients.events_of(self.client, instance)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
        self.store.close()


class _Direct:
    def __init__(self, function: IndexedFunction) -> None:
        self._function = function

    async def __call__(self, value: Any) -> Any:
        result = _call(self._function, value)
        return await result if inspect.isawaitable(result) else result


def _call(function: IndexedFunction, value: Any) -> Any:
    return function.call(**{function.parameter: value})
