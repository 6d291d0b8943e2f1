"""A lease ends with the result, not with the message that tells of it."""

from __future__ import annotations

import asyncio
from typing import Any

from orchestrator.domain.topology import ORCHESTRATION_QUEUE
from tests.support.definitions import flow, task
from tests.support.world import quiesce
from tests.unit.engine.conftest import MakeWorld


async def test_a_slow_broker_after_the_result_is_no_lost_lease(make: MakeWorld) -> None:
    """Seen over Service Bus: the fast path took longer than a third of the lease, the renewal met
    the result's own ETag, and every such task was reported as lost to another worker."""

    async def work(call: Any) -> int:
        return 1

    world = await make(work=work)
    await world.publish(flow(a=task("work")))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    sending, send_on = asyncio.Event(), asyncio.Event()
    send = world.transport.send

    async def slow(messages: Any) -> None:
        if messages[0].queue == ORCHESTRATION_QUEUE:
            sending.set()
            await send_on.wait()
        await send(messages)

    world.transport.send = slow  # type: ignore[method-assign]
    working = asyncio.create_task(world.deliver(world.transport.take(world.clock.now())))
    await sending.wait()
    await world.clock.advance(world.tunables.lease_ms)
    await quiesce()
    send_on.set()
    await working
    assert world.engine.metrics.value("weft_leases_lost_total") == 0
    await world.settle()
    assert (await world.view(started.id)).status == "COMPLETED"
