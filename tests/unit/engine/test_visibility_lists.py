"""Lists of executions: filters, searches and pages over the read model."""

from __future__ import annotations

from typing import Any

from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.topology import EXECUTIONS, VISIBILITY
from orchestrator.engine import inspect, project, rebuild
from orchestrator.engine.inspect import ExecutionFilter
from orchestrator.engine.views import ExecutionSummary
from tests.support.definitions import flow, task
from tests.support.lists import catch_up, listed, run_one, stored
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


async def with_versions(make: MakeWorld, **options: Any) -> tuple[World, list[dict[str, Any]]]:
    """A world in which one execution has ended, and its versions."""
    world = await make(noop=lambda call: None, **options)
    return world, await run_one(world)


async def test_lists_show_what_executions_are(make: MakeWorld) -> None:
    """Every field of a list agrees with the execution's own view."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop"), b=task("noop", "a")))
    for number in range(3):
        await world.start("flow", key=f"k{number}", tags={"n": str(number)}, started_by="ada")
        await world.clock.advance(5)
    await world.deliver(world.transport.take(world.clock.now()))
    await catch_up(world)
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
    await catch_up(world)
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
    for limit in range(1, 25):
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
    await catch_up(world)
    row = project.row_of(docs[-1])
    await world.sqlite.create(VISIBILITY, (TENANT,), {**row, "id": "bad", "status": "DONE"})
    assert await listed(world) == [row["id"]]
    assert world.engine.metrics.value("weft_unreadable_rows_total") == 1
    assert (await rebuild.visibility(world.engine)).removed == 1
