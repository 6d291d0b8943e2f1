"""The read model on the Cosmos store: projected, listed by every filter, lost and made again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.topology import VISIBILITY
from orchestrator.engine import project, rebuild, submit
from tests.support.definitions import flow, task
from tests.support.faults import FaultyStore
from tests.support.lists import catch_up, changed, listed, rows, truth, wipe
from tests.support.world import TENANT, FakeActivities
from tests.wire.cosmos.opening import wire_store
from tests.wire.test_cosmos_engine import CosmosWorld


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[CosmosWorld]:
    async with wire_store() as (server, store):
        made = CosmosWorld(tmp_path, FakeActivities(noop=lambda call: None), server, store)
        await made.open()
        await made.publish(flow(a=task("noop")))
        yield made
        await made.close()


async def test_lists_by_every_filter_and_their_rebuild(world: CosmosWorld) -> None:
    done = await world.start("flow", key="order 7", tags={"app.io": "x"}, started_by="ada")
    await world.settle()
    new = await world.start("flow", started_by="bob")
    other = await submit.start(world.another("w2"), TENANT, "flow", None, tags={"n": "1"})
    await catch_up(world)
    assert await rows(world) == await truth(world)
    newest = [other.id, new.id]
    for filter, expected in (
        ({}, {*newest, done.id}),
        ({"status": ExecutionStatus.COMPLETED}, {done.id}),
        ({"workflow": "flow", "owner": "bob"}, {new.id}),
        ({"tag": ("app.io", "x")}, {done.id}),
        ({"tag": ("app.io", "y")}, set()),
        ({"parent": done.id}, set()),
        ({"search": "order 7"}, {done.id}),
        ({"search": new.id}, {new.id}),
        ({"search": done.id[:9], "created_before": world.clock.now() + 1}, {done.id}),
        ({"created_after": world.clock.now() + 60_000}, set()),
    ):
        found = await listed(world, **filter)
        assert (set(found), len(found)) == (expected, len(expected)), filter
    before = await rows(world)
    await wipe(world, VISIBILITY)
    await store_orphan(world, before[done.id])
    report = await rebuild.visibility(world.engine)
    assert (report.executions, report.written, report.removed) == (3, 3, 1)
    assert await rows(world) == before
    assert (await rebuild.visibility(world.engine)).written == 0


async def store_orphan(world: CosmosWorld, row: project.Row) -> None:
    await world.cosmos.create(VISIBILITY, ("gone",), {**row, "id": "x", "tenantId": "gone"})


async def test_a_page_of_the_feed_costs_one_batch_per_tenant_and_again_only_reads(
    world: CosmosWorld,
) -> None:
    for _ in range(5):
        await world.start("flow")
    docs = await changed(world)
    engine = world.another("w2")
    engine.store = counted = FaultyStore(world.cosmos)  # type: ignore[assignment]
    assert (await project.project_documents(engine, docs)).written == 5
    assert counted.calls == ["read_many", "batch"]
    assert (await project.project_documents(engine, docs)).known == 5
    assert counted.calls == ["read_many", "batch", "read_many"]
