"""Queues in memory that behave as Service Bus documents, without any protocol and any clock.

Every method takes `now` (epoch ms), so that tests can move time. One thread only.

Documented behaviour that is followed here (Service Bus messaging documentation):
- peek-lock: a received message is locked for the queue's lock duration; when the lock ends, or the
  message is abandoned, it is receivable again and its delivery count has grown;
- more deliveries than the maximum: to the dead-letter queue, reason `MaxDeliveryCountExceeded`;
- the dead-letter queue keeps messages until they are completed, whatever their delivery count;
- duplicate detection looks at the message id alone, from its first acceptance for the window, and
  drops silently; scheduled messages count;
- a scheduled message is appended with a new sequence number when it is due.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from orchestrator.domain.topology import DEAD_LETTER_SUFFIX, QueueSpec

REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"


@dataclass(slots=True, kw_only=True)
class Stored:
    """A message as the broker keeps it. `properties` are the application properties."""

    message_id: str
    body: bytes
    properties: dict[str, Any] = field(default_factory=dict)
    content_type: str | None = None
    subject: str | None = None
    due_at: int | None = None
    sequence_number: int = 0
    enqueued_at: int = 0
    deliveries: int = 0  # begun so far


@dataclass(slots=True)
class Lock:
    """One delivery that is not settled."""

    message: Stored
    until: int


class LockLost(Exception):
    """The token is no (longer a) lock of this queue."""


class Queue:
    """A queue; `dead` is its dead-letter queue, None if it is one itself."""

    def __init__(
        self,
        name: str,
        spec: QueueSpec,
        dead: Queue | None,
        numbers: Iterator[int],
        tokens: Iterator[int],
    ) -> None:
        """`numbers`: sequence numbers; `tokens`: lock tokens, unique in the whole namespace."""
        self.name = name
        self.spec = spec
        self.dead = dead
        self._numbers = numbers
        self._tokens = tokens
        self._ready: list[tuple[int, Stored]] = []
        self._scheduled: dict[int, Stored] = {}
        self._locks: dict[str, Lock] = {}
        self._seen: dict[str, int] = {}  # message id -> when it was first accepted, oldest first

    # --- arriving ---------------------------------------------------------------------------------

    def accept(self, message: Stored, now: int) -> int | None:
        """Enqueue or schedule; the sequence number, or None for a duplicate."""
        if message.message_id and self.dead is not None and self._is_duplicate(message, now):
            return None
        return self.put(message, now)

    def put(self, message: Stored, now: int) -> int:
        """Enqueue or schedule without duplicate detection; the sequence number."""
        message.sequence_number = next(self._numbers)
        if message.due_at is not None and message.due_at > now:
            self._scheduled[message.sequence_number] = message
        else:
            message.enqueued_at = now
            self._push(message)
        return message.sequence_number

    def cancel(self, number: int) -> bool:
        """Forget a scheduled message; whether it was there."""
        return self._scheduled.pop(number, None) is not None

    def _is_duplicate(self, message: Stored, now: int) -> bool:
        window = self.spec.duplicate_window_seconds * 1000
        while self._seen:
            oldest = next(iter(self._seen))
            if now - self._seen[oldest] < window:
                break
            del self._seen[oldest]
        if message.message_id in self._seen:
            return True
        self._seen[message.message_id] = now
        return False

    def _push(self, message: Stored) -> None:
        heapq.heappush(self._ready, (message.sequence_number, message))

    # --- delivering -------------------------------------------------------------------------------

    def advance(self, now: int) -> None:
        """Let locks end and scheduled messages become due."""
        for token in [t for t, lock in self._locks.items() if lock.until <= now]:
            self._back(self._locks.pop(token).message, now)
        due = [message for message in self._scheduled.values() if (message.due_at or 0) <= now]
        for message in sorted(due, key=lambda m: (m.due_at, m.sequence_number)):
            del self._scheduled[message.sequence_number]
            message.sequence_number = next(self._numbers)
            message.enqueued_at = now
            self._push(message)

    def take(self, now: int) -> tuple[str, Lock] | None:
        """Lock the oldest receivable message; the lock's token: 16 ASCII characters."""
        if not self._ready:
            return None
        _, message = heapq.heappop(self._ready)
        message.deliveries += 1
        token = f"{next(self._tokens):016}"
        lock = self._locks[token] = Lock(message, now + self.spec.lock_seconds * 1000)
        return token, lock

    def complete(self, token: str, now: int) -> None:
        """Remove. Raises `LockLost`, like all that take a token."""
        self._held(token, now)
        del self._locks[token]

    def abandon(self, token: str, now: int) -> None:
        """Give it back; the delivery counts."""
        message = self._held(token, now).message
        del self._locks[token]
        self._back(message, now)

    def release(self, token: str, now: int) -> None:
        """Give it back unread; the delivery does not count."""
        message = self._held(token, now).message
        del self._locks[token]
        message.deliveries -= 1
        self._push(message)

    def dead_letter(self, token: str, reason: str, description: str, now: int) -> None:
        """Move it to the dead-letter queue (out of one: it stays, locked no more)."""
        message = self._held(token, now).message
        del self._locks[token]
        self._bury(message, reason, description, now)

    def renew(self, token: str, now: int) -> int:
        """A full lock from now; until when."""
        lock = self._held(token, now)
        lock.until = now + self.spec.lock_seconds * 1000
        return lock.until

    def lose_locks(self, now: int) -> int:
        """End all locks at once; how many."""
        tokens = list(self._locks)
        for token in tokens:
            self._back(self._locks.pop(token).message, now)
        return len(tokens)

    def _held(self, token: str, now: int) -> Lock:
        lock = self._locks.get(token)
        if lock is None or lock.until <= now:
            raise LockLost(token)
        return lock

    def _back(self, message: Stored, now: int) -> None:
        if self.dead is not None and message.deliveries >= self.spec.max_delivery_count:
            self._bury(
                message,
                "MaxDeliveryCountExceeded",
                f"not consumed after {self.spec.max_delivery_count} deliveries",
                now,
            )
        else:
            self._push(message)

    def _bury(self, message: Stored, reason: str, description: str, now: int) -> None:
        message.properties = {**message.properties, REASON: reason, DESCRIPTION: description}
        message.deliveries = 0
        message.due_at = None
        (self.dead or self).put(message, now)

    # --- looking ----------------------------------------------------------------------------------

    def messages(self) -> list[Stored]:
        """All, by sequence number, whatever their state."""
        held = [lock.message for lock in self._locks.values()]
        everything = [message for _, message in self._ready] + held + list(self._scheduled.values())
        return sorted(everything, key=lambda message: message.sequence_number)

    def sizes(self) -> tuple[int, int, int]:
        """Receivable, locked, scheduled."""
        return len(self._ready), len(self._locks), len(self._scheduled)

    def clear(self) -> None:
        """Forget everything, the ids for duplicate detection too."""
        for part in (self._ready, self._scheduled, self._locks, self._seen):
            part.clear()


def build(specs: dict[str, QueueSpec]) -> dict[str, Queue]:
    """All queues and their dead-letter queues, by address."""
    result: dict[str, Queue] = {}
    tokens = itertools.count(1)
    for name, spec in specs.items():
        numbers = itertools.count(1)
        dead = Queue(name + DEAD_LETTER_SUFFIX, spec, None, numbers, tokens)
        result[dead.name] = dead
        result[name] = Queue(name, spec, dead, numbers, tokens)
    return result
