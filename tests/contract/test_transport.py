"""Sending: order, schedules, duplicate detection, limits."""

from __future__ import annotations

import pytest
from contract_support import Broker, ManualClock, message

from orchestrator.domain.topology import (
    DEAD_LETTER_SUFFIX,
    MAX_MESSAGE_BYTES,
    ORCHESTRATION_QUEUE,
    QUEUES,
    TASKS_STANDARD_QUEUE,
)
from orchestrator.ports import MessageTooLarge, OutMessage, QueueNotFound, TransportError

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUEUE = ORCHESTRATION_QUEUE
WINDOW_S = QUEUES[QUEUE].duplicate_window_seconds


async def drain(broker: Broker, queue: str = QUEUE) -> list[str]:
    """Receive and complete everything that is there; the ids in order."""
    seen: list[str] = []
    while messages := await broker.receive(queue, 10, 0):
        await broker.complete_many(messages)
        seen += [received.message_id for received in messages]
    return seen


async def test_messages_arrive_once_in_order_with_all_they_carry(
    broker: Broker, clock: ManualClock
) -> None:
    properties = {"traceparent": "00-ab-cd-01", "ü": "é\u0000"}
    await broker.send([message("a", body=b"\x00\xff", properties=properties), message("b")])
    await broker.send([message("c", TASKS_STANDARD_QUEUE), message("d")])
    first, *others = await broker.receive(QUEUE, 10, 0)
    assert (first.message_id, first.body, first.properties) == ("a", b"\x00\xff", properties)
    assert (first.queue, first.delivery_count) == (QUEUE, 1)
    assert first.enqueued_at == clock.now()
    assert first.locked_until == clock.now() + QUEUES[QUEUE].lock_seconds * 1000
    assert [received.message_id for received in others] == ["b", "d"]
    numbers = [first.sequence_number, *(received.sequence_number for received in others)]
    assert numbers == sorted(set(numbers))
    assert len({received.lock_token for received in (first, *others)}) == 3
    assert await drain(broker, TASKS_STANDARD_QUEUE) == ["c"]


async def test_sequence_numbers_grow_although_the_queue_was_empty(broker: Broker) -> None:
    numbers: list[int] = []
    for n in range(3):
        await broker.send([message(f"m{n}")])
        (received,) = await broker.receive(QUEUE, 1, 0)
        await broker.complete(received)
        numbers.append(received.sequence_number)
    assert numbers == sorted(set(numbers))


async def test_scheduled_messages_are_not_seen_before_they_are_due(
    broker: Broker, clock: ManualClock
) -> None:
    await broker.send(
        [
            message("late", due_at=clock.now() + 20_000),
            message("soon", due_at=clock.now() + 10_000),
            message("past", due_at=clock.now() - 5),
            message("now"),
        ]
    )
    assert await drain(broker) == ["past", "now"]
    clock.advance(seconds=9.999)
    assert await drain(broker) == []
    clock.advance(seconds=0.001)
    (soon,) = await broker.receive(QUEUE, 10, 0)
    assert (soon.message_id, soon.enqueued_at) == ("soon", clock.now())
    clock.advance(seconds=10)
    assert await drain(broker) == ["late"]


async def test_duplicates_within_the_window_are_dropped_silently(
    broker: Broker, clock: ManualClock
) -> None:
    await broker.send([message("a"), message("a", body=b"other"), message("b")])
    await broker.send([message("a")])
    assert await drain(broker) == ["a", "b"]
    clock.advance(seconds=WINDOW_S - 1)
    await broker.send([message("a"), message("c")])  # also when the first one is long settled
    assert await drain(broker) == ["c"]


async def test_duplicate_detection_ends_with_the_window_and_starts_again(
    broker: Broker, clock: ManualClock
) -> None:
    for _ in range(3):
        await broker.send([message("a")])
        assert await drain(broker) == ["a"]
        clock.advance(seconds=WINDOW_S - 1)
        await broker.send([message("a")])
        assert await drain(broker) == []
        clock.advance(seconds=2)


async def test_duplicate_detection_counts_scheduled_messages(
    broker: Broker, clock: ManualClock
) -> None:
    """A retry with the id of the original would be lost: only fresh ids may be used."""
    await broker.send([message("a", due_at=clock.now() + 60_000)])
    await broker.send([message("a")])
    assert await drain(broker) == []
    clock.advance(seconds=60)
    await broker.send([message("a", due_at=clock.now() + 1_000)])
    assert await drain(broker) == ["a"]
    clock.advance(seconds=5)
    assert await drain(broker) == []


async def test_duplicate_detection_is_per_queue(broker: Broker) -> None:
    await broker.send([message("a"), message("a", TASKS_STANDARD_QUEUE)])
    assert await drain(broker) == ["a"]
    assert await drain(broker, TASKS_STANDARD_QUEUE) == ["a"]


async def test_many_messages_go_in_one_call(broker: Broker) -> None:
    ids = [f"m{n:04}" for n in range(350)]
    await broker.send([message(id) for id in ids])
    await broker.send([message(id) for id in [*ids, "last"]])
    assert await drain(broker) == [*ids, "last"]
    await broker.send([])


async def test_256_kilobytes_is_the_most_properties_included(broker: Broker) -> None:
    with pytest.raises(MessageTooLarge):
        await broker.send([message("small"), message("big", body=b"x" * (MAX_MESSAGE_BYTES + 1))])
    assert await drain(broker) == []
    half = "é" * (MAX_MESSAGE_BYTES // 4)
    with pytest.raises(MessageTooLarge):
        await broker.send(
            [message("big", body=b"x" * (MAX_MESSAGE_BYTES // 2), properties={"p": half})]
        )
    await broker.send([message("fits", body=b"x" * (MAX_MESSAGE_BYTES - 1024))])
    assert await drain(broker) == ["fits"]


@pytest.mark.parametrize("queue", ["nowhere", "", QUEUE + DEAD_LETTER_SUFFIX, "Orchestration"])
async def test_unknown_queues_are_refused_and_nothing_is_sent(broker: Broker, queue: str) -> None:
    with pytest.raises(QueueNotFound):
        await broker.send([message("a"), message("b", queue)])
    assert await drain(broker) == []
    if not queue.startswith(QUEUE):
        with pytest.raises(QueueNotFound):
            await broker.receive(queue, 1, 0)
        with pytest.raises(QueueNotFound):
            await broker.counts(queue)


@pytest.mark.parametrize("id", ["", "x" * 129, "\ud800"], ids=repr)
async def test_message_ids_have_limits(broker: Broker, id: str) -> None:
    with pytest.raises(TransportError):
        await broker.send([OutMessage(queue=QUEUE, body=b"", message_id=id)])
    await broker.send([message("x" * 128)])
    assert await drain(broker) == ["x" * 128]
