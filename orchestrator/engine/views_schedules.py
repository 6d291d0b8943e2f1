"""What the API shows of schedules."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from orchestrator.engine.views import Instant, View


class FireTime(View):
    """A fire time to come: nominal, in UTC and in the schedule's zone; `dueAt` with its jitter."""

    at: Instant
    local: str  # ISO 8601 with the zone's offset
    due_at: Instant


class FireView(View):
    """What happened to a tick, or to several at once."""

    n: int  # grows by one with each entry
    at: Instant
    outcome: str  # started | manual | missed | skipped | refused
    tick: Instant | None = None  # the nominal time; the first one if `count` is more than 1
    count: int = 1
    execution: str | None = None  # that was started, or that still ran
    code: str | None = None  # why not
    message: str | None = None
    by: str | None = None


class ScheduleSummary(View):
    """A schedule in a list."""

    name: str
    workflow: str
    status: str  # ACTIVE | PAUSED | ENDED (no tick will come)
    revision: int
    created_at: Instant
    updated_at: Instant
    next_at: Instant | None = None
    waiting: int = 0  # ticks that are due and not yet started
    last: FireView | None = None


class ScheduleView(ScheduleSummary):
    """One schedule with its definition and the next fire times."""

    definition: Any
    next: list[FireTime] = Field(default_factory=list)
    counts: dict[str, int] = Field(default_factory=dict)
    """Number of ticks by outcome, since the creation."""
    active: list[str] = Field(default_factory=list)
    """Executions that may still run, as far as the overlap rule looks at them."""
    links: dict[str, str] = Field(default_factory=dict)


class ScheduleReport(View):
    """What one pass of the scheduler did."""

    leading: bool
    started: int = 0
    failed: int = 0  # schedules that the next pass tries again
