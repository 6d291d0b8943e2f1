"""What happens to signals: they arrive, and tasks begin to wait for them. Part of `events`.

That a task consumed a signal is told by its `TaskCompleted`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalReceived:
    """A signal was taken in. It is buffered under its name until a task takes it."""

    at: int
    id: str  # the key of its document, see `signalling.key_of`
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalAwaited:
    """A `signal` task waits for the next signal of this name, until `due_at` if it has a limit."""

    at: int
    task: int
    name: str
    due_at: int | None = None
    deadline_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRaised:
    """A buffered signal was handed to the orchestration of a `durable` task."""

    at: int
    id: str
    name: str
    task: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapItemSignalled:
    """A map item that waited took a signal: COMPLETED, the signal's payload is its output."""

    at: int
    task: int
    item: int
    signal: str
