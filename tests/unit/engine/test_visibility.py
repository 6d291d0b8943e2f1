"""The projection behind lists: what a change feed may do to it, and what it must not."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from orchestrator.domain.topology import EXECUTIONS, VISIBILITY
from orchestrator.engine import project, rebuild
from orchestrator.engine.core import Tunables
from orchestrator.ports import StoreError, Throttled, Unavailable
from tests.support.definitions import flow, task
from tests.support.faults import FaultyStore, faulty, times
from tests.support.lists import catch_up, changed, rows, run_one, stored, wipe
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld
from tests.unit.engine.test_cases_store import _with_time

PATIENCE = Tunables(throttle_budget_ms=1_000)


async def with_versions(make: MakeWorld, **options: Any) -> tuple[World, list[dict[str, Any]]]:
    """A world in which one execution has ended, and its versions."""
    world = await make(noop=lambda call: None, **options)
    return world, await run_one(world)


async def test_execution_that_changed_three_times_between_two_polls_shows_its_final_status(
    make: MakeWorld,
) -> None:
    """MicrosoftDocs/azure-docs#50040: the feed shows only the latest version, and no deletes."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    await catch_up(world)
    assert (await rows(world))[started.id]["seq"] == 0
    await world.settle()  # outbox documents come and go, the status changes
    final = await stored(world, started.id)
    assert final["state"]["seq"] >= 2
    await catch_up(world)
    row = (await rows(world))[started.id]
    assert (row["status"], row["seq"]) == ("COMPLETED", final["state"]["seq"])
    assert row["progress"] == {"total": 1, "completed": 1}
    assert world.engine.metrics.value("weft_projected_total") == 2


async def test_an_older_seq_never_overwrites_a_newer_one_in_whatever_order(
    make: MakeWorld,
) -> None:
    world, docs = await with_versions(make)
    assert len(docs) >= 4
    newest = project.row_of(docs[-1])
    some = [docs[0], docs[len(docs) // 2], docs[-1]]
    for order in itertools.permutations(some):
        await wipe(world, VISIBILITY)
        latest = -1
        for doc in order:
            await project.project_documents(world.engine, [doc])
            latest = max(latest, doc["state"]["seq"])
            assert (await rows(world))[newest["id"]]["seq"] == latest
        assert await rows(world) == {newest["id"]: newest}
        await wipe(world, VISIBILITY)
        await project.project_documents(world.engine, order)  # all in one batch
        assert await rows(world) == {newest["id"]: newest}


async def test_a_batch_that_comes_again_costs_one_read_and_writes_nothing(
    make: MakeWorld,
) -> None:
    world = await make(noop=lambda call: None, wrap_store=FaultyStore)
    await world.publish(flow(a=task("noop")))
    for _ in range(20):
        await world.start("flow")
    await world.engine.drain()
    docs = await changed(world)
    faulty(world.engine).calls.clear()
    first = await project.project_documents(world.engine, docs)
    assert first == project.Projected(written=20)
    assert faulty(world.engine).calls == ["read_many", "batch"]
    faulty(world.engine).calls.clear()
    again = await project.project_documents(world.engine, docs)
    assert again == project.Projected(known=20)
    assert faulty(world.engine).calls == ["read_many"]


async def test_a_poisoned_document_is_told_of_and_spoils_none_of_its_neighbours(
    make: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world, docs = await with_versions(make)
    good = docs[-1]
    poisoned: list[dict[str, Any]] = [
        {"type": "execution", "id": "empty"},
        {**good, "id": "p1", "state": None},
        {**good, "id": "p2", "state": {**good["state"], "status": "DONE"}},
        {**good, "id": "p3", "tags": ["s3cret"]},
        {**good, "id": "p4", "tenantId": None},
        {**good, "id": "p5", "executionId": 7},
        {**good, "id": "p6", "executionId": "a/b"},  # only the store refuses it
        {**good, "id": "p7", "tenantId": "other", "executionId": "x" * 2_000},
        {**good, "id": "newer", "v": 99},
    ]
    others = [{**good, "executionId": f"n{n}", "id": f"n{n}"} for n in range(3)]
    mixed = [*poisoned[:5], others[0], *poisoned[5:], *others[1:], {"type": "outbox"}, good]
    result = await project.project_documents(world.engine, mixed)
    assert result == project.Projected(written=4, poisoned=len(poisoned))
    assert set(await rows(world)) == {good["id"], "n0", "n1", "n2"}
    assert world.engine.metrics.value("weft_projection_poisoned_total") == len(poisoned)
    assert len(caplog.records) == len(poisoned)
    assert "s3cret" not in caplog.text


async def test_a_row_that_somebody_else_wrote_between_read_and_write_is_compared_again(
    make: MakeWorld,
) -> None:
    """Two hosts share the feed for a moment while a lease moves."""

    class Racing:
        def __init__(self, store: Any) -> None:
            self._store = store
            self.theirs: list[dict[str, Any]] = []

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def read_many(self, container: str, *args: Any) -> Any:
            found = await self._store.read_many(container, *args)
            if container == VISIBILITY and self.theirs:
                await self._store.upsert(VISIBILITY, (TENANT,), self.theirs.pop())
            return found

    world, docs = await with_versions(make, wrap_store=Racing)
    store: Any = world.engine.store
    other = {**docs[0], "id": "other", "executionId": "other"}
    for mine, theirs, before in itertools.product(docs, docs, (None, docs[0])):
        for batch in ([mine], [mine, other]):
            await wipe(world, VISIBILITY)
            if before is not None:
                await project.project_documents(world.engine, [before])
            store.theirs = [project.row_of(theirs)]
            result = await project.project_documents(world.engine, batch)
            assert (result.failed, result.poisoned, store.theirs) == (0, 0, [])
            newest = max(doc["state"]["seq"] for doc in (mine, theirs))
            assert (await rows(world))[mine["id"]]["seq"] == newest
            assert len(await rows(world)) == len(batch)


@pytest.mark.parametrize("batches", [1, 2])
async def test_throttling_is_waited_out_and_a_lost_answer_recognised(
    make: MakeWorld, batches: int
) -> None:
    world, docs = await with_versions(make, wrap_store=FaultyStore, tunables=PATIENCE)
    copies = [{**docs[-1], "id": f"n{n}", "executionId": f"n{n}"} for n in range(batches)]
    writing = ("batch", "create")
    faulty(world.engine).before = times(40, lambda: Throttled("slow", retry_after_ms=100), *writing)
    faulty(world.engine).after = times(1, lambda: Unavailable("reset"), *writing)
    result = await _with_time(world, project.project_documents(world.engine, copies))
    assert (result.failed, result.poisoned) == (0, 0)
    assert set(await rows(world)) == {doc["id"] for doc in copies}


async def test_what_the_store_refuses_for_minutes_is_told_of_and_its_neighbours_are_kept(
    make: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world, docs = await with_versions(make, wrap_store=FaultyStore, tunables=PATIENCE)
    copies = [{**docs[-1], "id": f"n{n}", "executionId": f"n{n}"} for n in range(3)]

    def refuse(name: str, args: tuple[Any, ...]) -> StoreError | None:
        if name == "batch" or (name == "create" and args[2]["id"] == "n1"):
            return Throttled("no")
        return None

    faulty(world.engine).before = refuse
    result = await _with_time(world, project.project_documents(world.engine, copies))
    assert result == project.Projected(written=2, failed=1)
    assert set(await rows(world)) == {"n0", "n2"}
    assert [record.__dict__["execution"] for record in caplog.records] == ["n1"]
    faulty(world.engine).before = lambda name, args: None
    report = await rebuild.visibility(world.engine)
    assert set(await rows(world)) == {docs[-1]["id"]}
    assert (report.written, report.removed, report.failed) == (1, 2, 0)


async def test_an_id_used_again_after_its_execution_was_deleted_begins_anew(
    make: MakeWorld,
) -> None:
    """An idempotency key gives the same id; the new execution begins at seq 0 again."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    first = await world.start("flow", key="k")
    await world.settle()
    await catch_up(world)
    await wipe(world, EXECUTIONS)
    await world.clock.advance(1)
    again = await world.start("flow", key="k")
    assert again.id == first.id
    await catch_up(world)
    row = (await rows(world))[first.id]
    assert (row["status"], row["seq"]) == ("PENDING", 0)
