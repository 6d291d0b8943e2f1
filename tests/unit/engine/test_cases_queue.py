"""Cases from the field about queues (CASES.md, section Queue), proven on the real engine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.topology import EXECUTIONS, ORCHESTRATION_QUEUE, TASKS_STANDARD_QUEUE
from orchestrator.engine import orchestrate
from orchestrator.engine.core import Tunables
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.outbox import out_message
from orchestrator.ports import ActivityCall, TransportError
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld


async def _run_task(world: World, execution: str, task: str) -> Any:
    return out_message(Message(MessageType.RUN_TASK, TENANT, execution, task), world.ids.new())


async def test_second_delivery_while_the_lease_is_fresh_is_settled_without_running(
    make: MakeWorld,
) -> None:
    """Azure/azure-functions-host#2796: a handler outlives the lock; the message comes again."""
    gate = asyncio.Event()

    async def slow(call: ActivityCall) -> str:
        await gate.wait()
        return "done"

    world = await make(slow=slow)
    await world.publish(flow(a=task("slow", timeout="10m")))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    [message] = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    first = asyncio.create_task(world.deliver([message]))
    await quiesce()
    for _ in range(42):  # 7 minutes, the lease is renewed all the while
        await world.clock.advance(10_000)
    await world.deliver([message], world.another("worker-2"))
    assert len(world.activities.calls) == 1
    gate.set()
    await first
    await world.settle()
    view = await world.view(started.id)
    assert view.status == "COMPLETED"
    doc = await world.sqlite.read(EXECUTIONS, (TENANT, started.id), "task:a")
    assert [entry["attempt"] for entry in doc.body["attempts"]] == [1]


async def test_connection_error_is_retried_by_scheduled_messages_not_by_abandoning(
    make: MakeWorld,
) -> None:
    """Azure/azure-functions-servicebus-extension#161: ten deliveries burn in seconds."""
    begun: list[int] = []

    def flaky(call: ActivityCall) -> str:
        begun.append(world.clock.now())
        if call.attempt < 3:
            raise ConnectionError("outage")
        return "ok"

    world = await make(flaky=flaky)
    await world.publish(flow(a=task("flaky", retry=retry(5, "10s"))))
    started = await world.start("flow")
    await world.run_until_quiet()  # a handler that raised would fail this
    assert [at - begun[0] for at in begun] == [0, 10_000, 20_000]
    assert (await world.view(started.id)).status == "COMPLETED"


async def test_every_dispatch_carries_a_message_id_never_used_before(make: MakeWorld) -> None:
    """Particular/NServiceBus.AzureServiceBus#201: a retry with the original's id is dropped."""
    outcomes = iter([ConnectionError("one"), ConnectionError("two"), None])

    def flaky(call: ActivityCall) -> None:
        error = next(outcomes)
        if error:
            raise error

    world = await make(flaky=flaky)
    await world.publish(flow(a=task("flaky", retry=retry(3, "2s"))))
    started = await world.start("flow")
    await world.settle()
    [lost] = world.transport.messages  # the scheduled retry, which the broker loses
    world.transport.messages.clear()
    await world.clock.advance(2_000 + world.tunables.retry_grace_ms)
    await world.sweep()
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
    runs = [m.message_id for m in world.transport.sent if m.queue == TASKS_STANDARD_QUEUE]
    assert len(runs) == len(set(runs)) == 4  # first, retry (lost), swept, second retry
    assert lost.message_id in runs


async def test_lost_scheduled_retry_is_sent_again_by_one_sweep_without_using_an_attempt(
    make: MakeWorld,
) -> None:
    """hoangsnowy/FlowOrchestrator#186: a delayed self-message vanished once."""

    def flaky(call: ActivityCall) -> int:
        if call.attempt == 1:
            raise ConnectionError("once")
        return call.attempt

    world = await make(flaky=flaky)
    await world.publish(flow(a=task("flaky", retry=retry(2, "30s")), output="${tasks.a.output}"))
    started = await world.start("flow")
    await world.settle()
    world.transport.messages.clear()
    await world.clock.advance(30_000 + world.tunables.retry_grace_ms - 1)
    assert (await world.sweep()).tasks == 0  # not overdue yet
    await world.clock.advance(1)
    assert (await world.sweep()).tasks == 1
    assert world.engine.metrics.value("weft_repairs_total", "retry") == 1
    assert (await world.view(started.id)).output == 2


async def test_sender_detached_on_first_use_start_still_answers_and_the_slow_path_sends(
    make: MakeWorld,
) -> None:
    """Azure/azure-sdk-for-python#38627: idle links are detached after ten minutes."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    world.transport.failing = True
    started = await world.start("flow")
    assert started.created
    world.transport.failing = False
    await world.clock.advance(world.tunables.outbox_grace_ms)
    report = await world.sweep()
    assert report.outboxes == 1
    assert (await world.view(started.id)).status == "COMPLETED"
    ids = [m.message_id for m in world.transport.sent]
    assert len(ids) == len(set(ids))


async def test_bad_messages_in_a_batch_become_dead_letters_and_the_rest_is_handled_once(
    make: MakeWorld,
) -> None:
    """Azure/azure-functions-python-worker#783: one bad message fails the whole batch."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = [await world.start("flow") for _ in range(8)]
    batch = [
        Incoming(body=message.body, message_id=message.message_id)
        for message in world.transport.take(world.clock.now())
    ]
    batch.insert(3, Incoming(body=b"{not json", message_id="bad-4"))
    newer = b'{"v":99,"type":"check","tenant":"t","execution":"e"}'
    batch.insert(6, Incoming(body=newer, message_id="bad-7"))
    await orchestrate.handle(world.engine, batch)
    await orchestrate.handle(world.engine, batch[3:4])  # delivered again: still one record
    await world.settle()
    assert {(await world.view(one.id)).status for one in started} == {"COMPLETED"}
    kept = await _dead_letters(world)
    assert {doc["messageId"] for doc in kept} == {"bad-4", "bad-7"}
    reasons = " ".join(doc["reason"] for doc in kept)
    assert "not JSON" in reasons
    assert "schemaVersion 99" in reasons
    assert len(world.activities.calls) == 8


async def _dead_letters(world: World) -> list[dict[str, Any]]:
    from orchestrator.ports import Query, Where

    found = await world.sqlite.query(
        EXECUTIONS,
        Query(where=(Where("type", "=", "deadletter"),)),
    )
    return [doc.body for doc in found]


async def test_messages_redelivered_after_their_lock_ran_out_are_absorbed(
    make: MakeWorld,
) -> None:
    """Azure/azure-functions-core-tools#3248: a batch outlives its lock and comes again."""
    world = await make(noop=lambda call: call.item)
    definition = flow(
        m={"type": "map", "items": "${input}", "do": task("noop")},
        z=task("noop", "m"),
    )
    await world.publish(definition)
    once = await world.start("flow", list(range(50)))
    twice = await world.start("flow", list(range(50)))
    while due := world.transport.take(world.clock.now()):
        await world.deliver(due)
        again = [m for m in due if m.queue == ORCHESTRATION_QUEUE and twice.id.encode() in m.body]
        await world.deliver(again)
        await world.deliver(reversed(again), world.another("worker-2"))
    for execution in (once, twice):
        assert (await world.view(execution.id)).status == "COMPLETED"
        await world.verified(execution.id)
    doc = (await world.sqlite.read(EXECUTIONS, (TENANT, twice.id), twice.id)).body
    reference = (await world.sqlite.read(EXECUTIONS, (TENANT, once.id), once.id)).body
    assert doc["state"]["tasks"] == reference["state"]["tasks"]
    assert doc["state"]["maps"] == reference["state"]["maps"]


async def test_corrupt_execution_becomes_a_dead_letter_and_its_neighbours_commit_in_round_one(
    make: MakeWorld,
) -> None:
    """Azure/azure-functions-python-worker#1291: a neighbour's failure must not be everybody's."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = [await world.start("flow") for _ in range(10)]
    bad = started[4].id
    doc = await world.sqlite.read(EXECUTIONS, (TENANT, bad), bad)
    broken = {**doc.body, "state": {"status": "RUNNING"}}
    await world.sqlite.replace(EXECUTIONS, (TENANT, bad), broken)
    batch = [
        Incoming(body=message.body, message_id=message.message_id)
        for message in world.transport.take(world.clock.now())
    ]
    for count in range(1, 13):
        await orchestrate.handle(
            world.engine,
            [Incoming(body=b.body, message_id=b.message_id, delivery_count=count) for b in batch],
        )
    await world.settle()
    good = [one.id for one in started if one.id != bad]
    assert {(await world.view(one)).status for one in good} == {"COMPLETED"}
    assert len(world.activities.calls) == 9
    [kept] = await _dead_letters(world)
    assert bad in kept["reason"]


async def test_slow_commits_hand_the_rest_of_a_batch_back_as_new_messages(
    make: MakeWorld,
) -> None:
    """Azure/azure-sdk-for-net#27979: batch functions get no lock renewal."""

    class Slow:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def batch(self, *args: Any) -> Any:
            world.clock.jump(200)
            return await self._store.batch(*args)

    world = await make(
        noop=lambda call: None, tunables=Tunables(batch_budget_ms=3_000), wrap_store=Slow
    )
    await world.publish(flow(a=task("noop")))
    started = [await world.start("flow") for _ in range(100)]
    world.clock.jump(10)
    due = world.transport.take(world.clock.now())
    assert len(due) == 100
    begin = world.clock.now()
    await world.deliver(due)
    assert world.clock.now() - begin <= 3_000 + 200 * orchestrate.GROUPS_AT_ONCE
    assert world.engine.metrics.value("weft_handed_back_total", "budget") > 50
    await world.run_until_quiet()
    assert {(await world.view(one.id)).status for one in started} == {"COMPLETED"}


async def test_broker_and_store_both_gone_is_the_one_thing_that_raises(make: MakeWorld) -> None:
    """Then, and only then, the host must abandon the message."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    await world.start("flow")
    [message] = world.transport.take(world.clock.now())
    await world.sqlite.close()
    world.transport.failing = True
    with pytest.raises(TransportError):
        await asyncio.gather(world.deliver([message]), _pass_time(world))
    await world.sqlite.open()


async def _pass_time(world: World) -> None:
    for _ in range(60):
        await quiesce(3)
        await world.clock.advance(1_000)
