"""Every repair of the sweeper: something is broken, one pass mends it, and its counter says so.

The counters are exact: what was not lost is not counted, so `weft_repairs_total` can be an alert.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from orchestrator.domain.topology import ORCHESTRATION_QUEUE, TASKS_STANDARD_QUEUE
from orchestrator.engine import breakers_act, signals
from orchestrator.engine.leases import LeaseKeeper
from orchestrator.ports import ActivityCall
from tests.support.breakers import FEW, PAY, Service, http, later
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld

MINUTE = 60_000
HOUR = 60 * MINUTE


def counted(world: World) -> dict[str, int]:
    """Label -> repairs so far."""
    start = "weft_repairs_total{"
    found = world.engine.metrics.counters.items()
    return {name[len(start) : -1]: by for name, by in found if name.startswith(start) and by}


async def begun(world: World, **tasks: Any) -> str:
    """An execution of these tasks, before anything of it was delivered."""
    await world.publish(flow(**tasks))
    return (await world.start("flow")).id


async def orchestrated(world: World) -> None:
    """What waits for the orchestrator is delivered, and nothing else."""
    await world.deliver(world.transport.take(world.clock.now(), ORCHESTRATION_QUEUE))


async def worked(world: World) -> None:
    """What waits for workers is delivered, and nothing else."""
    await world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE))


async def _outbox(world: World) -> str:
    await world.publish(flow(a=task("work")))
    world.transport.failing = True
    id = (await world.start("flow")).id
    world.transport.failing = False
    await world.clock.advance(MINUTE)
    return id


async def _lease(world: World) -> str:
    """The worker is killed: its lease is never renewed, its result never written."""
    hang = asyncio.Event()

    async def hangs(call: ActivityCall) -> int:
        if call.attempt == 1:
            await hang.wait()
        return 1

    world.activities.functions["hangs"] = hangs
    id = await begun(world, a=task("hangs"))
    await orchestrated(world)
    dead = world.another("worker-2")
    running = asyncio.create_task(
        world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE), dead)
    )
    await quiesce()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await dead.part(LeaseKeeper).close()
    await world.clock.advance(world.tunables.lease_ms)
    return id


async def _retry(world: World) -> str:
    world.activities.functions["once"] = lambda call: 1 // (call.attempt - 1)
    id = await begun(world, a=task("once", retry=retry(2)))
    await world.settle()
    world.transport.messages.clear()
    await world.clock.advance(1_000 + world.tunables.retry_grace_ms)
    return id


async def _signal(world: World) -> str:
    id = await begun(world, a={"type": "signal", "signal": "go"})
    await world.settle()
    await signals.send(world.engine, TENANT, id, "go", id="x")
    await world.engine.drain()
    world.transport.messages.clear()
    await world.clock.advance(70_000)
    return id


async def _task(world: World) -> str:
    id = await begun(world, a=task("work"))
    await orchestrated(world)
    world.transport.messages.clear()
    await world.clock.advance(MINUTE)
    return id


async def _result(world: World) -> str:
    id = await begun(world, a=task("work"))
    await orchestrated(world)
    await worked(world)
    world.transport.messages.clear()
    await world.clock.advance(MINUTE)
    return id


async def _items_result(world: World) -> str:
    id = await begun(world, a={"type": "map", "items": [7], "do": task("work")})
    await orchestrated(world)
    await worked(world)
    world.transport.messages.clear()
    await world.clock.advance(MINUTE)
    return id


async def _wait(world: World) -> str:
    id = await begun(world, a={"type": "wait", "duration": "1h"})
    await world.settle()
    world.transport.messages.clear()
    await world.clock.advance(HOUR + world.tunables.retry_grace_ms)
    return id


async def _wait_of_an_item(world: World) -> str:
    wait = {"type": "wait", "duration": "1h"}
    id = await begun(world, a={"type": "map", "items": [1], "do": wait})
    await world.settle()
    world.transport.messages.clear()
    await world.clock.advance(HOUR + world.tunables.retry_grace_ms)
    return id


async def _deadline(world: World) -> str:
    wait = {"type": "wait", "duration": "5h", "deadline": "1h", "continueOnError": True}
    id = await begun(world, a=wait)
    await world.settle()
    world.transport.messages.clear()
    await world.clock.advance(HOUR + world.tunables.retry_grace_ms)
    return id


async def _child(world: World) -> str:
    await world.publish(flow("child", a={"type": "wait", "duration": "1s"}))
    id = await begun(world, a={"type": "workflow", "workflow": "child"})
    await world.settle()
    await world.clock.advance(1_000)
    await orchestrated(world)
    world.transport.messages.clear()
    await world.clock.advance(MINUTE)
    return id


async def _postponed(world: World) -> str:
    """A task that waited for a circuit breaker: its message is lost for good."""
    world.activities.functions["weft.http"] = Service()
    world.activities.functions["weft.http"].down = False
    await breakers_act.open_(world.engine, TENANT, PAY, by="eve")
    id = await begun(world, a=http(f"https://{PAY}/"))
    await world.settle()
    world.transport.messages.clear()
    await breakers_act.close(world.engine, TENANT, PAY, by="eve")
    await world.clock.advance(2 * MINUTE)
    return id


Break = Callable[[World], Awaitable[str]]
LOSSES: dict[str, tuple[Break, str]] = {
    "outbox never sent": (_outbox, "outbox"),
    "lease expired": (_lease, "lease"),
    "retry lost": (_retry, "retry"),
    "signal not taken in": (_signal, "signal"),
    "task due but silent": (_task, "task"),
    "result not heard of": (_result, "result"),
    "result of an item not heard of": (_items_result, "result"),
    "timer of a wait lost": (_wait, "timer"),
    "timer of an item's wait lost": (_wait_of_an_item, "timer"),
    "timer of a deadline lost": (_deadline, "timer"),
    "end of a child not heard of": (_child, "child"),
    "postponed by a breaker and lost": (_postponed, "task"),
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_sweeper_mends_what_was_lost_in_one_pass_and_counts_it(
    make: MakeWorld, loss: str
) -> None:
    break_it, label = LOSSES[loss]
    world = await make(work=lambda call: 1, tunables=FEW)
    id = await break_it(world)
    assert (await world.view(id)).status.value in ("PENDING", "RUNNING")
    assert counted(world) == {}
    await world.sweep()
    assert (await world.view(id)).status.value == "COMPLETED"
    assert counted(world) == {label: 1}
    await world.sweep()
    assert counted(world) == {label: 1}, "a second pass finds nothing"
    await world.verified(id)


async def test_sweeper_counts_nothing_when_nothing_is_lost(make: MakeWorld) -> None:
    """Sweeps all the time, and all that can be lost."""
    world = await make(work=lambda call: 1, fails=lambda call: 1 // (call.attempt - 1))
    await world.publish(flow("child", a={"type": "wait", "duration": "10m"}))
    id = await begun(
        world,
        a=task("work"),
        b=task("fails", retry=retry(2, "7m"), deadline="1h"),
        c={"type": "wait", "duration": "1h"},
        d={"type": "workflow", "workflow": "child"},
        e={"type": "map", "items": [1, 2], "do": {"type": "wait", "duration": "20m"}},
        f={"type": "wait", "duration": "3h", "deadline": "2h", "continueOnError": True},
    )
    for _ in range(3 * 60 * 4):
        await later(world, 15_000)
        await world.sweep()
    assert (await world.view(id)).status.value == "COMPLETED"
    assert counted(world) == {}


async def test_sweeper_counts_what_it_sent_and_not_what_the_broker_refused(
    make: MakeWorld,
) -> None:
    """An outage of an hour was 240 repairs, and none of them was one."""
    world = await make(work=lambda call: 1)
    id = await _retry(world)
    world.transport.failing = True
    for _ in range(4):
        assert (await world.sweep()).tasks == 0
    assert counted(world) == {}
    world.transport.failing = False
    assert (await world.sweep()).tasks == 1
    assert counted(world) == {"retry": 1}
    assert (await world.view(id)).status.value == "COMPLETED"


async def test_a_retry_that_only_the_sweeper_can_send_is_no_repair(make: MakeWorld) -> None:
    world = await make(fails=lambda call: 1 // (call.attempt - 1))
    id = await begun(world, a=task("fails", retry=retry(2, "10d", maxInterval="10d")))
    await world.settle()
    await world.clock.advance(10 * 24 * HOUR - MINUTE)
    await world.sweep()
    await world.clock.advance(MINUTE)
    await world.sweep()
    assert (await world.view(id)).status.value == "COMPLETED"
    assert counted(world) == {}
