"""Short ways to make schedules in a world, to let their time pass, and to see what they started."""

from __future__ import annotations

from typing import Any

from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import schedule, schedule_reads, schedules
from orchestrator.engine.core import Engine
from orchestrator.engine.views_schedules import FireView, ScheduleView
from orchestrator.ports import Clock, Query, Where
from tests.support.definitions import flow, task
from tests.support.world import START, TENANT, World

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
PERIOD = 5 * SECOND
"""How often the timer comes."""


class SkewedClock:
    """Another machine's clock: `ahead` ms from the one that the test moves."""

    def __init__(self, clock: Clock, ahead: int) -> None:
        self._clock = clock
        self.ahead = ahead

    def now(self) -> int:
        """Epoch milliseconds, as this machine believes."""
        return self._clock.now() + self.ahead

    async def sleep(self, ms: int) -> None:
        """Spans are the same on all machines."""
        await self._clock.sleep(ms)


def skewed(world: World, worker: str, ahead: int) -> Engine:
    """A further process whose clock is `ahead` ms ahead."""
    engine = world.another(worker)
    engine.clock = SkewedClock(world.clock, ahead)
    return engine


async def scheduled(world: World, **more: Any) -> ScheduleView:
    """The workflow `flow` (one task that does nothing), and a schedule `s` for it."""
    await world.publish(flow(a=task("noop")))
    raw = {"name": "s", "workflow": "flow", **more}
    view, _ = await schedules.create(world.engine, TENANT, raw, by="tester")
    return view


async def started(world: World) -> list[int]:
    """Nominal times of all executions that a tick started, in ms after `START`, in their order."""
    query = Query(where=(Where("type", "=", "execution"),), order_by="createdAt", limit=10_000)
    found = await world.sqlite.query(EXECUTIONS, query)
    ticks = [doc.body["scheduledFor"] - START for doc in found if "scheduledFor" in doc.body]
    return sorted(ticks)


async def passes(world: World, span: int, *engines: Engine, every: int = PERIOD) -> None:
    """Let `span` ms pass with a call of each engine's timer every `every` ms."""
    for _ in range(0, span, every):
        await world.clock.advance(every)
        for engine in engines or (world.engine,):
            await schedule.run_due(engine)


async def fires(world: World, name: str = "s") -> list[FireView]:
    """The history, oldest first."""
    found, _ = await schedule_reads.history(world.engine, TENANT, name, limit=100, after=None)
    return found[::-1]


async def outcomes(world: World, name: str = "s") -> list[tuple[str, int | None, int]]:
    """(outcome, tick in ms after `START`, count) of the history, oldest first."""
    return [
        (one.outcome, None if one.tick is None else one.tick - START, one.count)
        for one in await fires(world, name)
    ]
