"""`weft rebuild visibility`: the read model made again from the executions."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.domain.topology import EXECUTIONS, VISIBILITY
from orchestrator.engine import catalog, project, rebuild, submit
from tests.support.definitions import flow, task
from tests.support.lists import catch_up, listed, rows, run_one, truth, wipe
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


async def with_versions(make: MakeWorld, **options: Any) -> tuple[World, list[dict[str, Any]]]:
    """A world in which one execution has ended, and its versions."""
    world = await make(noop=lambda call: None, **options)
    return world, await run_one(world)


async def test_rebuild_mends_rows_that_are_missing_behind_ahead_different_or_orphaned(
    make: MakeWorld,
) -> None:
    world, docs = await with_versions(make)
    model = docs[-1]
    for id in ("missing", "behind", "ahead", "different", "unreadable"):
        doc = {**model, "id": id, "executionId": id}
        await world.sqlite.create(EXECUTIONS, (TENANT, id), doc)
    await catch_up(world)
    right = await rows(world)
    store = world.sqlite
    await store.delete(VISIBILITY, (TENANT,), "missing")
    for id, change in (
        ("behind", {"seq": 0, "status": "PENDING"}),
        ("ahead", {"seq": 99, "status": "RUNNING"}),  # the executions were restored
        ("different", {"startedBy": "x"}),
        ("unreadable", {"seq": "x"}),
        ("orphan", {}),
        ("orphan2", {"seq": None}),
    ):
        await store.upsert(VISIBILITY, (TENANT,), {**right[model["id"]], "id": id, **change})
    await store.upsert(VISIBILITY, ("gone",), {**right[model["id"]], "tenantId": "gone"})
    report = await rebuild.visibility(world.engine)
    assert await rows(world) == right
    assert (report.executions, report.written, report.removed) == (6, 5, 3)
    again = await rebuild.visibility(world.engine)
    assert (again.executions, again.written, again.removed) == (6, 0, 0)


async def test_rebuild_keeps_the_row_of_an_execution_that_became_poisoned(
    make: MakeWorld,
) -> None:
    world, docs = await with_versions(make)
    await catch_up(world)
    before = await rows(world)
    broken = {**docs[-1], "state": {"seq": 0}}
    await world.sqlite.replace(EXECUTIONS, (TENANT, broken["id"]), broken)
    report = await rebuild.visibility(world.engine)
    assert (report.poisoned, report.written, report.removed) == (1, 0, 0)
    assert await rows(world) == before


async def test_rebuild_ends_although_the_platform_never_rests(make: MakeWorld) -> None:
    """The feed of a working platform never ends: somebody writes between any two pages."""

    class Restless:
        def __init__(self, store: Any) -> None:
            self._store = store
            self.pages = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def changes(self, container: str, cursor: str | None, limit: int) -> Any:
            self.pages += 1
            doc = {"id": "x", "tenantId": "t", "executionId": "x", "n": self.pages}
            await self._store.upsert(EXECUTIONS, ("t", "x"), doc)
            return await self._store.changes(container, cursor, limit)

    world, docs = await with_versions(make, wrap_store=Restless)
    report = await rebuild.visibility(world.engine)
    assert (report.executions, report.written) == (1, 1)
    assert await listed(world) == [docs[-1]["id"]]


async def test_rebuild_beside_the_projection_and_beside_itself(make: MakeWorld) -> None:
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop"), b=task("noop", "a")))
    for _ in range(30):
        await world.start("flow")
    await asyncio.gather(
        world.settle(),
        rebuild.visibility(world.engine),
        rebuild.visibility(world.another("worker-2")),
        catch_up(world),
        catch_up(world),
    )
    await catch_up(world)
    assert await rows(world) == await truth(world)
    assert (await rebuild.visibility(world.engine)).written == 0


ACTIONS = st.lists(
    st.sampled_from(["start", "start", "deliver", "deliver", "project", "again", "stale", "sweep"]),
    max_size=30,
)


@settings(max_examples=25, deadline=None)
@given(actions=ACTIONS, lost=st.booleans())
def test_rebuilt_equals_projected_equals_the_executions_after_any_history(
    actions: list[str], lost: bool
) -> None:
    async def history(folder: str) -> None:
        world = await World(Path(folder)).open()
        world.activities.functions["noop"] = lambda call: None
        for tenant in (TENANT, "t2"):
            definition = flow(a=task("noop"), b=task("noop", "a"), m=task("noop", "a"))
            await catalog.publish(world.engine, tenant, definition)
        batches: list[list[Mapping[str, Any]]] = [[]]
        for number, action in enumerate(actions):
            if action == "start":
                tenant = TENANT if number % 3 else "t2"
                tags = {"n": str(number % 2)}
                await submit.start(world.engine, tenant, "flow", None, tags=tags)
            elif action == "deliver":
                await world.deliver(world.transport.take(world.clock.now(), limit=3))
            elif action == "sweep":
                await world.clock.advance(61_000)
                await world.sweep()
            elif action == "project":
                batches.append(await catch_up(world))
            else:  # the feed shows a batch again: the last, or one from long ago
                batch = batches[-1] if action == "again" else batches[len(batches) // 2]
                await project.project_documents(world.engine, batch)
        await catch_up(world)
        projected = await rows(world)
        assert projected == await truth(world)
        if lost:
            await wipe(world, VISIBILITY)
        report = await rebuild.visibility(world.engine)
        assert report.written == (len(projected) if lost else 0)
        assert report.removed == 0
        assert await rows(world) == projected
        await world.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(history(folder))
