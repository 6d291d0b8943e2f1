"""What a test may make the broker do wrong, and what the broker counts.

The attributes of `Faults` are orders that the broker's thread reads; set them from any thread. The
methods act at once and return when it is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

SERVER_BUSY = "com.microsoft:server-busy"
INTERNAL = "amqp:internal-error"
DETACH_FORCED = "amqp:link:detach-forced"
CONNECTION_FORCED = "amqp:connection:forced"


class Broker(Protocol):
    """What the methods of `Faults` need of the broker."""

    def call(self, work: Callable[[], Any]) -> Any: ...
    def detach_links(self, publishers_only: bool) -> int: ...
    def drop_connections(self, abrupt: bool, publishers_only: bool) -> int: ...
    def lose_locks(self, queue: str) -> int: ...
    def deliver_again(self, queue: str) -> int: ...


@dataclass(slots=True)
class Faults:
    """Orders for the broker; `clear` ends them all. Counts run down to 0 as they are used."""

    broker: Broker
    refuse_connections: bool = False
    """Close every new connection at once (`amqp:connection:forced`)."""
    refuse_tokens: int = 0
    """Answer so many put-tokens with 401."""
    reject_sends: int = 0
    """Reject so many transfers with `condition`; nothing is stored."""
    condition: str = SERVER_BUSY
    ignore_sends: int = 0
    """Store so many transfers and never answer."""
    disconnect_on_send: Literal["", "before", "after"] = ""
    """Drop the connection in the middle of the next transfer: before or after storing it."""

    def clear(self) -> None:
        """No more faults."""
        self.refuse_connections = False
        self.refuse_tokens = self.reject_sends = self.ignore_sends = 0
        self.condition = SERVER_BUSY
        self.disconnect_on_send = ""

    def detach(self, *, publishers_only: bool = False) -> int:
        """Detach every link to a queue, as the service does with idle ones after ten minutes; how
        many. `publishers_only`: leave those of receivers."""
        return self.broker.call(lambda: self.broker.detach_links(publishers_only))

    def disconnect(self, *, abrupt: bool = True, publishers_only: bool = False) -> int:
        """Drop all connections, without (`abrupt`) or with a Close frame; how many.
        `publishers_only`: leave those that only receive."""
        return self.broker.call(lambda: self.broker.drop_connections(abrupt, publishers_only))

    def lose_locks(self, queue: str) -> int:
        """End all locks of a queue before their time; how many. The messages come again."""
        return self.broker.call(lambda: self.broker.lose_locks(queue))

    def deliver_again(self, queue: str) -> int:
        """Enqueue a copy of every message that is in the queue or was delivered from it and is not
        settled: same ids, past duplicate detection; how many."""
        return self.broker.call(lambda: self.broker.deliver_again(queue))


@dataclass(slots=True)
class Counters:
    """What happened so far. `operations`: connections, links, tokens, transfers (each one send
    operation, batch or not), messages, duplicates, scheduled, delivered, completed, abandoned,
    released, deadLettered, deferred, lockLost, detached, and one entry per management operation."""

    operations: Counter[str] = field(default_factory=Counter[str])
    bytes_in: int = 0  # of transfers that clients sent to queues
    bytes_out: int = 0  # of deliveries
