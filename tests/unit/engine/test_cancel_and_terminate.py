"""Cancel with compensation, and terminate, on the real engine: what runs, what is undone, races."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.domain.errors import ConflictError
from orchestrator.domain.topology import AUDIT, EXECUTIONS
from orchestrator.engine import control, inspect, letters_act, letters_list
from orchestrator.engine.control import CANCEL, CANCEL_COMPENSATING, PAUSE, TERMINATE
from orchestrator.engine.letters_act import Action, Wish
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.ports import ActivityCall, Query, Where
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld

UNDO = {"type": "activity", "activity": "work", "retry": retry(1)}


class Gated:
    """An activity that waits, for tasks named, until its gate is opened."""

    def __init__(self, *held: str) -> None:
        self.held = set(held)
        self.broken: set[str] = set()
        self.gate = asyncio.Event()
        self.calls: list[ActivityCall] = []

    async def __call__(self, call: ActivityCall) -> Any:
        self.calls.append(call)
        if call.task in self.held:
            await self.gate.wait()
        if call.task in self.broken:
            raise ValueError("broken")
        return {"by": call.task}

    @property
    def ran(self) -> list[str]:
        return [call.task for call in self.calls]


def saga(**more: Any) -> dict[str, Any]:
    return flow(
        a=task("work", compensate=UNDO),
        b=task("work", "a", retry=retry(2, "1h"), compensate=UNDO),
        c=task("work", "b"),
        tidy=task("work", "c", runWhen="allDone"),
        **more,
    )


async def do(world: World, execution: str, action: Any, reason: str = "") -> Any:
    return await control.act(world.engine, TENANT, execution, action, by="eve", reason=reason)


async def running(make: MakeWorld, work: Gated) -> tuple[World, str, asyncio.Task[None]]:
    """The saga with `b` in the hands of a worker."""
    world = await make(work=work)
    await world.publish(saga())
    started = await world.start("flow")
    while "b" not in work.ran:
        due = world.transport.take(world.clock.now())
        last = asyncio.create_task(world.deliver(due))
        await quiesce()
    return world, started.id, last


async def hold_undo(make: MakeWorld, work: Gated) -> tuple[World, str, asyncio.Task[None]]:
    """The saga, failed, with a compensation in the hands of a worker."""
    work.broken.add("c")
    world = await make(work=work)
    await world.publish(saga())
    started = await world.start("flow")
    while "b~undo" not in work.ran:
        due = world.transport.take(world.clock.now())
        if not due:
            await world.clock.advance(60_000)
        last = asyncio.create_task(world.deliver(due))
        await quiesce()
    return world, started.id, last


async def test_cancel_with_compensation_waits_for_a_running_task_and_undoes_it(
    make: MakeWorld,
) -> None:
    work = Gated("b")
    world, execution, worker = await running(make, work)
    view = await do(world, execution, CANCEL_COMPENSATING, "withdrew")
    assert view.status == "COMPENSATING"
    assert view.compensation.model_dump() == {
        "status": "running",
        "tasks": 1,
        "done": 0,
        "failed": [],
        "left": ["a~undo"],
    }
    await world.settle()  # the running one is called again: it is leased
    await world.clock.advance(world.tunables.lease_ms)
    assert not work.calls[-1].cancelled
    work.gate.set()
    await worker
    await world.settle()
    view = await world.view(execution)
    assert (view.status, view.error, view.terminated) == ("CANCELLED", None, False)
    assert view.compensation is not None
    assert (view.compensation.status, view.compensation.done) == ("complete", 2)
    assert work.ran == ["a", "b", "b~undo", "a~undo"]
    assert await world.statuses(execution) == {
        "a": "COMPLETED",
        "b": "COMPLETED",
        "c": "CANCELLED",
        "tidy": "CANCELLED",
        "a~undo": "COMPLETED",
        "b~undo": "COMPLETED",
    }
    await world.verified(execution)


async def test_cancel_with_compensation_gives_a_task_that_waits_for_its_retry_back_at_once(
    make: MakeWorld,
) -> None:
    work = Gated()
    work.broken.add("b")
    world = await make(work=work)
    await world.publish(saga())
    started = await world.start("flow")
    await world.settle()
    assert (await world.statuses(started.id))["b"] == "RETRYING"
    await do(world, started.id, CANCEL_COMPENSATING)
    await world.settle()
    assert (await world.view(started.id)).status == "CANCELLED"
    assert work.ran == ["a", "b", "a~undo"]
    await world.verified(started.id)
    await world.clock.advance(10 * 3_600_000)
    report = await world.sweep()
    assert (report.tasks, report.executions) == (0, 0)


async def test_the_call_of_a_cancelled_task_that_was_lost_is_repaired(make: MakeWorld) -> None:
    work = Gated()
    work.broken.add("b")
    world = await make(work=work)
    await world.publish(saga())
    started = await world.start("flow")
    await world.settle()
    await do(world, started.id, CANCEL_COMPENSATING)
    world.transport.take(world.clock.now())
    await world.clock.advance(2 * 3_600_000)
    await world.sweep()
    assert (await world.view(started.id)).status == "CANCELLED"
    assert work.ran == ["a", "b", "a~undo"]


async def test_a_paused_execution_is_cancelled_with_compensation(make: MakeWorld) -> None:
    work = Gated("b")
    world, execution, worker = await running(make, work)
    await do(world, execution, PAUSE)
    await do(world, execution, CANCEL_COMPENSATING)
    work.gate.set()
    await worker
    await world.settle()
    assert (await world.view(execution)).status == "CANCELLED"
    assert work.ran == ["a", "b", "b~undo", "a~undo"]


async def test_cancelling_twice_is_the_same_as_once(make: MakeWorld) -> None:
    work = Gated("b")
    world, execution, worker = await running(make, work)
    for action in (CANCEL_COMPENSATING, CANCEL_COMPENSATING, CANCEL):
        assert (await do(world, execution, action)).status == "COMPENSATING"
    work.gate.set()
    await worker
    await world.settle()
    for action in (CANCEL_COMPENSATING, CANCEL, TERMINATE):
        assert (await do(world, execution, action)).status == "CANCELLED"
    kinds = [event.type for event in (await _history(world, execution))]
    assert kinds.count("compensationStarted") == kinds.count("executionCancelled") == 1


async def test_cancel_without_compensation_says_what_it_left_and_cannot_be_made_good(
    make: MakeWorld,
) -> None:
    work = Gated("b")
    world, execution, worker = await running(make, work)
    view = await do(world, execution, CANCEL)
    assert view.status == "CANCELLED"
    assert view.compensation.model_dump() == {
        "status": "notRun",
        "tasks": 1,
        "done": 0,
        "failed": [],
        "left": ["a~undo"],
    }
    with pytest.raises(ConflictError) as caught:
        await do(world, execution, CANCEL_COMPENSATING)
    assert caught.value.code == "CANNOT_CANCEL"
    work.gate.set()
    await worker
    await world.settle()
    assert work.ran == ["a", "b"]


async def test_cancel_with_compensation_of_what_has_not_begun_ends_it(make: MakeWorld) -> None:
    world = await make(work=Gated())
    await world.publish(saga())
    started = await world.start("flow")
    for _ in range(2):
        view = await do(world, started.id, CANCEL_COMPENSATING)
        assert (view.status, view.compensation) == ("CANCELLED", None)
    await world.settle()
    assert world.activities.calls == []


async def test_a_dead_compensation_of_a_cancelled_execution_is_retried_and_ends_cancelled(
    make: MakeWorld,
) -> None:
    work = Gated("b")
    work.broken.add("a~undo")
    world, execution, worker = await running(make, work)
    await do(world, execution, CANCEL_COMPENSATING)
    work.gate.set()
    await worker
    await world.settle()
    view = await world.view(execution)
    assert view.compensation is not None
    assert (view.status, view.compensation.status) == ("CANCELLED", "incomplete")
    work.broken.clear()
    await _retry(world, execution, "a~undo")
    assert (await world.view(execution)).status == "COMPENSATING"
    await world.settle()
    view = await world.view(execution)
    assert view.compensation is not None
    assert (view.status, view.compensation.status) == ("CANCELLED", "complete")
    await world.verified(execution)


async def test_both_are_audited_with_their_reason(make: MakeWorld) -> None:
    work = Gated("b")
    world, execution, worker = await running(make, work)
    await do(world, execution, CANCEL_COMPENSATING, "withdrew")
    await do(world, execution, TERMINATE, "no time")
    rows = await world.sqlite.query(
        AUDIT, Query(partition=(TENANT,), where=(Where("execution", "=", execution),))
    )
    told = {(row.body["action"], row.body["by"], row.body["reason"]) for row in rows}
    assert told == {("cancel", "eve", "withdrew"), ("terminate", "eve", "no time")}
    work.gate.set()
    await worker


# --- terminate ------------------------------------------------------------------------------------


async def test_terminate_while_compensating_stops_it_and_says_what_was_left(
    make: MakeWorld,
) -> None:
    work = Gated("b~undo")
    world, execution, worker = await hold_undo(make, work)
    view = await do(world, execution, TERMINATE, "enough")
    assert (view.status, view.terminated) == ("CANCELLED", True)
    assert view.compensation.model_dump() == {
        "status": "incomplete",
        "tasks": 2,
        "done": 0,
        "failed": [],
        "left": ["b~undo", "a~undo"],
    }
    await world.clock.advance(world.tunables.lease_ms)
    assert work.calls[-1].cancelled  # told by its heartbeat
    work.gate.set()
    await worker
    await world.settle()
    assert "a~undo" not in work.ran
    assert (await world.view(execution)).compensation == view.compensation
    assert (await _history(world, execution))[-1].model_dump()["terminated"] is True
    await world.verified(execution)
    assert (await world.sweep()).tasks == 0


@pytest.mark.parametrize("terminate_first", [True, False])
async def test_terminate_and_a_result_in_both_orders(
    make: MakeWorld, terminate_first: bool
) -> None:
    work = Gated("b~undo")
    world, execution, worker = await hold_undo(make, work)
    work.gate.set()
    await worker  # its result waits in the orchestration queue
    if not terminate_first:
        await world.deliver(world.transport.take(world.clock.now()))
    await do(world, execution, TERMINATE)
    await world.settle()
    view = await world.view(execution)
    assert view.compensation is not None
    assert view.status == "CANCELLED"
    assert view.compensation.done == (0 if terminate_first else 1)
    assert "a~undo" not in work.ran
    await world.verified(execution)


async def test_terminate_that_races_with_another_process_has_one_history(make: MakeWorld) -> None:
    work = Gated("b~undo")
    world, execution, worker = await hold_undo(make, work)
    work.gate.set()
    await worker
    other = world.another("other")
    await asyncio.gather(
        control.act(world.engine, TENANT, execution, TERMINATE, by="eve"),
        control.act(other, TENANT, execution, TERMINATE, by="bob"),
        world.deliver(world.transport.take(world.clock.now()), other),
    )
    await world.settle()
    kinds = [event.type for event in await _history(world, execution)]
    assert kinds.count("executionCancelled") == 1
    assert (await world.view(execution)).status == "CANCELLED"
    await world.verified(execution)


@pytest.mark.parametrize("paused", [True, False])
async def test_terminate_a_running_or_paused_execution_undoes_nothing(
    make: MakeWorld, paused: bool
) -> None:
    work = Gated("b")
    world, execution, worker = await running(make, work)
    if paused:
        await do(world, execution, PAUSE)
    view = await do(world, execution, TERMINATE)
    assert (view.status, view.compensation.status) == ("CANCELLED", "notRun")
    work.gate.set()
    await worker
    await world.settle()
    assert work.ran == ["a", "b"]


async def test_terminate_what_has_not_begun_and_what_has_ended(make: MakeWorld) -> None:
    work = Gated()
    world = await make(work=work)
    await world.publish(saga())
    waiting = await world.start("flow")
    assert (await do(world, waiting.id, TERMINATE)).status == "CANCELLED"
    assert (await do(world, waiting.id, TERMINATE)).status == "CANCELLED"
    started = await world.start("flow")
    await world.settle()
    with pytest.raises(ConflictError) as caught:
        await do(world, started.id, TERMINATE)
    assert caught.value.code == "CANNOT_TERMINATE"
    assert work.ran == ["a", "b", "c", "tidy"]


async def test_a_dead_compensation_of_a_terminated_execution_can_only_be_discarded(
    make: MakeWorld,
) -> None:
    work = Gated("a~undo")
    work.broken |= {"b~undo"}
    world, execution, worker = await hold_undo(make, work)
    await worker
    while "a~undo" not in work.ran:
        worker = asyncio.create_task(world.deliver(world.transport.take(world.clock.now())))
        await quiesce()
    await do(world, execution, TERMINATE)
    with pytest.raises(ConflictError) as caught:
        await _retry(world, execution, "b~undo")
    assert caught.value.code == "EXECUTION_ENDED"
    work.gate.set()
    await worker
    await world.settle()
    doc = await world.sqlite.read(EXECUTIONS, (TENANT, execution), execution)
    assert doc.body["state"]["tasks"] == "CCDCXD"
    assert "sweepAt" not in doc.body


async def _retry(world: World, execution: str, name: str) -> None:
    found, _ = await letters_list.page(
        world.engine, TENANT, LetterFilter(task=name, execution=execution), limit=9, after=None
    )
    wish = Wish(action=Action.RETRY, by="eve")
    await letters_act.act(world.engine, TENANT, found[0].id, wish)


async def _history(world: World, execution: str) -> Any:
    events, _ = await inspect.history(world.engine, TENANT, execution, limit=500, after=None)
    return events
