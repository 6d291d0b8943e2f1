"""`reconcile`: each kind of gap is found, mended where that can be, and gone the next time."""

from __future__ import annotations

import asyncio
from typing import Any

from orchestrator.domain.topology import EXECUTIONS, SCHEMA_VERSION, VISIBILITY
from orchestrator.engine import reconcile
from orchestrator.engine.views_reconcile import ReconcileReport
from orchestrator.ports import Unavailable
from tests.support.definitions import flow, task
from tests.support.lists import catch_up, rows
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld

MINUTE = 60_000


async def run(world: World, **options: Any) -> ReconcileReport:
    return await reconcile.reconcile(world.engine, settle_ms=0, **options)


async def open_world(make: MakeWorld) -> tuple[World, str]:
    """A world with one execution that has ended and one that waits in its first task's queue."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop"), b=task("noop", "a")))
    await world.start("flow")
    await world.settle()
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    await catch_up(world)
    return world, started.id


async def change(world: World, id: str, doc: str | None = None, **fields: Any) -> None:
    """Change a stored document behind the engine's back; None removes a field."""
    found = await world.sqlite.read(EXECUTIONS, (TENANT, id), doc or id)
    body = {key: value for key, value in {**found.body, **fields}.items() if value is not None}
    await world.sqlite.replace(EXECUTIONS, (TENANT, id), body)
    world.engine.aggregates.drop((TENANT, id))


async def test_a_platform_at_work_has_no_gaps(make: MakeWorld) -> None:
    world, _ = await open_world(make)
    report = await run(world, every=True)
    assert report.model_dump(exclude_defaults=True) == {
        "executions": 2,
        "open": 1,
        "waiting": 1,
        "rows": 2,
    }


async def test_rows_that_are_missing_behind_ahead_or_orphaned_are_gaps_and_mended(
    make: MakeWorld,
) -> None:
    world, open_id = await open_world(make)
    right = await rows(world)
    store = world.sqlite
    (ended,) = right.keys() - {open_id}
    third = (await world.start("flow")).id
    await store.upsert(VISIBILITY, (TENANT,), {**right[open_id], "seq": 99})
    await store.upsert(VISIBILITY, (TENANT,), {**right[ended], "seq": 0, "status": "PENDING"})
    await store.upsert(VISIBILITY, (TENANT,), {**right[ended], "id": "orphan"})
    found = await run(world, mend=False)
    assert (found.kinds, found.mended) == ({"orphan": 1, "row": 3}, 0)
    assert {gap.execution for gap in found.found} == {open_id, ended, third, "orphan"}
    report = await run(world)
    assert (report.gaps, report.mended) == (4, 4)
    assert (await run(world)).gaps == 0
    assert {id: row["seq"] for id, row in (await rows(world)).items()} == {
        third: 0,
        **{id: row["seq"] for id, row in right.items()},
    }


async def test_what_the_sweeper_should_have_seen_to_is_overdue_and_sent_for(
    make: MakeWorld,
) -> None:
    world, id = await open_world(make)
    world.transport.failing = True
    await world.start("flow")  # its outbox is not sent
    world.transport.failing = False
    await catch_up(world)
    world.transport.messages.clear()
    assert (await run(world)).gaps == 0  # nobody is late yet
    await world.clock.advance(4 * MINUTE)
    report = await run(world)
    # Both executions, and the outbox.
    assert (report.kinds, report.mended) == ({"overdue": 3}, 3)
    await world.settle()
    await catch_up(world)
    assert (await run(world)).gaps == 0
    assert (await world.view(id)).status == "COMPLETED"


async def test_an_open_execution_that_nothing_would_look_at_is_sent_for(make: MakeWorld) -> None:
    world, id = await open_world(make)
    world.transport.messages.clear()
    for fields in ({"sweepAt": None}, {"sweepAt": world.clock.now() + 365 * 24 * 60 * MINUTE}):
        await change(world, id, **fields)
        report = await run(world, mend=False)
        assert report.kinds == {"unwatched": 1}, fields
    assert (await run(world)).mended == 1
    await world.settle()
    await catch_up(world)
    assert (await run(world)).gaps == 0
    assert (await world.view(id)).status == "COMPLETED"


async def test_work_whose_messages_went_with_the_broker_is_found_at_once_if_told_so(
    make: MakeWorld,
) -> None:
    world, _ = await open_world(make)
    pending = await world.start("flow")
    await catch_up(world)
    world.transport.messages.clear()
    assert (await run(world)).gaps == 0
    report = await run(world, lost=True)
    assert (report.kinds, report.mended) == ({"lost": 2}, 2)
    await world.settle()
    await catch_up(world)
    assert (await run(world, lost=True, every=True)).gaps == 0
    assert (await world.view(pending.id)).status == "COMPLETED"


async def test_a_history_that_does_not_fold_an_unreadable_and_a_newer_one_are_named(
    make: MakeWorld,
) -> None:
    world, id = await open_world(make)
    ids = [id] + [(await world.start("flow")).id for _ in range(2)]
    await catch_up(world)
    await world.sqlite.delete(EXECUTIONS, (TENANT, ids[0]), "events:0000000001")
    await change(world, ids[1], version=7)
    await change(world, ids[2], v=SCHEMA_VERSION + 1)
    for _ in range(2):
        report = await run(world)
        kinds = {gap.execution: gap.kind for gap in report.found if gap.kind != "row"}
        assert kinds == dict(zip(ids, ("history", "unreadable", "newer"), strict=True))
        assert not any(gap.mended for gap in report.found if gap.kind != "row")


async def test_a_task_of_newer_code_makes_its_execution_one_that_cannot_be_judged(
    make: MakeWorld,
) -> None:
    world, id = await open_world(make)
    await world.deliver(world.transport.take(world.clock.now()))
    await change(world, id, "task:a", v=SCHEMA_VERSION + 1)
    await catch_up(world)
    assert (await run(world)).kinds == {"newer": 1}


async def test_a_paused_execution_and_a_retry_far_ahead_are_no_gaps(make: MakeWorld) -> None:
    world = await make(noop=lambda call: 1 / 0)
    definition = flow(a=task("noop", retry={"maxAttempts": 2, "initialInterval": "2h"}))
    await world.publish(definition | {"name": "late"})
    await world.publish(flow("rest", a={"type": "wait", "duration": "400d"}))
    await world.start("late")
    await world.start("rest")
    await world.settle()
    await catch_up(world)
    assert (await run(world, lost=True)).gaps == 0


async def test_what_is_right_at_the_second_look_is_no_gap(make: MakeWorld) -> None:
    """The platform works meanwhile: a row that lags at the first look is no gap."""
    world, _ = await open_world(make)
    await world.start("flow")
    looking = asyncio.create_task(reconcile.reconcile(world.engine))
    async with asyncio.timeout(30):
        while not world.clock.sleeping():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
    await catch_up(world)
    await world.clock.advance(reconcile.SETTLE_MS)
    assert (await looking).gaps == 0


async def test_an_execution_that_is_being_archived_is_no_gap(make: MakeWorld) -> None:
    world, open_id = await open_world(make)
    (ended,) = (await rows(world)).keys() - {open_id}
    await change(world, ended, archiving={"at": 1})
    await world.sqlite.delete(EXECUTIONS, (TENANT, ended), "events:0000000001")
    assert (await run(world, every=True)).gaps == 0
    await change(world, ended, archiving=None)
    assert (await run(world, every=True)).kinds == {"history": 1}


async def test_doubts_are_settled_in_portions(make: MakeWorld, monkeypatch: Any) -> None:
    monkeypatch.setattr(reconcile, "DOUBTS", 3)
    monkeypatch.setattr("orchestrator.engine.rebuild.PAGE", 4)
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    for _ in range(10):
        await world.start("flow")
    report = await run(world)
    assert (report.executions, report.kinds, report.mended) == (10, {"row": 10}, 10)
    assert (await run(world)).gaps == 0


async def test_a_broker_that_refuses_leaves_the_gap(make: MakeWorld) -> None:
    world, id = await open_world(make)
    await change(world, id, sweepAt=None)
    world.transport.failing = True
    report = await run(world)
    assert (report.gaps, report.mended) == (1, 0)


async def test_a_store_that_was_away_for_a_moment_does_not_end_the_run(make: MakeWorld) -> None:
    """What is not there was asked for twice, and the second answer was taken for a fault."""
    world, _ = await open_world(make)
    row, *_ = (await rows(world)).values()
    await world.sqlite.upsert(VISIBILITY, (TENANT,), {**row, "id": "orphan"})
    read, away = world.sqlite.read, {"orphan"}

    async def once_away(container: str, partition: tuple[str, ...], id: str) -> Any:
        if id in away:
            away.discard(id)
            raise Unavailable("away")
        return await read(container, partition, id)

    world.sqlite.read = once_away  # type: ignore[method-assign]
    running = asyncio.ensure_future(run(world))
    while not running.done():
        await quiesce()
        await world.clock.advance(1_000)
    assert (await running).kinds == {"orphan": 1}
    assert away == set()
