"""Tenant slots on the real engine: who runs, who waits, and what a dead process leaves behind."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.domain.tenant_limits import TenantLimits
from orchestrator.domain.topology import CONTROL
from orchestrator.engine import control, erase, slot_docs, sweep
from orchestrator.engine.core import Engine, Tunables
from orchestrator.engine.slots import SlotBook
from orchestrator.ports import DocumentStore, Unavailable
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld

LEASE = 30_000


def limited(count: int) -> Tunables:
    return Tunables(limits=TenantLimits(concurrent_tasks=count))


class Work:
    """An activity that runs until it is let go."""

    def __init__(self) -> None:
        self.gates: list[asyncio.Event] = []
        self.running = self.most = 0

    async def __call__(self, call: Any) -> int:
        self.gates.append(gate := asyncio.Event())
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await gate.wait()
        finally:
            self.running -= 1
        return 1

    def let_go(self, count: int = 1) -> None:
        """The oldest that run."""
        for _ in range(count):
            self.gates.pop(0).set()


async def started(world: World, count: int) -> list[str]:
    """So many executions of one task, dispatched."""
    await world.publish(flow(a=task("work")))
    ids = [(await world.start("flow")).id for _ in range(count)]
    await world.deliver(world.transport.take(world.clock.now()))
    return ids


def deliver(world: World, engine: Engine | None = None) -> list[asyncio.Task[None]]:
    """What is due, each in a task of its own, as the host does."""
    due = world.transport.take(world.clock.now())
    return [asyncio.create_task(world.deliver([one], engine)) for one in due]


async def settled(rounds: int = 12) -> None:
    for _ in range(rounds):
        await quiesce()


async def held(world: World) -> int:
    slots, _ = await slot_docs.find(world.engine, TENANT)
    return slots.held(world.clock.now())


async def test_no_more_tasks_run_than_the_tenant_has_slots_and_all_are_done(
    make: MakeWorld,
) -> None:
    work = Work()
    world = await make(tunables=limited(2), work=work)
    ids = await started(world, 6)
    running = deliver(world)
    await settled()
    assert (work.running, await held(world)) == (2, 2)
    assert world.engine.metrics.value("weft_postponed_total", "slots") == 4
    for done in range(1, 7):
        work.let_go()
        await settled()
        running += deliver(world)  # what a free slot called; no time has passed
        await settled()
        assert work.running == min(2, 6 - done)
    await asyncio.gather(*running)
    await world.settle()
    for id in ids:
        view = await world.view(id)
        assert view.status.value == "COMPLETED"
    assert work.most == 2
    sent = [one for one in world.transport.sent if one.queue.startswith("tasks-")]
    assert len(sent) <= 3 * len(ids)  # dispatched, postponed, called


async def test_two_processes_share_the_slots(make: MakeWorld) -> None:
    work = Work()
    world = await make(tunables=limited(3), work=work)
    other = world.another("worker-2")
    await started(world, 8)
    due = world.transport.take(world.clock.now())
    running = [
        asyncio.create_task(world.deliver([one], engine))
        for one, engine in zip(due, [world.engine, other] * 4, strict=True)
    ]
    await settled()
    assert (work.running, await held(world)) == (3, 3)
    while work.gates:
        work.let_go(len(work.gates))
        await settled()
        assert work.running <= 3
        running += deliver(world, other)
        await settled()
    await asyncio.gather(*running)
    await other.close()


async def test_case_one_backlog_postponements_grow_are_spread_and_use_no_attempt(
    make: MakeWorld,
) -> None:
    world = await make(tunables=limited(1), work=Work())
    ids = await started(world, 30)
    running = deliver(world)
    await settled()
    waits: list[list[int]] = []
    for _ in range(8):
        now = world.clock.now()
        dues = [one.due_at - now for one in world.transport.messages if one.due_at]
        assert len(dues) == 29
        waits.append(dues)
        await world.clock.advance(max(dues))
        running += deliver(world)
        await settled()
    assert [min(dues) for dues in waits] == sorted(min(dues) for dues in waits)
    assert max(waits[0]) < 2_000
    assert 60_000 <= min(waits[-1]) <= max(waits[-1]) <= 90_000
    assert len(set(waits[-1])) > 20, "no thundering herd"
    for id in ids[1:]:
        docs = await world.sqlite.read_many("executions", (TENANT, id), ["task:a"])
        assert docs == {}
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_slots_that_are_idle_are_given_back(make: MakeWorld) -> None:
    work = Work()
    world = await make(tunables=limited(4), work=work)
    await started(world, 3)
    running = deliver(world)
    await settled()
    assert await held(world) == 3
    work.let_go(2)
    await settled()
    await world.clock.advance(2_000)
    assert await held(world) == 1
    work.let_go()
    await asyncio.gather(*running)
    await world.clock.advance(2_000)
    assert await held(world) == 0


async def test_a_process_that_closes_gives_its_slots_back_at_once(make: MakeWorld) -> None:
    world = await make(tunables=limited(1), work=Work())
    other = world.another("worker-2")
    book = other.part(SlotBook)
    assert await book.take(TENANT) is True
    book.give_back(TENANT)
    await book.close()
    assert await held(world) == 0
    assert await world.engine.part(SlotBook).take(TENANT) is True


def killed(engine: Engine) -> None:
    """What a process leaves that was killed: nothing of it runs any more."""
    for part in engine.parts.values():
        for name in ("_loop", "_bell"):
            loop = getattr(part, name, None)
            if loop is not None:
                loop.cancel()


@pytest.mark.parametrize("when", ["slot to claim", "claim to result", "result to release"])
async def test_case_slot_leaks_a_killed_worker_s_slot_frees_itself(
    make: MakeWorld, when: str
) -> None:
    """At limit 1 nothing may stop for longer than a lease, wherever the process died."""
    work = Work()
    world = await make(tunables=limited(1), work=work)
    dead = world.another("worker-dead")
    [first, second] = await started(world, 2)
    [one, other] = world.transport.take(world.clock.now())
    if when == "slot to claim":
        assert await dead.part(SlotBook).take(TENANT) is True
        again = dataclasses.replace(one, message_id="again")
        await world.transport.send([again])  # the broker's lock ends
    else:
        running = asyncio.create_task(world.deliver([one], dead))
        await settled()
        assert work.running == 1
        if when == "result to release":
            dead.part(SlotBook).give_back = lambda tenant: None  # type: ignore[method-assign]
            work.let_go()
            await running
        else:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    if when == "claim to result":
        dead.part(SlotBook)._tenants[TENANT].used = 1  # it did not live to give it back
    killed(dead)
    waiting = [asyncio.create_task(world.deliver([other]))]
    await settled()
    assert (work.running, await held(world)) == (0, 1)
    began = world.clock.now()
    while (await world.view(second)).status.value != "COMPLETED":
        await world.clock.advance(1_000)
        waiting += deliver(world)
        await settled(4)
        while work.gates:
            work.let_go()
            await settled(4)
        assert world.clock.now() < began + LEASE + 20_000
    for _ in range(120):
        await world.clock.advance(1_000)
        if world.clock.now() % 15_000 == 0:
            await sweep.sweep(world.engine)
        waiting += deliver(world)
        await settled(4)
        while work.gates:
            work.let_go()
            await settled(4)
    await asyncio.gather(*waiting)
    assert (await world.view(first)).status.value == "COMPLETED"
    assert (await held(world), work.most) == (0, 1)


@pytest.mark.parametrize("purged", [False, True])
async def test_case_slot_leaks_cancelling_a_running_task_frees_its_slot(
    make: MakeWorld, purged: bool
) -> None:
    async def polite(call: Any) -> None:
        while not call.cancelled:
            await world.clock.sleep(1_000)

    world = await make(tunables=limited(1), work=polite)
    [first, second] = await started(world, 2)
    [one, _] = world.transport.messages
    world.transport.messages = [one]
    running = deliver(world)
    await settled()
    await control.act(world.engine, TENANT, first, control.CANCEL, by="me")
    if purged:
        await erase.erase(world.engine, TENANT, first, by="me")
    await world.clock.advance(LEASE // 3 + 2_000)
    await asyncio.gather(*running)
    await world.clock.advance(2_000)
    assert await held(world) == 0
    assert (await world.view(second)).status.value == "RUNNING"


async def test_waiting_for_a_slot_is_no_loss(make: MakeWorld) -> None:
    work = Work()
    world = await make(tunables=limited(1), work=work)
    await world.publish(flow(a=task("work", retry=retry(3, "1s"))))
    for _ in range(4):
        await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    running = deliver(world)
    await settled()
    for _ in range(20):  # ten minutes
        await world.clock.advance(30_000)
        await sweep.sweep(world.engine)
        await settled()
        running += deliver(world)
        await settled()
    assert world.engine.metrics.value("weft_repairs_total", "task") == 0
    assert world.engine.metrics.value("weft_slots_held") == 1
    chains = [one for one in world.transport.messages if one.queue.startswith("tasks-")]
    assert len(chains) == 3, "one message for each task that waits, copies are settled"
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_a_message_that_is_lost_in_a_tenant_that_is_always_busy_is_sent_again(
    make: MakeWorld,
) -> None:
    """Somebody always waits for a slot there, so that this cannot excuse a silence for ever."""
    world = await make(tunables=limited(1), work=Work())
    await started(world, 2)
    running = deliver(world)
    await settled()
    lost = (await started(world, 1))[0].encode()
    [message] = [one for one in world.transport.messages if lost in one.body]
    world.transport.messages.remove(message)
    for _ in range(80):  # forty minutes: a silence that doubles from one to fifteen
        assert not [one for one in world.transport.messages if lost in one.body]
        await world.clock.advance(30_000)
        await sweep.sweep(world.engine)
        await settled()
        running += deliver(world)
        await settled()
        assert await world.engine.part(SlotBook).busy(TENANT)
        if [one for one in world.transport.messages if lost in one.body]:
            break
    else:
        pytest.fail("it is lost for ever")
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_case_slot_leaks_the_recount_drops_holders_that_are_not_heard_of(
    make: MakeWorld,
) -> None:
    world = await make(tunables=limited(2), work=Work())
    dead = world.another("worker-dead")
    assert await dead.part(SlotBook).take(TENANT) is True
    killed(dead)
    await world.sweep()
    assert world.engine.metrics.value("weft_slots_held") == 1
    await world.clock.advance(LEASE)
    await world.sweep()
    await world.sweep()
    slots, _ = await slot_docs.find(world.engine, TENANT)
    assert slots.holders == {}
    assert world.engine.metrics.value("weft_slots_held") == 0
    assert world.engine.metrics.value("weft_repairs_total", "slot") == 1


class Watched:
    """Notes which containers are touched; refuses control while `down`."""

    def __init__(self, inner: DocumentStore) -> None:
        self.inner = inner
        self.touched: list[str] = []
        self.down = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.inner, name)

        def call(container: str, *args: Any, **more: Any) -> Any:
            self.touched.append(container)
            if self.down and container == CONTROL:
                raise Unavailable("down")
            return method(container, *args, **more)

        return call


async def test_a_slot_that_is_being_given_back_is_not_handed_out(make: MakeWorld) -> None:
    """What a process hands out is never more than the others can see."""
    taking: list[asyncio.Task[bool | None]] = []

    class Racing:
        def __init__(self, inner: DocumentStore) -> None:
            self.inner = inner
            self.armed = False

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        async def replace(self, container: str, *args: Any, **more: Any) -> str:
            if container == CONTROL and self.armed:
                self.armed = False
                taking.append(asyncio.create_task(book.take(TENANT)))
                await quiesce()
            return await self.inner.replace(container, *args, **more)

    stores: list[Racing] = []

    def wrap(inner: DocumentStore) -> Any:
        stores.append(Racing(inner))
        return stores[-1]

    world = await make(tunables=limited(1), wrap_store=wrap)
    book = world.engine.part(SlotBook)
    assert await book.take(TENANT) is True
    book.give_back(TENANT)
    stores[0].armed = True
    for _ in range(3):
        await world.clock.advance(1_000)
        await settled()
    assert [await one for one in taking] == [True]
    assert await held(world) == 1


async def test_a_tenant_without_a_limit_has_no_slots_and_no_store_operations(
    make: MakeWorld,
) -> None:
    stores: list[Watched] = []

    def wrap(inner: DocumentStore) -> Any:
        stores.append(Watched(inner))
        return stores[-1]

    world = await make(tunables=Tunables(active_ms=0), wrap_store=wrap, work=lambda _: 1)
    [id] = await started(world, 1)
    await world.settle()
    assert (await world.view(id)).status.value == "COMPLETED"
    assert CONTROL not in stores[0].touched


async def test_the_limit_holds_while_the_store_cannot_tell(make: MakeWorld) -> None:
    stores: list[Watched] = []

    def wrap(inner: DocumentStore) -> Any:
        stores.append(Watched(inner))
        return stores[-1]

    work = Work()
    world = await make(tunables=limited(1), wrap_store=wrap, work=work)
    await started(world, 1)
    stores[0].down = True
    await asyncio.gather(*deliver(world))
    assert work.running == 0
    stores[0].down = False
    await world.clock.advance(1_000)
    running = deliver(world)
    await settled()
    assert work.running == 1
    work.let_go()
    await asyncio.gather(*running)
