"""Compensation on the real engine: order, crashes, losses, dead compensations, cancel, replay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.domain.errors import ConflictError, InvalidError, NotFoundError
from orchestrator.domain.topology import EXECUTIONS, ORCHESTRATION_QUEUE, TASKS_STANDARD_QUEUE
from orchestrator.engine import (
    control,
    inspect,
    letters_act,
    letters_bulk,
    letters_list,
    project,
    replay,
)
from orchestrator.engine.leases import LeaseKeeper
from orchestrator.engine.letters_act import Action, Wish
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.ports import ActivityCall
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld


class Shop:
    """Does and undoes; fails for tasks named in `broken`, as long as they are."""

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.ran: list[str] = []

    def __call__(self, call: ActivityCall) -> Any:
        self.ran.append(call.task)
        if call.task in self.broken:
            raise ValueError(f"{call.task} is broken")
        return {"id": f"{call.task}-1", "given": call.input}

    @property
    def undone(self) -> list[str]:
        return [name for name in self.ran if name.endswith("~undo")]


def saga(**more: Any) -> dict[str, Any]:
    """reserve, charge and ship in a row; the first two can be undone."""
    undo = {"type": "activity", "activity": "work", "retry": retry(2)}
    reserve = {**undo, "input": "${tasks.reserve.output.id}"}
    charge = {**undo, "input": {"charge": "${tasks.charge.output.id}", "order": "${input}"}}
    return flow(
        reserve=task("work", compensate=reserve),
        charge=task("work", "reserve", compensate=charge),
        ship=task("work", "charge", retry=retry(1)),
        **more,
    )


async def failed(make: MakeWorld, *broken: str, **more: Any) -> tuple[World, Shop, str]:
    """An execution of the saga that ran to its end."""
    shop = Shop(*broken)
    world = await make(work=shop)
    await world.publish(saga(**more))
    started = await world.start("flow", "A-17")
    await world.run_until_quiet()
    return world, shop, started.id


async def compensation(world: World, execution: str) -> dict[str, Any]:
    view = (await world.view(execution)).compensation
    assert view is not None
    return view.model_dump()


async def letter_of(world: World, name: str, execution: str) -> str:
    found, _ = await letters_list.page(
        world.engine, TENANT, LetterFilter(task=name, execution=execution), limit=9, after=None
    )
    return found[0].id


async def act(world: World, id: str, action: Action, **more: Any) -> Any:
    return await letters_act.act(world.engine, TENANT, id, Wish(action=action, by="eve", **more))


async def test_a_failed_execution_undoes_what_completed_in_reverse_with_the_outputs_of_then(
    make: MakeWorld,
) -> None:
    world, shop, execution = await failed(make, "ship")
    assert shop.ran == ["reserve", "charge", "ship", "charge~undo", "reserve~undo"]
    inputs = {call.task: call.input for call in world.activities.calls}
    assert inputs["charge~undo"] == {"charge": "charge-1", "order": "A-17"}
    assert inputs["reserve~undo"] == "reserve-1"
    view = await world.view(execution)
    assert view.status == "FAILED"
    assert view.error is not None
    assert view.error.task == "ship"
    assert await compensation(world, execution) == {
        "status": "complete",
        "tasks": 2,
        "done": 2,
        "failed": [],
        "left": [],
    }
    assert (view.progress.total, view.progress.completed) == (3, 2)
    shown = await inspect.task(world.engine, TENANT, execution, "charge~undo")
    assert (shown.compensates, shown.status.value, shown.attempt) == ("charge", "COMPLETED", 1)
    await world.verified(execution)


async def test_compensations_are_shown_and_counted_only_when_they_were_called_for(
    make: MakeWorld,
) -> None:
    world, _, execution = await failed(make)
    view = await world.view(execution)
    assert (view.status, view.compensation, view.progress.total) == ("COMPLETED", None, 3)
    assert list(await world.statuses(execution)) == ["reserve", "charge", "ship"]
    with pytest.raises(NotFoundError):
        await inspect.task(world.engine, TENANT, execution, "charge~undo")
    doc = await world.sqlite.read(EXECUTIONS, (TENANT, execution), execution)
    assert doc.body["state"]["tasks"] == "CCCHH"
    assert project.row_of(doc.body)["progress"] == {"total": 3, "completed": 3}


async def test_a_page_of_tasks_ends_where_the_shown_ones_end(make: MakeWorld) -> None:
    world, _, execution = await failed(make, "charge")
    ids: list[str] = []
    after: Any = None
    for _ in range(9):
        items, after = await inspect.tasks(world.engine, TENANT, execution, limit=2, after=after)
        ids += [item.id for item in items]
        if after is None:
            break
    assert ids == ["reserve", "charge", "ship", "reserve~undo"]


async def test_a_compensation_is_retried_like_a_task_under_one_idempotency_key(
    make: MakeWorld,
) -> None:
    world, shop, execution = await failed(make, "ship", "charge~undo")
    assert shop.undone == ["charge~undo", "charge~undo", "reserve~undo"]
    keys = {c.idempotency_key for c in world.activities.calls if c.task == "charge~undo"}
    assert keys == {f"{execution}:charge~undo"}


async def test_what_cannot_be_undone_is_a_dead_letter_and_the_execution_says_incomplete(
    make: MakeWorld,
) -> None:
    world, _, execution = await failed(make, "ship", "charge~undo")
    view = await compensation(world, execution)
    assert (view["status"], view["done"], view["failed"]) == ("incomplete", 1, ["charge~undo"])
    letter = await letters_list.show(
        world.engine, TENANT, await letter_of(world, "charge~undo", execution)
    )
    assert letter.id == f"{execution}~charge~undo~2"
    assert (letter.task, letter.kind, letter.status) == ("charge~undo", "task", "OPEN")
    assert letter.input == {"charge": "charge-1", "order": "A-17"}


async def test_retrying_a_dead_compensation_completes_it_and_ends_the_same(
    make: MakeWorld,
) -> None:
    world, shop, execution = await failed(make, "ship", "charge~undo")
    before = await world.view(execution)
    shop.broken.clear()
    await act(world, await letter_of(world, "charge~undo", execution), Action.RETRY)
    assert (await world.view(execution)).status == "COMPENSATING"
    await world.run_until_quiet()
    view = await world.view(execution)
    assert (view.status, view.error) == ("FAILED", before.error)
    assert (await compensation(world, execution))["status"] == "complete"
    await world.verified(execution)


@pytest.mark.parametrize(
    ("action", "status", "left"),
    [(Action.SKIP, "complete", []), (Action.FAIL, "incomplete", ["charge~undo"]),
     (Action.DISCARD, "incomplete", ["charge~undo"])],
)  # fmt: skip
async def test_the_other_decisions_about_a_dead_compensation(
    make: MakeWorld, action: Action, status: str, left: list[str]
) -> None:
    world, _, execution = await failed(make, "ship", "charge~undo", on_failure="hold")
    if (await world.view(execution)).status == "RUNNING":  # it holds for ship
        assert (await world.view(execution)).compensation is None
        await act(world, await letter_of(world, "ship", execution), Action.FAIL)
        await world.run_until_quiet()
    assert (await world.view(execution)).status == "FAILED"
    assert (await world.view(execution)).holding == []
    await act(world, await letter_of(world, "charge~undo", execution), action)
    await world.run_until_quiet()
    view = await compensation(world, execution)
    assert (view["status"], view["failed"]) == (status, left)
    await world.verified(execution)


async def test_a_retry_with_edited_input_of_a_compensation_uses_it(make: MakeWorld) -> None:
    world, shop, execution = await failed(make, "ship", "charge~undo")
    shop.broken.clear()
    id = await letter_of(world, "charge~undo", execution)
    await act(world, id, Action.RETRY, value={"charge": "other"}, edited=True)
    await world.run_until_quiet()
    assert world.activities.calls[-1].input == {"charge": "other"}


async def test_what_was_undone_cannot_be_retried_but_replayed(make: MakeWorld) -> None:
    world, shop, execution = await failed(make, "ship")
    shop.broken.clear()
    id = await letter_of(world, "ship", execution)
    with pytest.raises(ConflictError) as caught:
        await letters_bulk.retry_execution(world.engine, TENANT, execution, by="eve")
    assert caught.value.code == "ALREADY_COMPENSATED"
    for action in (Action.RETRY, Action.SKIP):
        with pytest.raises(ConflictError) as caught:
            await act(world, id, action)
        assert caught.value.code == "ALREADY_COMPENSATED"
    assert (await act(world, id, Action.DISCARD)).status == "DISCARDED"
    shop.ran.clear()
    again = await replay.replay(world.engine, TENANT, execution, by="eve")
    await world.run_until_quiet()
    assert (await world.view(again.id)).status == "COMPLETED"
    assert shop.ran == ["reserve", "charge", "ship"]
    await world.verified(again.id)


async def test_a_replay_from_a_task_runs_again_what_was_undone(make: MakeWorld) -> None:
    world, shop, execution = await failed(make, "ship")
    shop.broken.clear()
    shop.ran.clear()
    again = await replay.replay(world.engine, TENANT, execution, start_at="ship")
    await world.run_until_quiet()
    assert shop.ran == ["reserve", "charge", "ship"]
    assert (await world.view(again.id)).status == "COMPLETED"
    with pytest.raises(NotFoundError):
        await replay.replay(world.engine, TENANT, execution, start_at="charge~undo")


async def test_a_copied_result_belongs_to_its_origin_and_is_not_undone(make: MakeWorld) -> None:
    world, shop, origin = await failed(make)
    shop.broken.add("ship")
    shop.ran.clear()
    again = await replay.replay(world.engine, TENANT, origin, start_at="charge")
    await world.run_until_quiet()
    assert shop.ran == ["charge", "ship", "charge~undo"]
    assert (await world.view(again.id)).status == "FAILED"
    assert (await compensation(world, again.id))["tasks"] == 1
    await world.verified(again.id)


async def test_a_worker_that_dies_while_undoing_is_taken_over(make: MakeWorld) -> None:
    never = asyncio.Event()
    shop = Shop("ship")

    async def work(call: ActivityCall) -> Any:
        if call.task == "charge~undo" and call.attempt == 1:
            await never.wait()
        return shop(call)

    world = await make(work=work)
    await world.publish(saga())
    started = await world.start("flow")
    await _until_dispatched(world, "charge~undo")
    await _begin_and_die(world)
    await world.clock.advance(world.tunables.lease_ms)
    assert (await world.sweep()).tasks == 1
    assert (await world.view(started.id)).status == "FAILED"
    assert shop.undone == ["charge~undo", "reserve~undo"]
    assert (await compensation(world, started.id))["status"] == "complete"
    await world.verified(started.id)


@pytest.mark.parametrize("queue", [TASKS_STANDARD_QUEUE, ORCHESTRATION_QUEUE])
async def test_a_lost_message_of_a_compensation_is_repaired(make: MakeWorld, queue: str) -> None:
    world = await make(work=Shop("ship"))
    await world.publish(saga())
    started = await world.start("flow")
    await _until_dispatched(world, "charge~undo")
    if queue == ORCHESTRATION_QUEUE:
        await world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE))
    assert world.transport.take(world.clock.now(), queue)
    await world.settle()
    assert (await world.view(started.id)).status == "COMPENSATING"
    await world.clock.advance(world.tunables.silence_ms)
    assert (await world.sweep()).executions == 1
    assert (await world.view(started.id)).status == "FAILED"
    assert (await compensation(world, started.id))["status"] == "complete"


async def test_doubled_messages_undo_nothing_twice(make: MakeWorld) -> None:
    shop = Shop("ship")
    world = await make(work=shop)
    await world.publish(saga())
    await world.start("flow")
    for _ in range(40):
        due = world.transport.take(world.clock.now())
        await world.deliver(due)
        await world.deliver(due)
    assert shop.undone == ["charge~undo", "reserve~undo"]


async def test_the_time_limit_stops_what_runs_and_then_undoes_without_a_limit(
    make: MakeWorld,
) -> None:
    shop, calls = Shop(), []
    gate = asyncio.Event()

    async def work(call: ActivityCall) -> Any:
        calls.append(call)
        if call.task in ("ship", "charge~undo"):
            await gate.wait()
        return shop(call)

    world = await make(work=work)
    await world.publish(saga(timeout="2m"))
    started = await world.start("flow")
    await _until_dispatched(world, "ship")
    shipping = asyncio.create_task(world.deliver(world.transport.take(world.clock.now())))
    await world.clock.advance(120_000)
    await _until_dispatched(world, "charge~undo")
    undoing = asyncio.create_task(
        world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE))
    )
    await quiesce()
    await world.clock.advance(world.tunables.lease_ms)  # heartbeats
    assert {call.task: call.cancelled for call in calls} == {
        "reserve": False,
        "charge": False,
        "ship": True,
        "charge~undo": False,
    }
    gate.set()
    await asyncio.gather(shipping, undoing)
    await world.settle()
    view = await world.view(started.id)
    assert view.error is not None
    assert (view.status, view.error.type) == ("FAILED", "EXECUTION_TIMEOUT")
    assert (await world.statuses(started.id))["ship"] == "CANCELLED"
    assert (await compensation(world, started.id))["status"] == "complete"


async def test_an_expression_of_a_compensation_that_fails_names_its_place(
    make: MakeWorld,
) -> None:
    undo = {"type": "activity", "activity": "work", "input": "${tasks.a.output.nothing.there}"}
    world = await make(work=Shop("b"))
    await world.publish(flow(a=task("work", compensate=undo), b=task("work", "a", retry=retry(1))))
    started = await world.start("flow")
    await world.run_until_quiet()
    shown = await inspect.task(world.engine, TENANT, started.id, "a~undo")
    assert shown.error is not None
    assert shown.error.field == "$.tasks.a.compensate.input"


async def test_publish_refuses_a_compensation_that_cannot_be_run(make: MakeWorld) -> None:
    world = await make(work=Shop())
    for kind in (
        {"type": "wait", "duration": "1s"},
        {"type": "signal", "signal": "x"},
        {"type": "workflow", "workflow": "w"},
    ):
        with pytest.raises(InvalidError) as caught:
            await world.publish(flow(a=task("work", compensate=kind)))
        (detail,) = caught.value.details
        assert detail.field.startswith("$.tasks.a.compensate.")
        assert detail.code == "NOT_YET_SUPPORTED"
    inner = {"type": "activity", "activity": "work", "compensate": kind}
    with pytest.raises(InvalidError) as caught:
        await world.publish(flow(m={"type": "map", "items": [1], "do": inner}))
    (detail,) = caught.value.details
    assert (detail.field, detail.code) == ("$.tasks.m.do.compensate", "UNKNOWN_FIELD")
    assert detail.hint == "it belongs to the task around `do`"


async def test_a_map_is_undone_with_the_list_of_its_outputs(make: MakeWorld) -> None:
    undo = {"type": "activity", "activity": "work", "input": "${tasks.m.output}"}
    do = {"type": "activity", "activity": "double", "input": "${item}"}
    world = await make(work=Shop("z"), double=lambda call: call.input * 2)
    m = {"type": "map", "items": [1, 2, 3], "do": do, "compensate": undo}
    await world.publish(flow(m=m, z=task("work", "m", retry=retry(1))))
    started = await world.start("flow")
    await world.run_until_quiet()
    assert world.activities.calls[-1].input == [2, 4, 6]
    await world.verified(started.id)


async def test_pause_and_resume_are_refused_while_compensating(make: MakeWorld) -> None:
    world = await make(work=Shop("ship"))
    await world.publish(saga())
    started = await world.start("flow")
    await _until_dispatched(world, "charge~undo")
    for action in (control.PAUSE, control.RESUME, control.CANCEL, control.CANCEL_COMPENSATING):
        with pytest.raises(ConflictError) as caught:
            await control.act(world.engine, TENANT, started.id, action, by="eve")
        assert caught.value.code == f"CANNOT_{action.name.upper()}"
        assert "terminate" in caught.value.message
    with pytest.raises(ConflictError) as caught:
        await letters_bulk.retry_execution(world.engine, TENANT, started.id, by="eve")
    assert caught.value.code == "ALREADY_COMPENSATED"
    with pytest.raises(ConflictError):
        await replay.replay(world.engine, TENANT, started.id)


async def _until_dispatched(world: World, name: str) -> None:
    """Deliver one by one until a message for this task waits in its queue."""
    for _ in range(100):
        waiting = [m for m in world.transport.messages if m.queue == TASKS_STANDARD_QUEUE]
        if any(f'"{name}"'.encode() in message.body for message in waiting):
            return
        await world.deliver(world.transport.take(world.clock.now(), limit=1))
    raise AssertionError(f"{name} was never dispatched")


async def _begin_and_die(world: World) -> None:
    """The worker that takes the due message is gone in the middle of it."""
    engine = world.another("doomed")
    [message] = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    running = asyncio.create_task(world.deliver([message], engine))
    await quiesce()
    await engine.part(LeaseKeeper).close()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
