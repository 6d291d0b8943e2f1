"""The seam to what is outside of the platform and takes events: queues, topics, Event Grid."""

from __future__ import annotations

from typing import Protocol


class EventSink(Protocol):
    """Delivers CloudEvents to targets by name. Names are the operator's, set when the platform
    starts; a definition can only name one of them, never an address."""

    def targets(self) -> frozenset[str]:
        """The names that `publish` knows."""
        ...

    async def publish(self, target: str, event: bytes, event_id: str) -> None:
        """Hand over one event (CloudEvents 1.0, structured, JSON, UTF-8), durably. The same event
        twice is the caller's right: it carries the same id. Raises `EventRefused`, and
        `TransportError` for what may pass (also for a lost answer)."""
        ...

    async def close(self) -> None:
        """Release everything. Idempotent."""
        ...


class EventRefused(Exception):
    """The target will not take this event, however often it is sent; the text says why, without
    the event's data."""
