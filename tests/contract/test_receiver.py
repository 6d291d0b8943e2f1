"""Receiving: peek-lock, settlement, redelivery, dead letters, waiting."""

from __future__ import annotations

import asyncio

import pytest
from contract_support import Broker, ManualClock, message

from orchestrator.domain.topology import DEAD_LETTER_SUFFIX, ORCHESTRATION_QUEUE, QUEUES
from orchestrator.ports import MessageLockLost, QueueCounts, Received

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUEUE = ORCHESTRATION_QUEUE
DEAD = QUEUE + DEAD_LETTER_SUFFIX
LOCK_S = QUEUES[QUEUE].lock_seconds
MAX_DELIVERIES = QUEUES[QUEUE].max_delivery_count
FOREVER_MS = 50_000  # longer than the test's own time limit permits


async def receive_one(broker: Broker, queue: str = QUEUE) -> Received:
    (received,) = await broker.receive(queue, 10, 0)
    return received


async def assert_lost(broker: Broker, received: Received) -> None:
    for settle in (
        broker.complete(received),
        broker.abandon(received),
        broker.dead_letter(received, "r", "d"),
        broker.renew(received),
        broker.complete_many([received]),
    ):
        with pytest.raises(MessageLockLost) as caught:
            await settle
        assert caught.value.lost == (received.message_id,)


async def test_a_locked_message_is_nobody_elses_and_completing_removes_it(broker: Broker) -> None:
    await broker.send([message("a")])
    received = await receive_one(broker)
    assert await broker.receive(QUEUE, 10, 0) == []
    await broker.complete(received)
    await assert_lost(broker, received)
    assert await broker.counts(QUEUE) == QueueCounts(active=0, locked=0, scheduled=0, dead=0)


async def test_at_most_as_many_as_asked_for(broker: Broker) -> None:
    await broker.send([message(f"m{n}") for n in range(5)])
    batches = [await broker.receive(QUEUE, 2, 0) for _ in range(4)]
    assert [len(batch) for batch in batches] == [2, 2, 1, 0]
    with pytest.raises(ValueError, match="max_messages"):
        await broker.receive(QUEUE, 0, 0)


async def test_lock_expiry_redelivers_and_the_first_delivery_can_settle_no_more(
    broker: Broker, clock: ManualClock
) -> None:
    await broker.send([message("a"), message("b")])
    first, _ = await broker.receive(QUEUE, 10, 0)
    clock.advance(seconds=LOCK_S - 0.001)
    assert await broker.receive(QUEUE, 10, 0) == []
    clock.advance(seconds=0.001)
    await assert_lost(broker, first)  # over, although nobody has it yet
    second, other = await broker.receive(QUEUE, 10, 0)
    assert (second.message_id, second.delivery_count) == ("a", 2)
    assert second.sequence_number == first.sequence_number
    await assert_lost(broker, first)
    await broker.complete_many([second, other])
    clock.advance(seconds=LOCK_S)
    assert await broker.receive(QUEUE, 10, 0) == []


async def test_renewing_keeps_the_lock_a_full_period_from_now(
    broker: Broker, clock: ManualClock
) -> None:
    await broker.send([message("a")])
    received = await receive_one(broker)
    for _ in range(3):
        clock.advance(seconds=LOCK_S - 1)
        assert await broker.renew(received) == clock.now() + LOCK_S * 1000
    assert await broker.receive(QUEUE, 1, 0) == []
    await broker.complete(received)


async def test_abandoned_messages_come_again_first_and_count(broker: Broker) -> None:
    await broker.send([message("a"), message("b")])
    (received,) = await broker.receive(QUEUE, 1, 0)
    await broker.abandon(received)
    await assert_lost(broker, received)
    first, second = await broker.receive(QUEUE, 10, 0)
    assert [
        (first.message_id, first.delivery_count),
        (second.message_id, second.delivery_count),
    ] == [
        ("a", 2),
        ("b", 1),
    ]


@pytest.mark.parametrize("crash", [True, False])
async def test_above_max_delivery_count_a_message_is_a_dead_letter(
    broker: Broker, clock: ManualClock, crash: bool
) -> None:
    await broker.send([message("a", properties={"traceparent": "x"})])
    for delivery in range(1, MAX_DELIVERIES + 1):
        (received,) = await broker.receive(QUEUE, 1, 0)
        assert (received.message_id, received.delivery_count) == ("a", delivery)
        if crash:
            clock.advance(seconds=LOCK_S)
        else:
            await broker.abandon(received)
    assert await broker.receive(QUEUE, 10, 0) == []
    await assert_lost(broker, received)
    dead = await receive_one(broker, DEAD)
    assert (dead.message_id, dead.body, dead.queue) == ("a", b"a", DEAD)
    assert dead.properties["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert dead.properties["traceparent"] == "x"


async def test_exhausted_messages_reach_the_dead_letter_reader_without_help(
    broker: Broker, clock: ManualClock
) -> None:
    """Nobody receives from the queue itself any more: its last worker crashed."""
    await broker.send([message("a")])
    for _ in range(MAX_DELIVERIES):
        await receive_one(broker)
        clock.advance(seconds=LOCK_S)
    assert (await receive_one(broker, DEAD)).message_id == "a"


async def test_dead_lettering_moves_with_reason_and_dead_letters_last(
    broker: Broker, clock: ManualClock
) -> None:
    await broker.send([message("a"), message("b")])
    first, second = await broker.receive(QUEUE, 10, 0)
    await broker.dead_letter(first, "BadMessage", "not JSON: é")
    await broker.complete(second)
    assert (await broker.counts(QUEUE)).dead == 1
    for _ in range(2 * MAX_DELIVERIES):  # a dead letter does not die again
        dead = await receive_one(broker, DEAD)
        assert dead.properties["DeadLetterReason"] == "BadMessage"
        assert dead.properties["DeadLetterErrorDescription"] == "not JSON: é"
        clock.advance(seconds=LOCK_S)
    dead = await receive_one(broker, DEAD)
    await broker.abandon(dead)
    await broker.complete(await receive_one(broker, DEAD))
    assert await broker.counts(QUEUE) == QueueCounts(active=0, locked=0, scheduled=0, dead=0)


async def test_complete_many_completes_the_rest_when_one_lock_is_lost(
    broker: Broker, clock: ManualClock
) -> None:
    await broker.send([message(f"m{n}") for n in range(3)])
    held = await broker.receive(QUEUE, 10, 0)
    await broker.complete(held[1])
    with pytest.raises(MessageLockLost) as caught:
        await broker.complete_many(held)
    assert caught.value.lost == ("m1",)
    clock.advance(seconds=LOCK_S)
    assert await broker.receive(QUEUE, 10, 0) == []
    await broker.complete_many([])


async def test_counts_and_peek_show_what_is_there_without_locking(
    broker: Broker, clock: ManualClock
) -> None:
    due = clock.now() + 60_000
    await broker.send([message("l"), message("a"), message("b"), message("s", due_at=due)])
    await broker.receive(QUEUE, 1, 0)
    assert await broker.counts(QUEUE) == QueueCounts(active=2, locked=1, scheduled=1, dead=0)
    peeked = await broker.peek(QUEUE, 10)
    assert [(seen.message_id, seen.delivery_count, seen.lock_token) for seen in peeked] == [
        ("l", 1, ""),
        ("a", 0, ""),
        ("b", 0, ""),
        ("s", 0, ""),
    ]
    assert [seen.message_id for seen in await broker.peek(QUEUE, 2)] == ["l", "a"]
    await assert_lost(broker, peeked[1])
    clock.advance(seconds=LOCK_S)
    assert await broker.counts(QUEUE) == QueueCounts(active=4, locked=0, scheduled=0, dead=0)


async def test_a_waiting_receiver_gets_what_is_sent_later(broker: Broker) -> None:
    waiting = asyncio.ensure_future(broker.receive(QUEUE, 10, FOREVER_MS))
    await asyncio.sleep(0)
    await broker.send([message("a")])
    assert [received.message_id for received in await waiting] == ["a"]


async def test_waiting_ends_with_nothing(broker: Broker) -> None:
    assert await broker.receive(QUEUE, 10, 1) == []


async def test_every_waiting_receiver_is_served(broker: Broker) -> None:
    waiting = [asyncio.ensure_future(broker.receive(QUEUE, 1, FOREVER_MS)) for _ in range(5)]
    await asyncio.sleep(0)
    await broker.send([message(f"m{n}") for n in range(5)])
    got = [received.message_id for batch in await asyncio.gather(*waiting) for received in batch]
    assert sorted(got) == [f"m{n}" for n in range(5)]


async def test_an_abandoned_or_dead_message_wakes_its_receiver(broker: Broker) -> None:
    await broker.send([message("a")])
    received = await receive_one(broker)
    waiting = asyncio.ensure_future(broker.receive(QUEUE, 1, FOREVER_MS))
    await asyncio.sleep(0)
    await broker.abandon(received)
    (again,) = await waiting
    waiting = asyncio.ensure_future(broker.receive(DEAD, 1, FOREVER_MS))
    await asyncio.sleep(0)
    await broker.dead_letter(again, "r", "d")
    assert len(await waiting) == 1


async def test_competing_receivers_share_the_messages(broker: Broker) -> None:
    seen: list[str] = []

    async def work() -> None:
        while messages := await broker.receive(QUEUE, 3, 0):
            seen.extend(received.message_id for received in messages)
            await broker.complete_many(messages)

    await broker.send([message(f"m{n:02}") for n in range(24)])
    await asyncio.gather(*(work() for _ in range(4)))
    assert sorted(seen) == [f"m{n:02}" for n in range(24)]


@pytest.mark.parametrize("steps", range(8))
async def test_a_cancelled_receiver_passes_its_turn_on(broker: Broker, steps: int) -> None:
    await broker.receive(QUEUE, 10, 50)  # a broker that polls has looked around for once
    waiting = [asyncio.ensure_future(broker.receive(QUEUE, 10, FOREVER_MS)) for _ in range(2)]
    await asyncio.sleep(0)
    sending = asyncio.ensure_future(broker.send([message("a")]))
    for _ in range(steps):
        await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    await sending
    if waiting[0].cancelled():
        (received,) = await waiting[1]
        assert received.delivery_count == 1
    else:
        waiting[1].cancel()


@pytest.mark.parametrize("steps", range(8))
async def test_a_cancelled_receiver_takes_nothing_with_it(broker: Broker, steps: int) -> None:
    """Whenever it is cancelled: else its messages stay locked for minutes after a shutdown."""
    waiting = asyncio.ensure_future(broker.receive(QUEUE, 10, FOREVER_MS))
    await asyncio.sleep(0)
    sending = asyncio.ensure_future(broker.send([message("a")]))
    for _ in range(steps):
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await sending
    if waiting.cancelled():
        (received,) = await broker.receive(QUEUE, 10, FOREVER_MS)
        assert received.delivery_count == 1
