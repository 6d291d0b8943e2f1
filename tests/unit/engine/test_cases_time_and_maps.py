"""Cases from the field about waiting for long and mapping over nothing, on the real engine; the
pure core has its own in tests/unit/core."""

from __future__ import annotations

from orchestrator.engine import inspect, sweep
from orchestrator.ports import ActivityCall
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT
from tests.unit.engine.conftest import MakeWorld

SECOND = 1_000
DAY = 24 * 3600 * SECOND


async def test_mapping_over_an_empty_list_sends_no_message_and_what_is_behind_it_runs(
    make: MakeWorld,
) -> None:
    """apache/airflow#25200, #33078; flyteorg/flyte#2184: hangs, fails or skips all behind it."""
    world = await make(noop=lambda call: "ran")
    do = task("noop")
    await world.publish(
        flow(
            first={"type": "map", "items": "${input}", "do": do},
            second={"type": "map", "needs": ["first"], "items": "${tasks.first.output}", "do": do},
            plain=task("noop", "second"),
            output="${[tasks.first.output, tasks.second.output, tasks.plain.output]}",
        )
    )
    for _ in range(2):
        started = await world.start("flow", [])
        await world.settle()
        view = await world.view(started.id)
        assert (view.status, view.output) == ("COMPLETED", [[], [], "ran"])
        await world.verified(started.id)
    assert [call.task for call in world.activities.calls] == ["plain", "plain"]
    kinds = [message.properties["type"] for message in world.transport.sent]
    assert kinds.count("runTask") == 2


async def test_a_wait_of_400_days_fires_within_one_sweep_of_its_time_after_a_restart(
    make: MakeWorld,
) -> None:
    """Azure/azure-functions-durable-extension#14: beyond the transport's 6-7 days, so there is no
    message; state says when, and the process that sweeps then is not the one that stored it."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(w={"type": "wait", "duration": "400d"}, z=task("noop", "w")))
    started = await world.start("flow")
    await world.settle()
    assert world.transport.messages == []
    due = world.clock.now() + 400 * DAY
    later = world.another("after-the-restart")
    while world.clock.now() < due:
        assert (await world.view(started.id)).status == "RUNNING"
        report = await sweep.sweep(later)
        assert report.executions == 0  # nothing is looked at before its time
        await world.clock.advance(min(10 * DAY, due - world.clock.now()))
    await world.clock.advance(world.tunables.retry_grace_ms)
    assert (await sweep.sweep(later)).executions == 1
    await world.settle(later)
    assert (await world.view(started.id)).status == "COMPLETED"
    await world.verified(started.id)


async def test_a_retry_delay_beyond_the_transports_limit_is_kept_in_state(make: MakeWorld) -> None:
    """Azure/azure-functions-durable-extension#1910: such a message is refused or dropped."""

    def once(call: ActivityCall) -> int:
        if call.attempt == 1:
            raise ConnectionError("not now")
        return call.attempt

    world = await make(once=once)
    policy = retry(2, "10d", maxInterval="10d")
    await world.publish(flow(a=task("once", retry=policy), output="${tasks.a.output}"))
    started = await world.start("flow")
    await world.settle()
    assert world.transport.messages == []
    detail = await inspect.task(world.engine, TENANT, started.id, "a")
    assert detail.status == "RETRYING"
    assert detail.next_attempt_at == world.clock.now() + 10 * DAY
    for _ in range(10):
        assert (await world.sweep()).tasks == 0
        assert len(world.activities.calls) == 1
        await world.clock.advance(DAY)
    assert (await world.sweep()).tasks == 1
    assert (await world.view(started.id)).output == 2


async def test_a_wait_whose_message_is_lost_fires_within_one_sweep_of_its_time(
    make: MakeWorld,
) -> None:
    """hoangsnowy/FlowOrchestrator#186, for waits: the broker lost the scheduled message."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(w={"type": "wait", "duration": "1h"}, z=task("noop", "w")))
    started = await world.start("flow")
    await world.settle()
    [lost] = world.transport.take(world.clock.now() + DAY)
    assert lost.due_at == world.clock.now() + 3600 * SECOND
    await world.clock.advance(3600 * SECOND + world.tunables.retry_grace_ms - 1)
    assert (await world.sweep()).executions == 0
    await world.clock.advance(1)
    assert (await world.sweep()).executions == 1
    assert (await world.view(started.id)).status == "COMPLETED"


async def test_an_execution_that_is_over_its_deadline_ends_without_any_message(
    make: MakeWorld,
) -> None:
    """The message of the deadline is lost too, and a worker holds the task for ever."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop"), timeout="10m"))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    world.transport.messages.clear()
    await world.clock.advance(600 * SECOND + world.tunables.retry_grace_ms)
    await sweep.sweep(world.engine)
    await world.deliver(world.transport.take(world.clock.now()))
    view = await world.view(started.id)
    assert view.status == "FAILED"
    assert view.error is not None
    assert view.error.type == "EXECUTION_TIMEOUT"
    assert await world.statuses(started.id) == {"a": "CANCELLED"}


async def test_a_timer_that_is_called_three_times_in_a_second_does_nothing_extra(
    make: MakeWorld,
) -> None:
    """Azure/azure-webjobs-sdk-extensions#194: timers come late, twice or not at all."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    world.transport.messages.clear()  # the task's message is lost
    await world.clock.advance(world.tunables.silence_ms)
    reports = [await sweep.sweep(world.engine) for _ in range(3)]
    assert [report.executions for report in reports] == [1, 0, 0]
    await world.settle()
    assert len(world.activities.calls) == 1
