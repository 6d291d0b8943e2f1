"""Fair shares between tenants and classes: nobody's backlog is in front of others."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

from orchestrator.domain.messages import MessageType, decode
from orchestrator.domain.topology import (
    CONTROL,
    TASKS_HIGH_QUEUE,
    TASKS_LOW_QUEUE,
    TASKS_STANDARD_QUEUE,
)
from orchestrator.engine import catalog, handback, submit
from orchestrator.engine.core import Tunables
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.lanes import LANE, MARKS, Lanes
from orchestrator.ports import Unavailable
from tests.support.definitions import flow, task
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld

PLACES = 8
SMALL = Tunables(task_places=PLACES)
OTHER = "beta"


async def works(world: World, tenant: str, tasks: int = 1) -> None:
    """The tenant starts an execution of so many tasks at once; they are dispatched."""
    await catalog.publish(
        world.engine, tenant, flow(**{f"t{number}": task("work") for number in range(tasks)})
    )
    await submit.start(world.engine, tenant, "flow", None)
    await world.deliver(world.transport.take(world.clock.now(), "orchestration"))


def queued(world: World) -> Counter[tuple[str, str]]:
    """Tenant and queue of every task message that waits."""
    return Counter(
        (one.properties["tenant"], one.queue)
        for one in world.transport.messages
        if one.queue.startswith("tasks-")
    )


async def held(world: World, queue: str, tenant: str, count: int) -> list[asyncio.Task[None]]:
    """Messages that are being worked on until cancelled."""

    async def hold() -> None:
        async with world.engine.part(Lanes).held(queue, tenant):
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(hold()) for _ in range(count)]
    await quiesce()
    return tasks


async def ended(tasks: list[asyncio.Task[None]]) -> None:
    for one in tasks:
        one.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_a_flood_dispatches_beyond_its_share_goes_to_the_low_queue(
    make: MakeWorld,
) -> None:
    world = await make(tunables=SMALL, work=lambda _: 1)
    await works(world, OTHER)
    await works(world, TENANT, tasks=50)
    assert queued(world) == {
        (OTHER, TASKS_STANDARD_QUEUE): 1,
        (TENANT, TASKS_STANDARD_QUEUE): PLACES,
        (TENANT, TASKS_LOW_QUEUE): 50 - PLACES,
    }
    moved = [decode(one.body).task for one in world.transport.messages if LANE in one.properties]
    assert moved == [f"t{number}" for number in range(PLACES, 50)], "the last ones"
    sent = [one for one in world.transport.sent if one.queue.startswith("tasks-")]
    assert len(sent) == 51, "no message more than without"
    await world.settle()
    assert world.engine.metrics.value("weft_executions_total", "COMPLETED") == 2


async def test_a_tenant_that_is_alone_uses_its_own_queue_for_everything(make: MakeWorld) -> None:
    world = await make(tunables=SMALL, work=lambda _: 1)
    await works(world, TENANT, tasks=50)
    assert queued(world) == {(TENANT, TASKS_STANDARD_QUEUE): 50}
    await world.settle()
    assert world.engine.metrics.value("weft_messages_moved_total", "task") == 0
    await world.clock.advance(SMALL.active_ms)
    await works(world, OTHER, tasks=50)  # the first has had nothing to do for a minute
    assert queued(world) == {(OTHER, TASKS_STANDARD_QUEUE): 50}


async def test_case_one_backlog_from_before_is_moved_once_somebody_else_is_active(
    make: MakeWorld,
) -> None:
    """Head of line: the other's task is behind 50 that were dispatched when nobody else was."""
    gate = asyncio.Event()
    ran: list[str] = []

    async def work(call: Any) -> None:
        ran.append(call.tenant)
        await gate.wait()

    world = await make(tunables=SMALL, work=work)
    await works(world, TENANT, tasks=50)
    await works(world, OTHER)
    due = world.transport.take(world.clock.now())
    assert due[-1].properties["tenant"] == OTHER
    running: list[asyncio.Task[None]] = []
    for one in due:  # as a host does: in order, so many at once
        running.append(asyncio.create_task(world.deliver([one])))
        await quiesce()
        if sum(not done.done() for done in running) > PLACES:
            break
    for _ in range(20):
        await quiesce()
    assert ran.count(OTHER) == 1, "it did not wait for any of the 50"
    assert ran.count(TENANT) == PLACES * 3 // 4
    moved = world.engine.metrics.value("weft_messages_moved_total", "task")
    assert moved == 50 - ran.count(TENANT)
    assert queued(world) == {(TENANT, TASKS_LOW_QUEUE): moved}
    gate.set()
    await asyncio.gather(*running)
    await world.settle()
    assert world.engine.metrics.value("weft_executions_total", "COMPLETED") == 2
    assert world.engine.metrics.value("weft_messages_moved_total", "task") == moved, (
        "each is moved once"
    )


async def test_another_process_knows_who_is_active(make: MakeWorld) -> None:
    world = await make(tunables=SMALL)
    lanes = world.engine.part(Lanes)
    backlog = await held(world, TASKS_STANDARD_QUEUE, TENANT, PLACES)
    assert not lanes.overflows(TASKS_STANDARD_QUEUE, TENANT)
    await world.engine.drain()
    world.another("worker-2").part(Lanes).note([OTHER])
    await quiesce()
    await world.clock.advance(1_000)
    lanes.overflows(TASKS_STANDARD_QUEUE, TENANT)  # looks
    await world.engine.drain()
    assert lanes.overflows(TASKS_STANDARD_QUEUE, TENANT)
    assert not lanes.overflows(TASKS_STANDARD_QUEUE, OTHER)
    await world.clock.advance(SMALL.active_ms)
    lanes.overflows(TASKS_STANDARD_QUEUE, TENANT)
    await world.engine.drain()
    assert not lanes.overflows(TASKS_STANDARD_QUEUE, TENANT)
    await ended(backlog)


async def test_marks_are_written_seldom_and_hold_the_latest(make: MakeWorld) -> None:
    world = await make(tunables=SMALL)
    lanes = world.engine.part(Lanes)
    for _ in range(30):
        lanes.note([TENANT])
        await world.engine.drain()
        await world.clock.advance(1_000)
    doc = await world.sqlite.read(CONTROL, (MARKS,), MARKS)
    assert list(doc.body["tenants"]) == [TENANT]
    assert world.clock.now() - doc.body["tenants"][TENANT] == 10_000
    await world.clock.advance(SMALL.active_ms)
    lanes.note(f"tenant-{number}" for number in range(300))
    await world.engine.drain()
    doc = await world.sqlite.read(CONTROL, (MARKS,), MARKS)
    assert len(doc.body["tenants"]) == 200
    assert TENANT not in doc.body["tenants"]


async def test_trouble_with_the_marks_stops_nothing(make: MakeWorld) -> None:
    class Down:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            def call(container: str, *args: Any, **more: Any) -> Any:
                if container == CONTROL:
                    raise Unavailable("down")
                return getattr(self.inner, name)(container, *args, **more)

            return call

    world = await make(tunables=SMALL, wrap_store=Down, work=lambda _: 1)
    await works(world, OTHER)
    await works(world, TENANT, tasks=50)
    await world.settle()
    assert world.engine.metrics.value("weft_executions_total", "COMPLETED") == 2


async def test_the_low_queue_uses_what_is_idle_and_an_eighth_in_any_case(make: MakeWorld) -> None:
    """1,000 high ones wait, and 10 low ones: those have one place of eight all the time."""
    world = await make(tunables=SMALL)
    lanes, done = world.engine.part(Lanes), Counter[str]()

    async def one(queue: str) -> None:
        async with lanes.held(queue, TENANT):
            await world.clock.sleep(100)
            done[queue] += 1

    async def listen(queue: str, count: int) -> None:
        places = asyncio.Semaphore(PLACES)  # what the host runs at once of one queue

        async def placed() -> None:
            async with places:
                await one(queue)

        await asyncio.gather(*(placed() for _ in range(count)))

    both = asyncio.gather(listen(TASKS_HIGH_QUEUE, 1_000), listen(TASKS_LOW_QUEUE, 10))
    await quiesce()
    for step in range(1, 11):
        await world.clock.advance(100)
        assert done[TASKS_LOW_QUEUE] == step
        assert done[TASKS_HIGH_QUEUE] == PLACES * step
    await world.clock.advance(100 * 1_000)
    await both
    alone = asyncio.gather(listen(TASKS_LOW_QUEUE, 80))
    await quiesce()
    await world.clock.advance(1_000)
    assert done[TASKS_LOW_QUEUE] == 90, "all places, as nobody else wants them"
    await alone


async def test_nobody_waits_for_a_place_for_ever(make: MakeWorld) -> None:
    world = await make(tunables=SMALL)
    long = await held(world, TASKS_HIGH_QUEUE, TENANT, PLACES)
    long += await held(world, TASKS_LOW_QUEUE, TENANT, 1)
    lanes, came = world.engine.part(Lanes), asyncio.Event()

    async def one() -> None:
        async with lanes.held(TASKS_LOW_QUEUE, OTHER):
            came.set()

    waits = asyncio.create_task(one())
    given_up = asyncio.create_task(one())
    await quiesce()
    await ended([given_up])
    await world.clock.advance(45_000)
    assert not came.is_set()
    await world.clock.advance(30_000)
    assert came.is_set()
    await waits
    await ended(long)


async def test_what_a_flood_starts_beyond_its_share_begins_in_the_low_queue(
    make: MakeWorld,
) -> None:
    world = await make(tunables=SMALL, work=lambda _: 1)
    await works(world, OTHER)
    await catalog.publish(world.engine, TENANT, flow(a=task("work")))
    for _ in range(50):
        await submit.start(world.engine, TENANT, "flow", None)
    began = Counter(
        one.queue for one in world.transport.messages if one.properties["tenant"] == TENANT
    )
    assert began == {"orchestration": PLACES, TASKS_LOW_QUEUE: 50 - PLACES}
    await world.settle()
    assert world.engine.metrics.value("weft_executions_total", "COMPLETED") == 51


async def test_case_one_backlog_of_decisions_is_no_queue_for_others(make: MakeWorld) -> None:
    """Case: one backlog starves the rest. 200 executions of one tenant wait for a decision; the
    other's is made with the first batch, and so is the one with many results."""
    world = await make(tunables=Tunables(task_places=200), work=lambda _: 1)
    wide = flow(**{f"t{number}": task("work") for number in range(12)})
    await catalog.publish(world.engine, TENANT, {**wide, "name": "wide"})
    await submit.start(world.engine, TENANT, "wide", None)
    await world.deliver(world.transport.take(world.clock.now(), "orchestration"))
    await world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE))
    await catalog.publish(world.engine, TENANT, flow(a=task("work")))
    for _ in range(200):
        await submit.start(world.engine, TENANT, "flow", None)
    await catalog.publish(world.engine, OTHER, flow(a=task("work")))
    await submit.start(world.engine, OTHER, "flow", None)
    due = world.transport.take(world.clock.now(), "orchestration")
    assert len(due) == 12 + 200 + 1
    batch = [*due[:31], due[-1]]
    await world.deliver(batch)
    kept = 32 // 2 // 4
    value = world.engine.metrics.value
    assert value("weft_messages_moved_total", "decision") == 31 - 12 - (kept - 1)
    assert value("weft_executions_total", "COMPLETED") == 1, "12 results were one decision"
    began = {(TENANT, TASKS_STANDARD_QUEUE): kept - 1, (OTHER, TASKS_STANDARD_QUEUE): 1}
    moved = {(TENANT, TASKS_LOW_QUEUE): 31 - 12 - (kept - 1)}
    assert queued(world) == {**began, **moved}
    for start in range(31, 212, 32):
        await world.deliver(due[start : min(start + 32, 212)])
    await world.settle()
    assert value("weft_executions_total", "COMPLETED") == 202


async def test_a_backlog_of_decisions_stays_if_nobody_else_is_there_or_it_cannot_be_moved(
    make: MakeWorld,
) -> None:
    world = await make(work=lambda _: 1)
    await catalog.publish(world.engine, TENANT, flow(a=task("work")))
    for active in (False, True):
        for _ in range(32):
            await submit.start(world.engine, TENANT, "flow", None)
        due = world.transport.take(world.clock.now(), "orchestration")
        if active:
            world.engine.part(Lanes).note([OTHER])
            world.transport.failing = True
        await world.deliver(due)
        world.transport.failing = False
        assert world.engine.metrics.value("weft_messages_moved_total", "decision") == 0
        await world.clock.advance(world.tunables.outbox_grace_ms)
        await world.sweep()  # sends what could not be sent
        await world.settle()
    assert world.engine.metrics.value("weft_executions_total", "COMPLETED") == 64


async def test_what_was_moved_stays_in_the_low_queue_when_it_is_sent_again(
    make: MakeWorld,
) -> None:
    world = await make(tunables=SMALL, work=lambda _: 1)
    await works(world, OTHER)
    await works(world, TENANT, tasks=20)
    low = world.transport.take(world.clock.now(), TASKS_LOW_QUEUE)
    assert {one.properties[LANE] for one in low} == {"overflow"}
    incoming = Incoming(body=low[0].body, properties=low[0].properties)
    for kind in (MessageType.RUN_TASK, MessageType.TASK_FINISHED):
        again = replace(decode(low[0].body), type=kind)
        await handback.send(world.engine, [again], [incoming])
        assert world.transport.messages[-1].queue == TASKS_LOW_QUEUE
