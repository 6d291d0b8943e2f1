"""Cases from the field about control (CASES.md, section Control), proven on the real engine."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

import pytest

from orchestrator.domain.errors import ConflictError, NotFoundError
from orchestrator.domain.topology import AUDIT, ORCHESTRATION_QUEUE, TASKS_STANDARD_QUEUE
from orchestrator.engine import control, inspect
from orchestrator.engine.control import CANCEL, PAUSE, RESUME
from orchestrator.ports import ActivityCall, Query, Where
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld


async def _act(world: World, execution: str, action: Any, reason: str = "") -> str:
    view = await control.act(world.engine, TENANT, execution, action, by="eve", reason=reason)
    return view.status.value


async def _at_result(world: World, name: str = "flow") -> tuple[str, list[Any]]:
    """An execution whose first task's result waits in the orchestration queue."""
    started = await world.start(name)
    await world.deliver(world.transport.take(world.clock.now()))
    await world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE))
    return started.id, world.transport.take(world.clock.now(), ORCHESTRATION_QUEUE)


@pytest.mark.parametrize("pause_first", [True, False])
async def test_pause_and_task_finished_in_both_orders_record_the_result_and_run_nothing(
    make: MakeWorld, pause_first: bool
) -> None:
    """temporalio/temporal#10239: the status flips back to running, and resume is refused."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop"), b=task("noop", "a")))
    execution, result = await _at_result(world)
    if pause_first:
        assert await _act(world, execution, PAUSE) == "PAUSED"
        await world.deliver(result)
    else:
        await world.deliver(result)
        assert await _act(world, execution, PAUSE) == "PAUSED"
    await world.settle()
    assert (await world.view(execution)).status == "PAUSED"
    expected = {"a": "COMPLETED", "b": "PENDING" if pause_first else "QUEUED"}
    assert await world.statuses(execution) == expected
    assert len(world.activities.calls) == 1
    for action, status in ((PAUSE, "PAUSED"), (RESUME, "RUNNING"), (RESUME, "RUNNING")):
        assert await _act(world, execution, action) == status
    await world.settle()
    assert (await world.view(execution)).status == "COMPLETED"
    assert [call.task for call in world.activities.calls] == ["a", "b"]
    await world.verified(execution)


async def test_resume_sends_again_what_workers_dropped_and_fires_waits_that_are_over(
    make: MakeWorld,
) -> None:
    failures = iter([True, False])

    def flaky(call: ActivityCall) -> None:
        if next(failures):
            raise ConnectionError("once")

    world = await make(flaky=flaky, noop=lambda call: None)
    await world.publish(
        flow(
            a=task("flaky", retry=retry(2, "1m")),
            w={"type": "wait", "duration": "2m"},
            z=task("noop", "a", "w"),
        )
    )
    started = await world.start("flow")
    await world.settle()
    await _act(world, started.id, PAUSE, "deploy")
    await world.run_until_quiet()  # the retry and the timer come, and are dropped
    await world.clock.advance(600_000)
    await world.sweep()
    assert await world.statuses(started.id) == {"a": "RETRYING", "w": "WAITING", "z": "PENDING"}
    await _act(world, started.id, RESUME)
    await world.settle()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert [call.attempt for call in world.activities.calls] == [1, 2, 1]
    await world.verified(started.id)


async def test_an_execution_paused_before_it_began_begins_when_resumed(make: MakeWorld) -> None:
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    assert await _act(world, started.id, PAUSE) == "PAUSED"
    await world.settle()
    assert world.activities.calls == []
    assert await _act(world, started.id, RESUME) == "RUNNING"
    await world.settle()
    assert (await world.view(started.id)).status == "COMPLETED"


async def test_the_deadline_counts_and_ends_a_paused_execution(make: MakeWorld) -> None:
    world = await make(noop=lambda call: None)
    await world.publish(flow(timeout="10m", a=task("noop"), b=task("noop", "a")))
    execution, result = await _at_result(world)
    await _act(world, execution, PAUSE)
    await world.deliver(result)
    await world.clock.advance(600_000 + world.tunables.retry_grace_ms)
    await world.sweep()
    view = await world.view(execution)
    assert view.status == "FAILED"
    assert view.error is not None
    assert view.error.type == "EXECUTION_TIMEOUT"
    await world.verified(execution)


@pytest.mark.parametrize("when", ["pending", "queued", "running", "retrying", "paused"])
async def test_cancel_ends_it_whatever_it_does_and_late_results_do_not_count(
    make: MakeWorld, when: str
) -> None:
    """activepieces/activepieces#14372: cancel does nothing while the run hangs."""
    gate = asyncio.Event()

    async def work(call: ActivityCall) -> None:
        if when == "retrying":
            raise ConnectionError("again")
        if when == "running":
            await gate.wait()

    world = await make(work=work)
    await world.publish(flow(a=task("work", retry=retry(5, "1m")), b=task("work", "a")))
    started = await world.start("flow")
    running = None
    if when != "pending":
        await world.deliver(world.transport.take(world.clock.now()))
    if when in ("running", "retrying"):
        due = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
        running = asyncio.create_task(world.deliver(due))
        await quiesce()
    if when == "paused":
        await _act(world, started.id, PAUSE)
    assert await _act(world, started.id, CANCEL, "wrong input") == "CANCELLED"
    if when == "running":
        await world.clock.advance(world.tunables.lease_ms)
        assert world.activities.calls[0].cancelled  # told by its heartbeat
    gate.set()
    if running:
        await running
    await world.run_until_quiet()
    calls = len(world.activities.calls)
    assert calls == (1 if when in ("running", "retrying") else 0)
    assert await world.statuses(started.id) == {"a": "CANCELLED", "b": "CANCELLED"}
    assert await _act(world, started.id, CANCEL) == "CANCELLED"
    await world.verified(started.id)
    await world.clock.advance(3_600_000)
    await world.sweep()  # closes what was left open…
    await world.clock.advance(3_600_000)
    assert (await world.sweep()).tasks == 0  # …so that nobody looks after it for ever
    assert await world.statuses(started.id) == {"a": "CANCELLED", "b": "CANCELLED"}


async def test_actions_that_make_no_sense_are_refused_with_the_state(make: MakeWorld) -> None:
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    await world.settle()
    for action in (PAUSE, RESUME, CANCEL):
        with pytest.raises(ConflictError, match="COMPLETED") as refusal:
            await _act(world, started.id, action)
        assert refusal.value.code == f"CANNOT_{action.name.upper()}"
    with pytest.raises(NotFoundError):
        await _act(world, "nope", PAUSE)


async def test_every_action_is_in_history_and_audit_with_person_and_reason(
    make: MakeWorld,
) -> None:
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    for action in (PAUSE, PAUSE, RESUME, CANCEL):
        await _act(world, started.id, action, "because")
    events, _ = await inspect.history(world.engine, TENANT, started.id, limit=100, after=None)
    told = [
        (event.type, event.model_extra["by"], event.model_extra["reason"])
        for event in events
        if event.model_extra and "by" in event.model_extra
    ]
    assert told == [
        ("executionPaused", "eve", "because"),
        ("executionResumed", "eve", "because"),
        ("executionCancelled", "eve", "because"),
    ]
    found = await world.sqlite.query(
        AUDIT, Query(partition=(TENANT,), where=(Where("type", "=", "audit"),))
    )
    assert [doc.body["action"] for doc in found] == ["pause", "resume", "cancel"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_pause_cancel_and_result_at_once_end_in_one_history(
    make: MakeWorld, order: tuple[int, ...]
) -> None:
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop"), b=task("noop", "a")))
    execution, result = await _at_result(world)

    async def quietly(action: Any) -> None:
        with contextlib.suppress(ConflictError):
            await _act(world, execution, action)

    racers = [
        lambda: quietly(PAUSE),
        lambda: quietly(CANCEL),
        lambda: world.deliver(result, world.another("other")),
    ]
    await asyncio.gather(*(racers[at]() for at in order))
    await world.settle()
    assert (await world.view(execution)).status == "CANCELLED"
    await world.verified(execution)
