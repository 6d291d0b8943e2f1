"""What Durable Functions keeps of an execution goes with it."""

from __future__ import annotations

from hub import hub_of

from orchestrator.domain.retention import DAY_MS
from orchestrator.engine import orchestrations, retain
from orchestrator.ports import Unavailable
from tests.support.lists import catch_up
from tests.support.world import TENANT
from tests.unit.engine.conftest import MakeWorld


async def test_the_instances_of_what_is_removed_are_purged(make: MakeWorld) -> None:
    world, hub = await hub_of(make)
    id = (await world.start("ship")).id
    await world.settle()
    hub.end(id, "ok")
    await orchestrations.ended(world.engine, TENANT, id, "main")
    await world.settle()
    await catch_up(world)
    await world.clock.advance(40 * DAY_MS)

    kept, purge = dict(hub.instances), hub.purge

    async def away(instance: str) -> None:
        raise Unavailable("down")

    hub.purge = away  # type: ignore[method-assign]
    assert (await retain.run(world.engine)).failed == 1
    assert hub.instances == kept
    hub.purge = purge  # type: ignore[method-assign]
    report = await retain.run(world.engine)
    assert (report.archived, report.failed) == (1, 0)
    assert hub.instances == {}
