"""Leases that are kept, lost and taken for lost: what the keeper and a finishing attempt do to each
other, and what a store that answers badly does to both."""

from __future__ import annotations

import asyncio

from orchestrator.domain.topology import TASKS_STANDARD_QUEUE
from orchestrator.engine import sweep
from orchestrator.engine.core import Engine, Tunables
from orchestrator.ports import ActivityCall, OutMessage, Throttled, Unavailable
from tests.support.definitions import flow, retry, task
from tests.support.faults import FaultyStore, faulty, times
from tests.support.world import World, quiesce
from tests.unit.engine.conftest import MakeWorld


class _Gates:
    """An activity `slow` that waits until the test opens the gate of its task."""

    def __init__(self, *names: str) -> None:
        self.open = {name: asyncio.Event() for name in names}

    async def slow(self, call: ActivityCall) -> str:
        """Wait, then give the task's name."""
        await self.open[call.task].wait()
        return call.task


async def _running(world: World, engine: Engine | None = None) -> list[asyncio.Task[None]]:
    """Deliver what is due to workers; the activities have begun when this returns."""
    await world.deliver(world.transport.take(world.clock.now()))
    due = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    tasks = [asyncio.create_task(world.deliver([message], engine)) for message in due]
    await quiesce()
    return tasks


async def test_a_renewal_whose_answer_was_lost_does_not_cost_the_lease(make: MakeWorld) -> None:
    """The write was applied, so our ETag is old: the next conflict is with ourselves."""
    gates = _Gates("a")
    world = await make(slow=gates.slow, wrap_store=FaultyStore)
    await world.publish(flow(a=task("slow", retry=retry(1)), output="${tasks.a.output}"))
    started = await world.start("flow")
    running = await _running(world)
    faulty(world.engine).after = times(1, lambda: Unavailable("the answer was lost"), "replace")
    period = world.tunables.lease_ms // 3
    await world.clock.advance(period)  # applied, not answered
    for _ in range(6):  # two leases long
        await world.clock.advance(period)
    assert world.engine.metrics.value("weft_leases_lost_total") == 0
    assert not world.activities.calls[0].cancelled
    assert (await world.sweep()).tasks == 0
    gates.open["a"].set()
    await asyncio.gather(*running)
    await world.settle()
    assert (await world.view(started.id)).output == "a"
    await world.verified(started.id)


async def test_a_result_after_a_renewal_whose_answer_was_lost_is_kept(make: MakeWorld) -> None:
    """As before, but the activity ends before the next renewal could find out."""
    gates = _Gates("a")
    world = await make(slow=gates.slow, wrap_store=FaultyStore)
    await world.publish(flow(a=task("slow", retry=retry(1)), output="${tasks.a.output}"))
    started = await world.start("flow")
    running = await _running(world)
    faulty(world.engine).after = times(1, lambda: Unavailable("the answer was lost"), "replace")
    await world.clock.advance(world.tunables.lease_ms // 3)
    gates.open["a"].set()
    await asyncio.gather(*running)
    await world.settle()
    assert (await world.view(started.id)).output == "a"
    assert world.engine.metrics.value("weft_late_results_total") == 0


async def test_a_finished_attempt_is_not_renewed_while_its_message_is_sent(
    make: MakeWorld,
) -> None:
    """The keeper waited for the lock and then found its own process's result: no lease was lost."""
    gates = _Gates("a")
    world = await make(slow=gates.slow)
    await world.publish(flow(a=task("slow")))
    started = await world.start("flow")
    running = await _running(world)
    sending, real = asyncio.Event(), world.transport.send

    async def slowly(messages: list[OutMessage]) -> None:
        await sending.wait()
        await real(messages)

    world.transport.send = slowly  # type: ignore[method-assign]
    gates.open["a"].set()
    await quiesce()
    for _ in range(4):
        await world.clock.advance(world.tunables.lease_ms // 3)
    sending.set()
    await asyncio.gather(*running)
    await world.settle()
    assert world.engine.metrics.value("weft_leases_lost_total") == 0
    assert (await world.view(started.id)).status == "COMPLETED"


async def test_a_throttled_result_does_not_keep_other_leases_from_being_renewed(
    make: MakeWorld,
) -> None:
    """One loop renews for all: it must not wait for one task whose result cannot be written."""
    gates = _Gates("stuck", "long")
    world = await make(slow=gates.slow, wrap_store=FaultyStore)
    await world.publish(flow(stuck=task("slow"), long=task("slow", retry=retry(1))))
    started = await world.start("flow")
    running = await _running(world)
    faulty(world.engine).before = times(
        9, lambda: Throttled("slow down", retry_after_ms=3_000), "batch"
    )
    await world.clock.advance(world.tunables.lease_ms // 3 - 500)
    gates.open["stuck"].set()  # writes its result for the next 27 s
    await quiesce()
    for _ in range(11):
        await world.clock.advance(3_000)
    lease = await world.sqlite.read("executions", ("acme", started.id), "task:long")
    assert lease.body["lease"]["until"] > world.clock.now()
    gates.open["long"].set()
    await asyncio.gather(*running)
    await world.settle()
    assert (await world.view(started.id)).status == "COMPLETED"


async def test_an_attempt_that_lost_its_lease_is_told_to_stop(make: MakeWorld) -> None:
    """It froze, another worker took over; awake again, it must not go on for long."""
    gates = _Gates("a")
    world = await make(slow=gates.slow)
    await world.publish(flow(a=task("slow", retry=retry(3))))
    await world.start("flow")
    frozen = world.another("frozen")
    running = await _running(world, frozen)
    [call] = world.activities.calls
    world.clock.jump(world.tunables.lease_ms)  # nobody was woken: no renewal
    await sweep.sweep(world.engine)
    due = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    others = [asyncio.create_task(world.deliver(due))]
    await quiesce()
    assert [call.attempt for call in world.activities.calls] == [1, 2]
    assert not call.cancelled
    await world.clock.advance(world.tunables.lease_ms // 3)  # its keeper wakes
    assert call.cancelled
    assert not world.activities.calls[1].cancelled
    assert frozen.metrics.value("weft_leases_lost_total") == 1
    gates.open["a"].set()
    await asyncio.gather(*running, *others)


async def test_a_running_attempt_learns_that_its_execution_has_ended(make: MakeWorld) -> None:
    """By its heartbeat, at the latest a third of a lease later."""
    gates = _Gates("a")
    world = await make(slow=gates.slow)
    await world.publish(flow(a=task("slow"), timeout="1m"))
    started = await world.start("flow")
    running = await _running(world)
    [call] = world.activities.calls
    await world.clock.advance(50_000)
    assert not call.cancelled
    await world.clock.advance(10_000)
    await world.deliver(world.transport.take(world.clock.now()))  # the deadline
    assert (await world.view(started.id)).status == "FAILED"
    await world.clock.advance(world.tunables.lease_ms // 3)
    assert call.cancelled
    gates.open["a"].set()
    await asyncio.gather(*running)


async def test_a_sweep_finds_everything_overdue_page_by_page(make: MakeWorld) -> None:
    """More than one page of each kind, in one pass."""
    world = await make(noop=lambda call: None, tunables=Tunables(sweep_page=2))
    await world.publish(flow(a=task("noop")))
    world.transport.failing = True
    ids = [(await world.start("flow")).id for _ in range(5)]
    world.transport.failing = False
    await world.clock.advance(world.tunables.silence_ms)
    report = await sweep.sweep(world.engine)
    assert (report.outboxes, report.executions) == (5, 5)
    await world.settle()
    assert {(await world.view(id)).status.value for id in ids} == {"COMPLETED"}


async def test_what_a_sweep_could_not_send_the_next_pass_sends(make: MakeWorld) -> None:
    """At once, not after another silence."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    world.transport.messages.clear()
    await world.clock.advance(world.tunables.silence_ms)
    world.transport.failing = True
    await sweep.sweep(world.engine)
    world.transport.failing = False
    await world.sweep()
    assert (await world.view(started.id)).status == "COMPLETED"
