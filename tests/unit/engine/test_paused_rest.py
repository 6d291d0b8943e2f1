"""What is overdue in a paused execution is left alone by the sweeper, and found by resuming."""

from __future__ import annotations

import asyncio

from orchestrator.domain.topology import EXECUTIONS, ORCHESTRATION_QUEUE, TASKS_STANDARD_QUEUE
from orchestrator.engine import control
from orchestrator.engine.core import Tunables
from orchestrator.engine.leases import LeaseKeeper
from orchestrator.ports import ActivityCall
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld


async def act(world: World, id: str, action: control.Action) -> None:
    await control.act(world.engine, TENANT, id, action, by="eve")


async def hours_of_sweeping(world: World) -> int:
    """Messages that an hour of sweeps sent."""
    before = len(world.transport.sent)
    for _ in range(4 * 60):
        await world.clock.advance(15_000)
        await world.sweep()
    return len(world.transport.sent) - before


def repairs(world: World) -> list[str]:
    return [name for name, by in world.engine.metrics.counters.items() if "repairs" in name and by]


async def test_a_retry_of_a_paused_execution_is_not_sent_once_a_minute(make: MakeWorld) -> None:
    world = await make(fails=lambda call: 1 // (call.attempt - 1))
    await world.publish(flow(a=task("fails", retry=retry(2, "1m"))))
    id = (await world.start("flow")).id
    await world.settle()
    await act(world, id, control.PAUSE)
    await world.run_until_quiet()  # its message comes, and is dropped
    assert await hours_of_sweeping(world) == 0
    assert repairs(world) == []
    await act(world, id, control.RESUME)
    await world.settle()
    assert (await world.view(id)).status.value == "COMPLETED"


async def test_a_worker_that_died_before_the_pause_is_taken_over_after_it(make: MakeWorld) -> None:
    async def hangs(call: ActivityCall) -> int:
        if call.attempt == 1:
            await asyncio.Event().wait()
        return call.attempt

    world = await make(hangs=hangs)
    await world.publish(flow(a=task("hangs", retry=retry(2)), output="${tasks.a.output}"))
    id = (await world.start("flow")).id
    await world.deliver(world.transport.take(world.clock.now(), ORCHESTRATION_QUEUE))
    dead = world.another("worker-2")
    running = asyncio.create_task(
        world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE), dead)
    )
    await quiesce()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await dead.part(LeaseKeeper).close()
    await act(world, id, control.PAUSE)
    assert await hours_of_sweeping(world) == 1, "it is looked at once"
    await act(world, id, control.RESUME)
    await world.settle()
    assert (await world.view(id)).output == 2


async def test_a_message_that_resuming_sent_and_that_was_lost_is_found(make: MakeWorld) -> None:
    """Without a `sweepAt` of its own the task is the execution's to look after."""
    world = await make(fails=lambda call: 1 // (call.attempt - 1))
    await world.publish(flow(a=task("fails", retry=retry(2, "1m"))))
    id = (await world.start("flow")).id
    await world.settle()
    await act(world, id, control.PAUSE)
    await world.run_until_quiet()
    await act(world, id, control.RESUME)
    world.transport.messages.clear()
    await world.clock.advance(world.tunables.silence_ms)
    await world.sweep()
    assert (await world.view(id)).status.value == "COMPLETED"
    assert repairs(world) == ["weft_repairs_total{task}"]


async def test_many_paused_retries_do_not_keep_others_out_of_a_pass(make: MakeWorld) -> None:
    """A pass has a limit, and takes the oldest first."""
    world = await make(fails=lambda call: 1 // (call.attempt - 1), tunables=Tunables(sweep_page=1))
    many = {"type": "map", "items": list(range(60)), "do": task("fails", retry=retry(2, "1m"))}
    await world.publish(flow(m=many))
    await world.publish(flow("other", a=task("fails", retry=retry(2, "5m"))))
    id = (await world.start("flow")).id
    await world.settle()
    await act(world, id, control.PAUSE)
    other = (await world.start("other")).id
    await world.settle()
    await world.clock.advance(61_000)
    await world.settle()
    await world.clock.advance(240_000)
    world.transport.messages.clear()  # the retry of the other one is lost
    await world.clock.advance(world.tunables.retry_grace_ms)
    await world.sweep()
    assert (await world.view(other)).status.value == "COMPLETED"
    doc = await world.sqlite.read(EXECUTIONS, (TENANT, id), "task:m:0")
    assert "sweepAt" not in doc.body


async def test_what_rests_is_cancelled_with_its_execution(make: MakeWorld) -> None:
    world = await make(fails=lambda call: 1 // (call.attempt - 1))
    await world.publish(flow(a=task("fails", retry=retry(2, "1m"))))
    id = (await world.start("flow")).id
    await world.settle()
    await act(world, id, control.PAUSE)
    await world.run_until_quiet()
    await act(world, id, control.CANCEL)
    await world.settle()
    assert await world.statuses(id) == {"a": "CANCELLED"}
    assert await hours_of_sweeping(world) == 0
