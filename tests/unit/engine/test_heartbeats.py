"""`heartbeatTimeout`: an activity that falls silent has failed; one that reports may go on."""

from __future__ import annotations

import asyncio
from typing import Any

from orchestrator.engine import inspect
from orchestrator.engine.execute import handle
from orchestrator.engine.incoming import Incoming
from orchestrator.ports import ActivityCall
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld

LIMITS: dict[str, Any] = {"timeout": "10m", "heartbeatTimeout": "10s"}


async def begin(world: World) -> asyncio.Task[None]:
    """Deliver what is due; the attempt goes on running."""
    await world.deliver(world.transport.take(world.clock.now()))
    (message,) = world.transport.take(world.clock.now())
    incoming = Incoming(
        body=message.body, message_id=message.message_id, properties=message.properties
    )
    running = asyncio.create_task(handle(world.engine, incoming))
    await quiesce()
    return running


async def test_a_silent_attempt_fails_and_the_next_one_succeeds(make: MakeWorld) -> None:
    async def work(call: ActivityCall) -> int:
        if call.attempt == 1:
            await asyncio.Event().wait()
        return call.attempt

    world = await make(work=work)
    await world.publish(flow(a=task("work", retry=retry(2), **LIMITS), output="${tasks.a.output}"))
    started = await world.start("flow")
    running = await begin(world)
    await world.clock.advance(9_999)
    await quiesce()
    assert not running.done()
    await world.clock.advance(1)
    await running
    assert world.activities.calls[0].cancelled
    await world.run_until_quiet()
    view = await world.view(started.id)
    assert (view.status, view.output) == ("COMPLETED", 2)
    detail = await inspect.task(world.engine, TENANT, started.id, "a")
    assert [one.error and one.error.type for one in detail.attempts] == ["HEARTBEAT_TIMEOUT", None]
    assert detail.attempts[0].error is not None
    assert detail.attempts[0].error.retryable
    assert not [one for one in asyncio.all_tasks() if one.get_name() == "weft-heartbeats"]


async def test_a_heartbeat_that_comes_keeps_the_attempt_alive(make: MakeWorld) -> None:
    gate = asyncio.Event()

    async def work(call: ActivityCall) -> str:
        await gate.wait()
        return "done"

    world = await make(work=work)
    await world.publish(flow(a=task("work", **LIMITS), output="${tasks.a.output}"))
    started = await world.start("flow")
    running = await begin(world)
    (call,) = world.activities.calls
    for _ in range(12):
        await world.clock.advance(9_000)
        call.beat(world.clock.now())
    assert not call.cancelled
    gate.set()
    await running
    await world.settle()
    view = await world.view(started.id)
    assert (view.status, view.output) == ("COMPLETED", "done")


async def test_heartbeats_that_stop_are_missed_from_the_last_one_on(make: MakeWorld) -> None:
    async def work(call: ActivityCall) -> None:
        await asyncio.Event().wait()

    world = await make(work=work)
    await world.publish(flow(a=task("work", retry=retry(1), **LIMITS)))
    started = await world.start("flow")
    running = await begin(world)
    await world.clock.advance(8_000)
    world.activities.calls[0].beat(world.clock.now())
    await world.clock.advance(9_999)
    assert not running.done()
    world.clock.jump(-3_600_000)  # the clock is set back: an hour more would be no limit at all
    await world.clock.advance(1)
    await world.clock.advance(10_000)
    assert not running.done()
    world.clock.jump(3_600_000)
    await world.clock.advance(10_000)
    await running
    await world.settle()
    view = await world.view(started.id)
    assert view.error is not None
    assert (view.status, view.error.type) == ("FAILED", "HEARTBEAT_TIMEOUT")


async def test_without_a_heartbeat_timeout_nobody_watches(make: MakeWorld) -> None:
    gate = asyncio.Event()

    async def work(call: ActivityCall) -> str:
        await gate.wait()
        return "done"

    world = await make(work=work)
    await world.publish(flow(a=task("work", timeout="30m"), output="${tasks.a.output}"))
    started = await world.start("flow")
    running = await begin(world)
    await world.clock.advance(20 * 60_000)
    gate.set()
    await running
    await world.settle()
    assert (await world.view(started.id)).output == "done"


async def test_an_item_of_a_map_has_the_heartbeat_timeout_of_its_do(make: MakeWorld) -> None:
    async def work(call: ActivityCall) -> int:
        if call.attempt == 1:
            await asyncio.Event().wait()
        return call.input

    world = await make(work=work)
    do = task("work", input="${item}", retry=retry(2), **LIMITS)
    await world.publish(flow(m={"type": "map", "items": [7], "do": do}, output="${tasks.m.output}"))
    started = await world.start("flow")
    running = await begin(world)
    await world.clock.advance(10_000)
    await running
    await world.run_until_quiet()
    assert (await world.view(started.id)).output == [7]
