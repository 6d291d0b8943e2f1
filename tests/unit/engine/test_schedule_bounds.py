"""What a pass of the scheduler reads is what is due, however many schedules there are."""

from __future__ import annotations

from typing import Any

from orchestrator.domain.topology import CATALOG
from orchestrator.engine import schedule, schedules
from tests.support.definitions import flow, task
from tests.support.schedules import MINUTE
from tests.support.world import TENANT
from tests.unit.engine.conftest import MakeWorld


async def test_only_what_is_due_is_read(make: MakeWorld) -> None:
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    for n in range(120):
        every = "1m" if n < 3 else "1h"
        raw: Any = {"name": f"s{n}", "workflow": "flow", "interval": every}
        await schedules.create(world.engine, TENANT, raw)
    store, read = world.engine.store, 0
    query = store.query

    async def counted(container: str, *rest: Any) -> Any:
        nonlocal read
        found = await query(container, *rest)
        read += len(found) if container == CATALOG else 0
        return found

    store.query = counted  # type: ignore[method-assign]
    await world.clock.advance(MINUTE)
    report = await schedule.run_due(world.engine)
    assert (report.started, read) == (3, 3)
    await world.clock.advance(1_000)
    assert ((await schedule.run_due(world.engine)).started, read) == (0, 3)
