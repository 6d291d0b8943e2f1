"""What the API shows of dead letters, and what it answers to actions on them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from orchestrator.engine.letters import LetterStatus
from orchestrator.engine.views import AttemptView, FailureView, Instant, View


class Resolution(View):
    """What a person did about it."""

    action: str
    by: str
    at: Instant
    reason: str = ""


class DeadLetterSummary(View):
    """A dead letter in a list."""

    id: str
    kind: str  # task | item | message | event
    status: LetterStatus
    reason: str
    execution: str | None = None
    """Of an event: the execution that its retry has started."""
    trigger: str | None = None
    workflow: str | None = None
    version: int | None = None
    task: str | None = None
    item: int | None = None
    attempt: int  # 0: it never reached a worker
    created_at: Instant
    error: FailureView | None = None
    tolerated: bool = False
    """An item of a map that may succeed without it (`tolerateFailures`)."""
    resolved: Resolution | None = None


class DeadLetterView(DeadLetterSummary):
    """One dead letter with everything known of it. `input`: what the last attempt was given, with
    every secret masked; null if it had none. `message`: the body, if it was a message, or what came
    instead of an event. `event`: the event that a trigger could not take in."""

    attempts: list[AttemptView] = Field(default_factory=list)
    traceparent: str | None = None
    input: Any = None
    message: str | None = None
    event: Any = None


class BulkRefusal(View):
    """A dead letter that stayed as it was, and why."""

    id: str
    code: str
    message: str


class BulkResult(View):
    """What a bulk action did. `more`: the same call with `cursor` set to `nextCursor` goes on
    behind what was done and refused."""

    action: str
    done: int
    refused: list[BulkRefusal] = Field(default_factory=list)
    more: bool = False
    next_cursor: str | None = None
