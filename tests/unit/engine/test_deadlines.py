"""`deadline`: from dispatch to end, over all attempts, whatever the worker does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.domain.topology import (
    EXECUTIONS,
    MAX_SCHEDULE_AHEAD_MS,
    ORCHESTRATION_QUEUE,
    TASKS_STANDARD_QUEUE,
)
from orchestrator.engine import control, inspect, letters_act, letters_list
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.ports import ActivityCall
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld

LATE = "DEADLINE_EXCEEDED"


class Gate:
    """An activity whose attempts wait until they are let go; `calls` are those that began."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.calls: list[ActivityCall] = []

    async def __call__(self, call: ActivityCall) -> str:
        self.calls.append(call)
        await self.open.wait()
        return f"attempt {call.attempt}"


async def document(world: World, execution: str, id: str) -> dict[str, Any]:
    found = await world.sqlite.read(EXECUTIONS, (TENANT, execution), id)
    return found.body


async def letter(world: World) -> Any:
    (found,), _ = await letters_list.page(
        world.engine, TENANT, LetterFilter(), limit=10, after=None
    )
    return await letters_list.show(world.engine, TENANT, found.id)


async def operate(world: World, id: str, action: Action, **more: Any) -> None:
    await letters_act.act(world.engine, TENANT, id, Wish(action=action, by="eve", **more))
    await world.settle()


async def begin(world: World) -> asyncio.Task[None]:
    """Deliver what is due up to the attempts, and leave those running."""
    await world.deliver(world.transport.take(world.clock.now(), ORCHESTRATION_QUEUE))
    running = asyncio.create_task(
        world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE))
    )
    await quiesce()
    return running


async def test_a_running_attempt_is_ended_at_the_deadline_and_its_late_result_dropped(
    make: MakeWorld,
) -> None:
    gate = Gate()
    world = await make(work=gate)
    await world.publish(flow(a=task("work", input={"n": 1}, timeout="10m", deadline="1m")))
    started = await world.start("flow")
    running = await begin(world)
    assert gate.calls[0].timeout_ms == 60_000  # the attempt has no more than that
    await world.clock.advance(59_999)
    await world.settle()
    detail = await inspect.task(world.engine, TENANT, started.id, "a")
    assert detail.status == "RUNNING"
    assert detail.deadline_at == world.clock.now() + 1
    await world.clock.advance(1)
    await world.settle()
    view = await world.view(started.id)
    assert (view.status, view.error and view.error.type) == ("FAILED", LATE)
    doc = await document(world, started.id, "task:a")
    assert (doc["status"], doc["failure"]["type"]) == ("DEAD_LETTERED", LATE)
    assert not {"lease", "sweepAt"} & doc.keys()
    assert doc["attempts"][0]["error"]["type"] == LATE
    assert doc["attempts"][0]["endedAt"] == world.clock.now()
    await world.clock.advance(world.tunables.lease_ms // 3)
    assert gate.calls[0].cancelled  # its next renewal told it
    gate.open.set()
    await running
    await world.settle()
    assert await document(world, started.id, "task:a") == doc
    assert world.engine.metrics.value("weft_late_results_total") == 1
    found = await letter(world)
    assert found.error is not None
    assert found.error.type == LATE
    assert (found.attempt, found.input, len(found.attempts)) == (1, {"n": 1}, 1)
    await world.verified(started.id)


async def test_a_retry_that_would_come_after_the_deadline_is_not_waited_for(
    make: MakeWorld,
) -> None:
    def boom(call: ActivityCall) -> None:
        raise ConnectionError("no answer")

    world = await make(boom=boom)
    await world.publish(flow(a=task("boom", retry=retry(9, "20s"), deadline="30s")))
    started = await world.start("flow")
    began = world.clock.now()
    await world.run_until_quiet()
    detail = await inspect.task(world.engine, TENANT, started.id, "a")
    assert [one.error and one.error.type for one in detail.attempts] == ["ConnectionError"] * 2
    assert detail.error is not None
    assert (detail.error.type, detail.error.causes[0].type) == (LATE, "ConnectionError")
    assert detail.ended_at == began + 20_000  # at once, not at the deadline
    assert (await letter(world)).attempt == 2
    await world.verified(started.id)


async def test_the_deadline_passes_while_a_retry_waits(make: MakeWorld) -> None:
    """The retry's own message comes too late: another execution's load, a slow broker."""

    def boom(call: ActivityCall) -> None:
        raise ConnectionError("no answer")

    world = await make(boom=boom)
    await world.publish(flow(a=task("boom", retry=retry(9, "20s"), deadline="30s")))
    started = await world.start("flow")
    await world.settle()
    await world.clock.advance(20_000)
    held = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    await world.clock.advance(10_000)
    await world.settle()
    view = await world.view(started.id)
    assert view.error is not None
    assert (view.error.type, view.error.causes[0].type) == (LATE, "ConnectionError")
    await world.deliver(held)
    assert len(world.activities.calls) == 1
    assert (await letter(world)).attempt == 1
    await world.verified(started.id)


async def test_a_task_queued_behind_a_backlog_fails_at_its_deadline_unrun(
    make: MakeWorld,
) -> None:
    world = await make(work=lambda call: 1)
    await world.publish(
        flow(
            on_failure="continue",
            a=task("work", deadline="1m"),
            b=task("work", "a", runWhen="anyFailed"),
        )
    )
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    backlog = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    await world.clock.advance(60_000)
    await world.settle()
    assert await world.statuses(started.id) == {"a": "DEAD_LETTERED", "b": "COMPLETED"}
    await world.deliver(backlog)
    assert [call.task for call in world.activities.calls] == ["b"]
    found = await letter(world)
    assert (found.attempt, found.reason) == (0, "notRun")
    await operate(world, found.id, Action.RETRY)
    await world.run_until_quiet()
    assert (await world.statuses(started.id))["a"] == "COMPLETED"
    await world.verified(started.id)


async def test_a_worker_does_not_begin_what_is_past_its_deadline(make: MakeWorld) -> None:
    world = await make(work=lambda call: 1)
    await world.publish(flow(a=task("work", deadline="1m")))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    await world.clock.advance(60_000)
    await world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE))
    assert world.activities.calls == []
    await world.settle()
    assert (await world.view(started.id)).status == "FAILED"


@pytest.mark.parametrize("deadline", ["1m", "8d"])
async def test_a_deadline_whose_timer_was_lost_or_never_sent_is_found_by_the_sweeper(
    make: MakeWorld, deadline: str
) -> None:
    world = await make(work=lambda call: 1)
    await world.publish(flow(a=task("work", deadline=deadline)))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    late = 60_000 if deadline == "1m" else 8 * 24 * 3_600_000
    timers = [one for one in world.transport.messages if one.due_at]
    assert len(timers) == (1 if late <= MAX_SCHEDULE_AHEAD_MS else 0)
    world.transport.messages.clear()
    await world.clock.advance(late - 1)
    doc = await document(world, started.id, started.id)
    assert doc["sweepAt"] <= world.clock.now() + 1 + world.tunables.retry_grace_ms
    world.transport.messages.clear()
    await world.clock.advance(1 + world.tunables.retry_grace_ms)
    await world.sweep()
    view = await world.view(started.id)
    assert (view.status, view.error and view.error.type) == ("FAILED", LATE)


async def test_a_result_that_is_stored_wins_over_the_deadline(make: MakeWorld) -> None:
    """Its message is in the same batch, or was lost: the document says so in either case."""
    for lost in (False, True):
        world = await make(work=lambda call: "done")
        await world.publish(flow(a=task("work", deadline="1m"), output="${tasks.a.output}"))
        started = await world.start("flow")
        await world.deliver(world.transport.take(world.clock.now()))
        await world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE))
        if lost:
            world.transport.messages = [one for one in world.transport.messages if one.due_at]
        await world.clock.advance(60_000)
        batch = world.transport.take(world.clock.now(), ORCHESTRATION_QUEUE)
        assert len(batch) == (1 if lost else 2)
        await world.deliver(sorted(batch, key=lambda one: one.due_at is None))
        view = await world.view(started.id)
        assert (view.status, view.output) == ("COMPLETED", "done")
        await world.verified(started.id)


@pytest.mark.parametrize("moment", ["read", "batch"])
async def test_a_result_that_is_stored_while_the_deadline_is_decided_wins(
    make: MakeWorld, moment: str
) -> None:
    """The document changes between the decision and its commit: decided again."""
    gate = Gate()
    races: list[asyncio.Task[None]] = []

    class Racing:
        """Lets the attempt end just before the commit reads its document again, or just before
        the batch that would fail its task."""

        def __init__(self, store: Any) -> None:
            self._store = store
            self._looks = 0

        async def read_many(self, container: str, partition: Any, ids: Any) -> Any:
            if list(ids) == ["task:a"] and world.clock.now() >= began + 60_000:
                self._looks += 1
                if moment == "read" and self._looks == 2:
                    gate.open.set()
                    await quiesce(200)
            return await self._store.read_many(container, partition, ids)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def batch(self, container: str, partition: Any, operations: Any) -> Any:
            text = repr(operations)
            if moment == "batch" and "taskFailed" in text and not gate.open.is_set():
                gate.open.set()
                await quiesce(200)
            return await self._store.batch(container, partition, operations)

    world = await make(work=gate, wrap_store=Racing)
    await world.publish(flow(a=task("work", deadline="1m"), output="${tasks.a.output}"))
    started = await world.start("flow")
    began = world.clock.now()
    races.append(await begin(world))
    await world.clock.advance(60_000)
    await world.settle()
    await asyncio.gather(*races)
    await world.settle()
    assert gate.open.is_set()
    view = await world.view(started.id)
    assert (view.status, view.output) == ("COMPLETED", "attempt 1")
    assert world.engine.metrics.value("weft_commit_conflicts_total") == 1
    await world.verified(started.id)


async def test_an_operators_retry_has_a_new_deadline(make: MakeWorld) -> None:
    gate = Gate()
    world = await make(work=gate)
    await world.publish(
        flow(a=task("work", timeout="10m", deadline="1m"), output="${tasks.a.output}")
    )
    started = await world.start("flow")
    first = await begin(world)
    await world.clock.advance(60_000)
    await world.settle()
    found = await letter(world)
    gate.open.set()
    await first
    gate.open.clear()
    await letters_act.act(world.engine, TENANT, found.id, Wish(action=Action.RETRY, by="eve"))
    second = await begin(world)
    doc = await document(world, started.id, started.id)
    assert doc["state"]["deadlines"] == {str(world.clock.now() + 60_000): [0]}
    await world.clock.advance(59_000)
    gate.open.set()
    await second
    await world.settle()
    view = await world.view(started.id)
    assert (view.status, view.output) == ("COMPLETED", "attempt 2")
    await world.verified(started.id)


async def test_a_retry_that_is_never_claimed_fails_again_with_a_letter_of_its_own(
    make: MakeWorld,
) -> None:
    """Attempt 1 has a letter already; the second failure must not overwrite it."""

    def boom(call: ActivityCall) -> None:
        raise ValueError("no")

    world = await make(boom=boom)
    await world.publish(flow(a=task("boom", retry=retry(1), deadline="1m")))
    started = await world.start("flow")
    await world.settle()
    first = await letter(world)
    await letters_act.act(world.engine, TENANT, first.id, Wish(action=Action.RETRY, by="eve"))
    world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)  # lost
    await world.clock.advance(60_000)
    await world.settle()
    found, _ = await letters_list.page(world.engine, TENANT, LetterFilter(), limit=10, after=None)
    assert sorted((one.status, one.attempt) for one in found) == [("OPEN", 1), ("RETRIED", 1)]
    (again,) = [one for one in found if one.status == "OPEN"]
    await operate(world, again.id, Action.SKIP, value="given")
    assert (await world.view(started.id)).status == "COMPLETED"
    await world.verified(started.id)


async def test_a_paused_execution_fails_what_is_overdue_when_it_is_resumed(
    make: MakeWorld,
) -> None:
    gate = Gate()
    world = await make(work=gate)
    await world.publish(
        flow(
            on_failure="continue",
            a=task("work", deadline="1m", timeout="10m"),
            b=task("work", deadline="1m", timeout="10m", input=2),
        )
    )
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now(), ORCHESTRATION_QUEUE))
    [one, held] = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    running = asyncio.create_task(world.deliver([one]))
    await quiesce()
    await control.act(world.engine, TENANT, started.id, control.PAUSE, by="eve")
    await world.clock.advance(61_000)
    await world.settle()
    assert (await world.view(started.id)).status == "PAUSED"
    assert (await world.view(started.id)).progress.dead_lettered == 0
    gate.open.set()  # a result that comes late, but before anybody failed its task, is one
    await running
    await world.settle()
    await control.act(world.engine, TENANT, started.id, control.RESUME, by="eve")
    await world.deliver([held])
    await world.settle()
    assert sorted((await world.statuses(started.id)).values()) == ["COMPLETED", "DEAD_LETTERED"]
    assert (await world.view(started.id)).status == "FAILED"
    await world.verified(started.id)
