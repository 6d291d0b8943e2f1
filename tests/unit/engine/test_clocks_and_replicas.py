"""Messages that come too early, by our clock or by what a replica shows, and faults of the platform
in the middle of an attempt: none of them may leave its work to the sweeper."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.domain.tenant_limits import TenantLimits
from orchestrator.engine import catalog, inspect, relay, sweep
from orchestrator.engine.core import Tunables
from orchestrator.engine.slots import SlotBook
from orchestrator.ports import ActivityCall, MessageTooLarge, NotFound, OutMessage
from tests.support.definitions import flow, retry, task
from tests.support.faults import FaultyStore, faulty, times
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld

SECRET = "s3cr3t-Ω/+="


def _once(call: ActivityCall) -> int:
    if call.attempt == 1:
        raise ConnectionError("not now")
    return call.attempt


async def _early(world: World, ms: int) -> list[OutMessage]:
    """Deliver the one scheduled message `ms` before its time, as a broker whose clock is ahead
    does; the messages that wait after that."""
    [message] = world.transport.messages
    assert message.due_at is not None
    await world.clock.advance(message.due_at - ms - world.clock.now())
    await world.deliver(world.transport.take(message.due_at))
    return world.transport.messages


async def test_a_retry_that_comes_early_by_the_workers_clock_is_given_back_until_then(
    make: MakeWorld,
) -> None:
    """The broker's clock was 20 ms ahead: settled, the retry would wait for the sweeper."""
    world = await make(once=_once)
    await world.publish(flow(a=task("once", retry=retry(2, "10s")), output="${tasks.a.output}"))
    started = await world.start("flow")
    begin = world.clock.now()
    await world.settle()
    [again] = await _early(world, 20)
    assert len(world.activities.calls) == 1
    assert again.due_at == begin + 10_000
    await world.run_until_quiet()
    assert (await world.view(started.id)).output == 2
    assert world.clock.now() == begin + 10_000


async def test_a_clock_that_is_set_back_keeps_nobody_from_a_free_slot(make: MakeWorld) -> None:
    """ "All taken" is believed for a second, and not until the clock has caught up."""
    world = await make(tunables=Tunables(limits=TenantLimits(concurrent_tasks=1)))
    first, second = world.engine.part(SlotBook), world.another("worker-2").part(SlotBook)
    assert await first.take(TENANT)
    assert not await second.take(TENANT)
    world.clock.jump(-3_600_000)
    await first.close()
    assert await second.take(TENANT)
    await second.close()


async def test_a_clock_that_is_set_back_does_not_keep_the_sweeper_from_sending_again(
    make: MakeWorld,
) -> None:
    """What it sent lately it does not send again; what it sent "later than now" it does."""
    world = await make(work=lambda call: 1)
    await world.publish(flow(a=task("work")))
    started = await world.start("flow")
    world.transport.take(world.clock.now())  # lost
    await world.clock.advance(2 * 3_600_000)
    await sweep.sweep(world.engine)
    world.transport.take(world.clock.now())  # lost, too
    world.clock.jump(-3_600_000)
    await world.sweep()
    assert (await world.view(started.id)).status == "COMPLETED"


async def test_a_duplicate_that_comes_long_before_a_retry_is_settled(make: MakeWorld) -> None:
    """The retry's own message will come."""
    world = await make(once=_once)
    await world.publish(flow(a=task("once", retry=retry(2, "10m"))))
    await world.start("flow")
    await world.settle()
    assert await _early(world, 60_000) == []
    assert len(world.activities.calls) == 1


@pytest.mark.parametrize("busy", [False, True])
async def test_a_timer_that_comes_early_by_the_orchestrators_clock_is_given_back_until_then(
    make: MakeWorld, busy: bool
) -> None:
    """Also if the same batch holds a result, and so is committed."""
    world = await make(noop=lambda call: None)
    await world.publish(
        flow(w={"type": "wait", "duration": "1m"}, z=task("noop", "w"), other=task("noop"))
    )
    started = await world.start("flow")
    begin = world.clock.now()
    await world.deliver(world.transport.take(world.clock.now()))
    if not busy:
        await world.settle()
    else:
        await world.deliver(world.transport.take(world.clock.now()))
    await world.clock.advance(60_000 - 20)
    batch = world.transport.take(begin + 60_000)
    assert len(batch) == 1 + busy
    await world.deliver(batch)
    [again] = world.transport.messages
    assert again.due_at == begin + 60_000
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert world.clock.now() == begin + 60_000


async def test_timers_of_waits_that_follow_each_other_do_not_multiply(make: MakeWorld) -> None:
    """Each fires its own wait; none is given back for the next one."""
    world = await make()
    waits: dict[str, Any] = {f"w{n}": {"type": "wait", "duration": f"{n + 1}s"} for n in range(30)}
    await world.publish(flow(**waits))
    started = await world.start("flow")
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
    kinds = [message.properties["type"] for message in world.transport.sent]
    assert kinds.count("timerDue") == 30


async def test_a_replica_that_does_not_know_the_execution_yet_does_not_lose_its_start(
    make: MakeWorld,
) -> None:
    """Session consistency: another process reads 404 just after the submission."""
    world = await make(noop=lambda call: None, wrap_store=FaultyStore)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    begin = world.clock.now()
    faulty(world.engine).before = times(1, lambda: NotFound("not here yet"), "read")  # type: ignore[arg-type]
    await world.settle()
    assert (await world.view(started.id)).status == "PENDING"
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert world.clock.now() - begin < 1_000


async def test_messages_of_an_execution_that_never_was_end_by_themselves(make: MakeWorld) -> None:
    """They are not given back for ever."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    await world.sqlite.delete("executions", (TENANT, started.id), started.id)
    await world.run_until_quiet()
    assert world.transport.messages == []
    assert world.engine.metrics.value("weft_messages_dropped_total", "hops") == 1


async def test_a_fault_of_the_platform_is_a_failed_attempt_and_tells_no_secret(
    make: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Raised to the host, it would cost a lease; its text may hold what was being resolved."""
    world = await make(noop=lambda call: call.input)
    await world.publish(flow(a=task("noop", retry=retry(2, "1s"), input="${secrets.K}")))

    async def broken(tenant: str, name: str) -> str:
        raise RuntimeError(f"could not decode {SECRET}")

    world.secrets.get = broken  # type: ignore[method-assign]
    started = await world.start("flow")
    await world.run_until_quiet()
    view = await world.view(started.id)
    assert view.status == "FAILED"
    assert view.error is not None
    assert view.error.type == "RuntimeError"
    assert SECRET not in view.model_dump_json()
    assert SECRET not in caplog.text
    detail = await inspect.task(world.engine, TENANT, started.id, "a")
    assert len(detail.attempts) == 2


async def test_one_outbox_that_the_broker_refuses_does_not_block_its_neighbours(
    make: MakeWorld,
) -> None:
    """The feed hands over many; each is sent by itself."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    world.transport.failing = True
    ids = [(await world.start("flow")).id for _ in range(4)]
    world.transport.failing = False
    real = world.transport.send

    async def refuse(messages: list[OutMessage]) -> None:
        if ids[1].encode() in messages[0].body:
            raise MessageTooLarge("too large")
        await real(messages)

    world.transport.send = refuse  # type: ignore[method-assign,assignment]
    page = await world.sqlite.changes("executions", None, 1_000)
    sent = await relay.relay_documents(world.engine, [doc.body for doc in page.documents])
    assert sent == 3
    await world.settle()
    done = [(await world.view(id)).status.value for id in ids]
    assert done == ["COMPLETED", "PENDING", "COMPLETED", "COMPLETED"]


async def test_a_sweep_that_the_store_cuts_short_sends_the_rest_in_the_next_pass(
    make: MakeWorld,
) -> None:
    """What was found but not sent must not count as sent lately."""
    world = await make(once=_once, wrap_store=FaultyStore)
    await world.publish(flow(a=task("once", retry=retry(2, "1s"))))
    await world.start("flow")
    await world.settle()
    world.transport.messages.clear()  # the retry's message is lost
    await world.clock.advance(1_000 + world.tunables.retry_grace_ms)
    calls = 0

    def third(name: str, args: tuple[Any, ...]) -> Any:
        nonlocal calls
        calls += name == "query"
        return NotFound("a fault of the store") if name == "query" and calls == 3 else None

    faulty(world.engine).before = third
    with pytest.raises(NotFound):
        await sweep.sweep(world.engine)
    assert (await world.sweep()).tasks == 1
    assert len(world.activities.calls) == 2


async def test_a_cold_process_compiles_a_definition_once_however_many_ask(
    make: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 first claims of a large workflow, each compiling it, would outlast their leases."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    cold = world.another("cold")
    real_read = cold.store.read

    async def read(*args: Any) -> Any:
        await asyncio.sleep(0)  # as over a network: all 64 read before the first compiles
        return await real_read(*args)

    monkeypatch.setattr(cold.store, "read", read)
    compiled: list[Any] = []
    real = catalog.load_workflow

    def counting(source: Any) -> Any:
        compiled.append(source)
        return real(source)

    monkeypatch.setattr(catalog, "load_workflow", counting)
    found = await asyncio.gather(*(catalog.compiled(cold, TENANT, "flow", 1) for _ in range(64)))
    assert len(compiled) == 1
    assert len({id(workflow) for workflow in found}) == 1
