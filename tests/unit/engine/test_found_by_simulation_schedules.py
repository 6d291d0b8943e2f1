"""Faults of schedules that the simulation found, each as the smallest story that shows it."""

from __future__ import annotations

from typing import Any

from orchestrator.domain.schedule import tick_id
from orchestrator.domain.topology import CATALOG
from orchestrator.engine import schedule
from orchestrator.ports import NotFound, PreconditionFailed, StoreError
from tests.support.faults import FaultyStore
from tests.support.schedules import outcomes, passes, scheduled, started
from tests.support.world import START, TENANT, World
from tests.unit.engine.conftest import MakeWorld


async def died_before_it_wrote(world: World, **more: Any) -> str:
    """A leader started the tick of 10 s, and died before the schedule said so; 60 s on."""
    await scheduled(world, interval="10s", **more)
    leader = world.another("leader")
    store = FaultyStore(world.sqlite)
    leader.store = store  # type: ignore[assignment]

    def refuse(name: str, args: tuple[Any, ...]) -> StoreError | None:
        changed = PreconditionFailed("elsewhere")
        return changed if name == "replace" and args[0] == CATALOG else None

    store.before = refuse
    await world.clock.advance(10_000)
    await schedule.run_due(leader)
    assert await started(world) == [10_000]
    assert await outcomes(world) == []
    await passes(world, 60_000, world.another("next"))
    return tick_id(TENANT, "s", START + 10_000)


async def test_a_tick_that_a_dead_leader_started_was_not_missed(make: MakeWorld) -> None:
    """It was told as missed when the next leader came later than its grace."""
    world = await make(noop=lambda call: None)
    await died_before_it_wrote(world, misfireGrace="1s")
    told = await outcomes(world)
    assert told[:2] == [("missed", 20_000, 3), ("started", 10_000, 1)]
    assert sum(count for *_, count in told) == 7


async def test_a_tick_that_a_dead_leader_started_is_cancelled_by_the_next(make: MakeWorld) -> None:
    """It was told as superseded, and ran on beside the next one."""
    world = await make(noop=lambda call: None)
    begun = await died_before_it_wrote(world, overlap="cancelPrevious")
    assert (await world.view(begun)).status == "CANCELLED"
    assert (await outcomes(world))[0] == ("started", 10_000, 1)
    assert len(await outcomes(world)) == len({tick for _, tick, _ in await outcomes(world)})


async def test_a_replica_that_lags_loses_no_tick(make: MakeWorld) -> None:
    """The workflow had just been published; the tick was refused for good."""
    world = await make(noop=lambda call: None)
    await scheduled(world, interval="10s")
    leader = world.another("leader")
    store = FaultyStore(world.sqlite)
    leader.store = store  # type: ignore[assignment]
    store.before = lambda name, args: (
        NotFound("lags") if name == "read" and args[0] == CATALOG else None
    )
    await world.clock.advance(10_000)
    await schedule.run_due(leader)
    assert await outcomes(world) == []
    store.before = lambda name, args: None
    await passes(world, 5_000, leader)
    assert await outcomes(world) == [("started", 10_000, 1)]
