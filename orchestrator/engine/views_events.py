"""What the API shows of event triggers, and what it answers to events."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from orchestrator.engine.views import FailureView, Instant, View


class TriggerView(View):
    """A trigger as it was written, and who changed it when."""

    name: str
    description: str = ""
    workflow: str
    match: Any
    filter: str | None = None
    input: Any = None
    tags: dict[str, str] = Field(default_factory=dict)
    paused: bool
    created_at: Instant
    updated_at: Instant
    updated_by: str = ""


class TriggerTest(View):
    """What a trigger would do with an event; nothing was started. `stopped`: what said no, or
    failed: `match`, `filter`, `input`, `start`; null: it would start."""

    starts: bool
    stopped: str | None = None
    input: Any = None
    tags: dict[str, str] = Field(default_factory=dict)
    error: FailureView | None = None


class EventFault(View):
    """What is wrong with one event of a batch."""

    code: str
    message: str
    details: list[dict[str, str]] = Field(default_factory=list)


class EventReceipt(View):
    """What became of one event. Executions that an earlier delivery started are listed as well.
    `error`: it was not taken in; the others were."""

    id: str | None = None
    source: str | None = None
    executions: list[str] = Field(default_factory=list)
    dead_letters: list[str] = Field(default_factory=list)
    unmatched: bool = False
    error: EventFault | None = None


class EventsReceipt(View):
    """The answer to events: one entry each, in the order in which they came."""

    accepted: int
    refused: int
    items: list[EventReceipt]
