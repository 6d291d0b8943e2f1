"""A broker in memory with Service Bus's manners, and with hands to make it misbehave.

Peek-lock with expiry, delivery count, dead letters, schedules, duplicate detection: it passes the
contract suite (`test_contract.py`). The second half is for the simulation: losing, doubling,
delaying and reordering messages, and ending locks early.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.adapters.message_rules import check_message
from orchestrator.domain.topology import DEAD_LETTER_SUFFIX, QUEUES
from orchestrator.ports import (
    MessageLockLost,
    OutMessage,
    QueueCounts,
    QueueNotFound,
    Received,
)

DOUBLED = 20


@dataclass(slots=True)
class Held:
    """A message in a queue. Locked while `token` is set and `available_at` is ahead."""

    seq: int
    order: float  # place in the queue: its number, unless it was moved
    message: OutMessage
    available_at: int
    enqueued_at: int
    deliveries: int = 0
    token: str = ""
    reason: str = ""
    description: str = ""


class MemoryBroker:
    """`Transport` and `Receiver`; see the module."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._seq = 0
        self._tokens = 0
        self._seen: dict[tuple[str, str], int] = {}
        self.queues: dict[str, list[Held]] = {
            name: [] for queue in QUEUES for name in (queue, queue + DEAD_LETTER_SUFFIX)
        }
        self._waiting: dict[str, list[asyncio.Future[None]]] = {name: [] for name in self.queues}
        self.observers: list[Callable[[OutMessage], None]] = []

    async def send(self, messages: Sequence[OutMessage]) -> None:
        """All, or none if one is refused."""
        for message in messages:
            check_message(message)
        now = self._now()
        for message in messages:
            for observer in self.observers:
                observer(message)
            key = (message.queue, message.message_id)
            if self._seen.get(key, 0) > now:
                continue
            self._seen[key] = now + QUEUES[message.queue].duplicate_window_seconds * 1000
            self._put(message, now if message.due_at is None else max(now, message.due_at))

    def _put(self, message: OutMessage, at: int, *, deliveries: int = 0) -> None:
        self._seq += 1
        held = Held(self._seq, float(self._seq), message, at, at, deliveries)
        self.queues[message.queue].append(held)
        self._wake(message.queue)

    def _wake(self, queue: str) -> None:
        waiting, self._waiting[queue] = self._waiting[queue], []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # --- receiving --------------------------------------------------------------------------------

    async def receive(self, queue: str, max_messages: int, wait_ms: int) -> list[Received]:
        """See `ports.Receiver`."""
        self._known(queue)
        if max_messages < 1:
            raise ValueError(f"max_messages {max_messages}: at least 1")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        while True:
            if found := self._lock(queue, max_messages):
                return found
            left = deadline - loop.time()
            if left <= 0:
                return []
            await self._wait(queue, left)

    async def _wait(self, queue: str, longest: float) -> None:
        now = self._now()
        source = queue.removesuffix(DEAD_LETTER_SUFFIX)
        times = [held.available_at for name in (queue, source) for held in self.queues[name]]
        if times:
            longest = min(longest, max(0.001, (min(times) - now) / 1000))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting[queue].append(future)
        timer = loop.call_later(longest, _expire, future)
        try:
            await future
        finally:
            timer.cancel()
            if future in self._waiting[queue]:
                self._waiting[queue].remove(future)

    def _lock(self, queue: str, limit: int) -> list[Received]:
        now = self._now()
        self._bury(queue, now)
        ready = [held for held in self.queues[queue] if held.available_at <= now]
        ready.sort(key=lambda held: held.order)
        spec = QUEUES[queue.removesuffix(DEAD_LETTER_SUFFIX)]
        result: list[Received] = []
        for held in ready[:limit]:
            self._tokens += 1
            held.token = f"lock-{self._tokens}"
            held.available_at = now + spec.lock_seconds * 1000
            held.deliveries += 1
            result.append(_received(queue, held, held.token))
        return result

    def _bury(self, queue: str, now: int) -> None:
        source = queue.removesuffix(DEAD_LETTER_SUFFIX)
        limit = QUEUES[source].max_delivery_count
        for held in list(self.queues[source]):
            if held.deliveries >= limit and held.available_at <= now:
                self._die(source, held, "MaxDeliveryCountExceeded", "delivered too often")

    def _die(self, source: str, held: Held, reason: str, description: str) -> None:
        self.queues[source].remove(held)
        held.token, held.available_at = "", self._now()
        held.deliveries, held.reason, held.description = 0, reason, description
        self.queues[source + DEAD_LETTER_SUFFIX].append(held)
        self._wake(source + DEAD_LETTER_SUFFIX)

    def _held(self, message: Received) -> Held | None:
        now = self._now()
        for held in self.queues[message.queue]:
            if held.seq == message.sequence_number:
                mine = message.lock_token and held.token == message.lock_token
                return held if mine and held.available_at > now else None
        return None

    async def complete(self, message: Received) -> None:
        """Done. Raises `MessageLockLost`."""
        await self.complete_many([message])

    async def complete_many(self, messages: Sequence[Received]) -> None:
        """All whose lock is held; raises `MessageLockLost` for the others."""
        lost: list[str] = []
        for message in messages:
            held = self._held(message)
            if held is None:
                lost.append(message.message_id)
            else:
                self.queues[message.queue].remove(held)
        if lost:
            raise _lost(lost)

    async def abandon(self, message: Received) -> None:
        """Give it back; the delivery counts."""
        held = self._mine(message)
        held.token, held.available_at = "", self._now()
        self._bury(message.queue, self._now())
        self._wake(message.queue)

    async def dead_letter(self, message: Received, reason: str, description: str) -> None:
        """Move it to the dead-letter queue."""
        held = self._mine(message)
        self._die(message.queue.removesuffix(DEAD_LETTER_SUFFIX), held, reason, description)

    async def renew(self, message: Received) -> int:
        """A full lock from now; until when."""
        held = self._mine(message)
        source = message.queue.removesuffix(DEAD_LETTER_SUFFIX)
        held.available_at = self._now() + QUEUES[source].lock_seconds * 1000
        return held.available_at

    def _mine(self, message: Received) -> Held:
        held = self._held(message)
        if held is None:
            raise _lost([message.message_id])
        return held

    async def peek(self, queue: str, limit: int) -> list[Received]:
        """The first messages, without locking."""
        self._known(queue)
        self._bury(queue, self._now())
        found = sorted(self.queues[queue], key=lambda held: held.seq)[:limit]
        return [_received(queue, held, "") for held in found]

    async def counts(self, queue: str) -> QueueCounts:
        """How many messages wait for what."""
        self._known(queue)
        now = self._now()
        self._bury(queue, now)
        held = self.queues[queue]
        active = sum(1 for one in held if one.available_at <= now)
        locked = sum(1 for one in held if one.available_at > now and one.token)
        dead = len(self.queues.get(queue + DEAD_LETTER_SUFFIX, ()))
        return QueueCounts(
            active=active, locked=locked, scheduled=len(held) - active - locked, dead=dead
        )

    async def close(self) -> None:
        """Nothing to release."""

    def _known(self, queue: str) -> None:
        if queue not in self.queues:
            raise QueueNotFound(f"no queue {queue!r:.80}")

    # --- misbehaving ------------------------------------------------------------------------------

    def lose(self, rng: random.Random, queue: str, share: float) -> int:
        """Forget messages, as if the broker's file had gone; how many."""
        before = self.queues[queue]
        self.queues[queue] = [held for held in before if rng.random() >= share]
        return len(before) - len(self.queues[queue])

    def unlock(self, queue: str) -> None:
        """End every lock now: its holder works on, and somebody else receives the message too."""
        for held in self.queues[queue]:
            if held.token:
                held.token, held.available_at = "", self._now()
        self._wake(queue)

    def double(self, rng: random.Random, queue: str) -> None:
        """Deliver half of the messages twice (a settlement that got lost). Not of a crowd: doubled
        again and again, it would be all that is simulated."""
        for held in self.queues[queue][:DOUBLED]:
            if rng.random() < 0.5:
                self._put(held.message, max(held.available_at, self._now()), deliveries=1)

    def shuffle(self, rng: random.Random, queue: str) -> None:
        """Any order."""
        for held in self.queues[queue]:
            held.order = rng.random() * self._seq

    def delay(self, rng: random.Random, queue: str, ms: int) -> None:
        """Half of what waits becomes visible later."""
        for held in self.queues[queue]:
            if not held.token and rng.random() < 0.5:
                held.available_at = max(held.available_at, self._now() + ms)


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _lost(ids: list[str]) -> MessageLockLost:
    return MessageLockLost(f"lock lost of {len(ids)} message(s)", lost=ids)


def _received(queue: str, held: Held, token: str) -> Received:
    properties = dict(held.message.properties)
    if held.reason:
        properties |= {
            "DeadLetterReason": held.reason,
            "DeadLetterErrorDescription": held.description,
        }
    return Received(
        queue=queue,
        message_id=held.message.message_id,
        body=held.message.body,
        properties=properties,
        lock_token=token,
        locked_until=held.available_at if token else 0,
        delivery_count=held.deliveries,
        sequence_number=held.seq,
        enqueued_at=held.enqueued_at,
    )
