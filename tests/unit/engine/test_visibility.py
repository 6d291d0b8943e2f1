"""The read model behind lists: what the change feed may do to it, and how it is made again."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.topology import EXECUTIONS, VISIBILITY
from orchestrator.engine import catalog, inspect, project, rebuild, submit
from orchestrator.engine.core import Tunables
from orchestrator.engine.inspect import ExecutionFilter
from orchestrator.engine.views import ExecutionSummary
from orchestrator.ports import Query, StoreError, Throttled, Unavailable, Where
from tests.support.definitions import flow, task
from tests.support.faults import FaultyStore, times
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld
from tests.unit.engine.test_cases_store import _with_time

PATIENCE = Tunables(throttle_budget_ms=1_000)


async def versions(world: World, execution: str) -> list[dict[str, Any]]:
    """Every version of the execution document while the execution runs, oldest first."""
    seen = [await stored(world, execution)]
    while due := world.transport.take(world.clock.now()):
        for message in due:
            await world.deliver([message])
            latest = await stored(world, execution)
            if latest["state"]["seq"] != seen[-1]["state"]["seq"]:
                seen.append(latest)
    return seen


async def stored(world: World, execution: str) -> dict[str, Any]:
    return (await world.sqlite.read(EXECUTIONS, (TENANT, execution), execution)).body


async def rows(world: World) -> dict[str, dict[str, Any]]:
    """All rows of the read model."""
    found = await world.sqlite.query(VISIBILITY, Query(limit=10_000))
    return {row.id: row.body for row in found}


async def listed(world: World, tenant: str = TENANT, **filter: Any) -> list[str]:
    wanted = ExecutionFilter(**filter)
    items, _ = await inspect.executions(world.engine, tenant, wanted, limit=100, after=None)
    return [item.id for item in items]


async def with_versions(make: MakeWorld, **options: Any) -> tuple[World, list[dict[str, Any]]]:
    """A world in which one execution of three tasks has ended, and its versions."""
    world = await make(noop=lambda call: None, **options)
    await world.publish(flow(a=task("noop"), b=task("noop", "a"), c=task("noop", "b")))
    started = await world.start("flow", tags={"env": "prod"})
    return world, await versions(world, started.id)


# --- projecting -----------------------------------------------------------------------------------


async def test_execution_that_changed_three_times_between_two_polls_shows_its_final_status(
    make: MakeWorld,
) -> None:
    """MicrosoftDocs/azure-docs#50040: the feed shows only the latest version, and no deletes."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    await world.project()
    assert (await rows(world))[started.id]["seq"] == 0
    await world.settle()  # outbox documents come and go, the status changes
    final = await stored(world, started.id)
    assert final["state"]["seq"] >= 2
    await world.project()
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
        await world.wipe(VISIBILITY)
        latest = -1
        for doc in order:
            await project.project_documents(world.engine, [doc])
            latest = max(latest, doc["state"]["seq"])
            assert (await rows(world))[newest["id"]]["seq"] == latest
        assert await rows(world) == {newest["id"]: newest}
        await world.wipe(VISIBILITY)
        await project.project_documents(world.engine, order)  # all in one batch
        assert await rows(world) == {newest["id"]: newest}


async def test_a_batch_that_comes_again_costs_one_read_and_writes_nothing(
    make: MakeWorld,
) -> None:
    faulty: list[FaultyStore] = []

    def wrap(store: Any) -> Any:
        faulty.append(FaultyStore(store))
        return faulty[-1]

    world = await make(noop=lambda call: None, wrap_store=wrap)
    await world.publish(flow(a=task("noop")))
    for _ in range(20):
        await world.start("flow")
    await world.engine.drain()
    docs = await world.changed()
    faulty[0].calls.clear()
    first = await project.project_documents(world.engine, docs)
    assert first == project.Projected(written=20)
    assert faulty[0].calls == ["read_many", "batch"]
    faulty[0].calls.clear()
    again = await project.project_documents(world.engine, docs)
    assert again == project.Projected(known=20)
    assert faulty[0].calls == ["read_many"]


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
    for mine, theirs, before in itertools.product((docs[0], docs[-1]), docs, (None, docs[0])):
        for batch in ([mine], [mine, other]):
            await world.wipe(VISIBILITY)
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
    faulty: list[FaultyStore] = []

    def wrap(store: Any) -> Any:
        faulty.append(FaultyStore(store))
        return faulty[-1]

    world, docs = await with_versions(make, wrap_store=wrap, tunables=PATIENCE)
    copies = [{**docs[-1], "id": f"n{n}", "executionId": f"n{n}"} for n in range(batches)]
    writing = ("batch", "create")
    faulty[0].before = times(40, lambda: Throttled("slow", retry_after_ms=100), *writing)
    faulty[0].after = times(1, lambda: Unavailable("reset"), *writing)
    result = await _with_time(world, project.project_documents(world.engine, copies))
    assert (result.failed, result.poisoned) == (0, 0)
    assert set(await rows(world)) == {doc["id"] for doc in copies}


async def test_what_the_store_refuses_for_minutes_is_told_of_and_its_neighbours_are_kept(
    make: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    faulty: list[FaultyStore] = []

    def wrap(store: Any) -> Any:
        faulty.append(FaultyStore(store))
        return faulty[-1]

    world, docs = await with_versions(make, wrap_store=wrap, tunables=PATIENCE)
    copies = [{**docs[-1], "id": f"n{n}", "executionId": f"n{n}"} for n in range(3)]

    def refuse(name: str, args: tuple[Any, ...]) -> StoreError | None:
        if name == "batch" or (name == "create" and args[2]["id"] == "n1"):
            return Throttled("no")
        return None

    faulty[0].before = refuse
    result = await _with_time(world, project.project_documents(world.engine, copies))
    assert result == project.Projected(written=2, failed=1)
    assert set(await rows(world)) == {"n0", "n2"}
    assert [record.__dict__["execution"] for record in caplog.records] == ["n1"]
    faulty[0].before = lambda name, args: None
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
    await world.project()
    await world.wipe(EXECUTIONS)
    await world.clock.advance(1)
    again = await world.start("flow", key="k")
    assert again.id == first.id
    await world.project()
    row = (await rows(world))[first.id]
    assert (row["status"], row["seq"]) == ("PENDING", 0)


# --- listing --------------------------------------------------------------------------------------


async def test_lists_show_what_executions_are(make: MakeWorld) -> None:
    """Every field of a list agrees with the execution's own view."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop"), b=task("noop", "a")))
    for number in range(3):
        await world.start("flow", key=f"k{number}", tags={"n": str(number)}, started_by="ada")
        await world.clock.advance(5)
    await world.deliver(world.transport.take(world.clock.now()))
    await world.project()
    items, more = await inspect.executions(
        world.engine, TENANT, ExecutionFilter(), limit=10, after=None
    )
    assert more is None
    for item in items:
        view = await world.view(item.id)
        assert item == ExecutionSummary(**{n: getattr(view, n) for n in type(item).model_fields})
    assert [item.tags["n"] for item in items] == ["2", "1", "0"]


async def test_every_filter_alone_and_together(make: MakeWorld) -> None:
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    await world.publish(flow("other", a=task("noop")))
    ada = await world.start("flow", started_by="ada", tags={"env": "prod"}, key="order 7/é")
    bob = await world.start("other", started_by="bob", tags={"env": "prod", "app.io": "x"})
    await world.settle()
    await world.clock.advance(10)
    new = await world.start("flow", started_by="bob")
    child = {**await stored(world, new.id), "id": "child", "executionId": "child"}
    child |= {"parent": ada.id, "createdAt": child["createdAt"] + 1}
    await world.sqlite.create(EXECUTIONS, (TENANT, "child"), child)
    await world.project()
    now = world.clock.now()
    first, second = sorted((ada.id, bob.id), reverse=True)  # created in the same millisecond
    for filter, expected in (
        ({}, ["child", new.id, first, second]),
        ({"status": ExecutionStatus.COMPLETED}, [first, second]),
        ({"workflow": "other"}, [bob.id]),
        ({"owner": "bob"}, ["child", new.id, bob.id]),
        ({"parent": ada.id}, ["child"]),
        ({"tag": ("env", "prod")}, [first, second]),
        ({"tag": ("app.io", "x")}, [bob.id]),
        ({"created_after": now}, ["child", new.id]),
        ({"created_before": now}, [first, second]),
        ({"search": "order 7/é"}, [ada.id]),
        ({"search": "order 7"}, []),
        ({"search": ada.id}, [ada.id]),
        ({"search": ada.id[:20]}, [ada.id]),
        ({"search": "id-"}, [new.id, bob.id]),
        ({"search": "chil"}, ["child"]),
        ({"search": "hild"}, []),
        ({"search": "%"}, []),
        ({"search": "id-", "workflow": "other", "owner": "bob"}, [bob.id]),
        ({"owner": "ada", "workflow": "other"}, []),
    ):
        assert await listed(world, **filter) == expected, filter


async def test_pages_of_a_search_hold_every_hit_once(make: MakeWorld) -> None:
    """A search asks twice (ids, keys); their pages are merged, also where they overlap."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    model = await stored(world, (await world.start("flow")).id)
    ids = [f"a{n:02}" for n in range(10)] + [f"b{n:02}" for n in range(10)]
    for n, id in enumerate(ids):
        doc = {**model, "id": id, "executionId": id, "createdAt": 1_000 + n % 3}
        if n % 2:
            doc["key"] = "a"  # half of the a..., and half of the others
        await project.project_documents(world.engine, [doc])
    expected = {id for n, id in enumerate(ids) if id[0] == "a" or n % 2}
    for limit in (1, 2, 3, 7, 100):
        seen: list[str] = []
        after = None
        while True:
            items, after = await inspect.executions(
                world.engine, TENANT, ExecutionFilter(search="a"), limit=limit, after=after
            )
            assert len(items) <= limit
            seen += [item.id for item in items]
            if after is None:
                break
        assert len(seen) == len(set(seen)), limit
        assert set(seen) == expected, limit


async def test_a_row_that_cannot_be_read_does_not_hide_the_others(make: MakeWorld) -> None:
    world, docs = await with_versions(make)
    await world.project()
    row = project.row_of(docs[-1])
    await world.sqlite.create(VISIBILITY, (TENANT,), {**row, "id": "bad", "status": "DONE"})
    assert await listed(world) == [row["id"]]
    assert world.engine.metrics.value("weft_unreadable_rows_total") == 1
    assert (await rebuild.visibility(world.engine)).removed == 1


# --- rebuilding -----------------------------------------------------------------------------------


async def test_rebuild_mends_rows_that_are_missing_behind_ahead_different_or_orphaned(
    make: MakeWorld,
) -> None:
    world, docs = await with_versions(make)
    model = docs[-1]
    for id in ("missing", "behind", "ahead", "different", "unreadable"):
        doc = {**model, "id": id, "executionId": id}
        await world.sqlite.create(EXECUTIONS, (TENANT, id), doc)
    await world.project()
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
    await world.project()
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
        world.project(),
        world.project(),
    )
    await world.project()
    assert await rows(world) == await truth(world)
    assert (await rebuild.visibility(world.engine)).written == 0


async def truth(world: World) -> dict[str, dict[str, Any]]:
    query = Query(where=(Where("type", "=", "execution"),), limit=10_000)
    docs = await world.sqlite.query(EXECUTIONS, query)
    return {doc.id: project.row_of(doc.body) for doc in docs}


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
                batches.append(await world.project())
            else:  # the feed shows a batch again: the last, or one from long ago
                batch = batches[-1] if action == "again" else batches[len(batches) // 2]
                await project.project_documents(world.engine, batch)
        await world.project()
        projected = await rows(world)
        assert projected == await truth(world)
        if lost:
            await world.wipe(VISIBILITY)
        report = await rebuild.visibility(world.engine)
        assert report.written == (len(projected) if lost else 0)
        assert report.removed == 0
        assert await rows(world) == projected
        await world.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(history(folder))
