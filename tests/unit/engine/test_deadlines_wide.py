"""Deadlines of maps, of waits, and of many tasks at once."""

from __future__ import annotations

from typing import Any

from orchestrator.domain.topology import ORCHESTRATION_QUEUE, TASKS_STANDARD_QUEUE
from orchestrator.engine.letters_wish import Action
from orchestrator.ports import ActivityCall
from tests.support.definitions import flow, retry, task
from tests.unit.engine.conftest import MakeWorld
from tests.unit.engine.test_deadlines import LATE, Gate, begin, document, letter, operate


async def test_the_deadline_of_a_map_ends_it_with_its_items(make: MakeWorld) -> None:
    gate = Gate()
    world = await make(work=gate)
    do = {"type": "activity", "activity": "work", "input": "${item}", "timeout": "10m"}
    await world.publish(
        flow(
            m={
                "type": "map",
                "items": [0, 1, 2, 3],
                "maxConcurrency": 2,
                "deadline": "1m",
                "do": do,
            },
            output="${tasks.m.output}",
        )
    )
    started = await world.start("flow")
    running = await begin(world)
    assert len(gate.calls) == 2
    await world.clock.advance(60_000)
    await world.settle()
    view = await world.view(started.id)
    assert (view.status, view.error and view.error.type) == ("FAILED", LATE)
    state = (await document(world, started.id, started.id))["state"]
    assert state["maps"]["0"] == {"count": 4, "cancelled": 4}
    await world.clock.advance(world.tunables.lease_ms)
    assert all(call.cancelled for call in gate.calls)  # their renewals told them
    gate.open.set()
    await running
    await world.settle()
    await world.verified(started.id)
    found = await letter(world)
    assert (found.kind, found.task) == ("task", "m")
    await operate(world, found.id, Action.RETRY)
    view = await world.view(started.id)
    assert (view.status, view.output) == ("COMPLETED", ["attempt 1"] * 4)
    assert len(gate.calls) == 4  # what had ended after the deadline is not run again
    await world.verified(started.id)


async def test_a_map_with_a_failed_item_fails_with_that_at_its_deadline(
    make: MakeWorld,
) -> None:
    gate = Gate()

    async def work(call: ActivityCall) -> Any:
        if call.input == 0:
            raise ValueError("zero")
        return await gate(call)

    world = await make(work=work)
    do = {"type": "activity", "activity": "work", "input": "${item}", "retry": retry(1)}
    await world.publish(flow(m={"type": "map", "items": [0, 1], "deadline": "1m", "do": do}))
    started = await world.start("flow")
    running = await begin(world)
    await world.deliver(world.transport.take(world.clock.now()))
    assert (await world.statuses(started.id))["m"] == "WAITING"
    await world.clock.advance(60_000)
    await world.settle()
    view = await world.view(started.id)
    assert (view.status, view.error and view.error.type) == ("FAILED", "MAP_ITEM_FAILED")
    gate.open.set()
    await running
    found = await letter(world)  # the item's, and no other
    assert (found.kind, found.item) == ("item", 0)
    await world.verified(started.id)


async def test_more_overdue_tasks_than_one_commit_can_fail(make: MakeWorld) -> None:
    world = await make(work=lambda call: 1)
    await world.publish(
        flow(on_failure="continue", **{f"t{n}": task("work", deadline="1m") for n in range(100)})
    )
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    await world.clock.advance(60_000)
    await world.settle()
    view = await world.view(started.id)
    assert (view.status, view.progress.dead_lettered) == ("FAILED", 100)
    await world.verified(started.id)


async def test_a_wait_with_a_deadline_ends_by_whichever_comes_first(make: MakeWorld) -> None:
    world = await make()
    await world.publish(
        flow(
            on_failure="continue",
            short={"type": "wait", "duration": "10s", "deadline": "1m"},
            long={"type": "wait", "duration": "2m", "deadline": "1m", "continueOnError": True},
        )
    )
    started = await world.start("flow")
    await world.run_until_quiet()
    assert await world.statuses(started.id) == {"short": "COMPLETED", "long": "DEAD_LETTERED"}
    assert (await world.view(started.id)).status == "COMPLETED"
    await world.verified(started.id)


async def test_tasks_past_their_deadline_are_not_sent_again_before_they_fail(
    make: MakeWorld,
) -> None:
    """Their workers would only refuse them: a check after an outage sent one message for each."""
    world = await make(work=lambda call: 1)
    tasks = {f"t{n}": task("work", deadline="1h") for n in range(250)}
    await world.publish(flow(on_failure="continue", **tasks))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now(), ORCHESTRATION_QUEUE))
    world.transport.messages.clear()
    await world.clock.advance(2 * 3600 * 1000)
    await world.sweep()
    assert (await world.view(started.id)).status == "FAILED"
    assert set((await world.statuses(started.id)).values()) == {"DEAD_LETTERED"}
    assert world.engine.metrics.value("weft_claims_refused_total", "pastDeadline") == 0
    await world.verified(started.id)
