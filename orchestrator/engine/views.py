"""What the API shows: pydantic models, camelCase on the wire, times in ISO 8601 (UTC).

Defined beside the read side, so that handlers, OpenAPI and the command line share one shape.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from orchestrator.domain.priority import Priority
from orchestrator.domain.status import ExecutionStatus, TaskStatus
from orchestrator.engine.views_base import Instant as Instant
from orchestrator.engine.views_base import Page as Page
from orchestrator.engine.views_base import View as View
from orchestrator.engine.views_code import OrchestrationView


class FailureView(View):
    """Why something failed; `causes` outermost first."""

    type: str
    message: str
    task: str | None = None
    item: int | None = None
    field: str | None = None
    expression: str | None = None
    retryable: bool = True
    causes: list[FailureView] = Field(default_factory=list)


class Progress(View):
    """Number of tasks by state."""

    total: int
    pending: int = 0
    queued: int = 0
    waiting: int = 0
    completed: int = 0
    skipped: int = 0
    cancelled: int = 0
    dead_lettered: int = 0


class ExecutionSummary(View):
    """An execution in a list."""

    id: str
    workflow: str
    version: int
    status: ExecutionStatus
    created_at: Instant
    started_at: Instant | None = None
    ended_at: Instant | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    started_by: str = ""
    parent: str | None = None  # id of the execution that started it
    priority: Priority = Priority.STANDARD
    progress: Progress


class CompensationView(View):
    """How far the undoing of what had completed is."""

    status: Literal["running", "complete", "incomplete", "notRun"]
    """`incomplete`: it ended with some that failed or were left. `notRun`: it was cancelled without
    undoing anything."""
    tasks: int  # how many completed tasks have a compensation
    done: int
    failed: list[str] = Field(default_factory=list)
    """Compensations that failed for good; each is a dead letter, too."""
    left: list[str] = Field(default_factory=list)
    """Those to come; after the end, those that were never run to their end."""


class EventOrigin(View):
    """The event that started an execution; long ids and sources are cut."""

    trigger: str
    id: str
    source: str
    type: str


class ExecutionView(ExecutionSummary):
    """One execution, with input, output and error."""

    deadline_at: Instant | None = None
    idempotency_key: str | None = None
    schedule: str | None = None
    """The schedule that started it, and the tick for which it did (none: by hand)."""
    scheduled_for: Instant | None = None
    replay_of: str | None = None
    """The execution that this one repeats."""
    replay_from: str | None = None
    """The task from which on it does; results of others were copied."""
    parent_task: str | None = None
    """The task of the parent that started it."""
    parent_item: int | None = None
    """The item of that task, if it is a map."""
    depth: int = 0
    """Executions above it: its parent, that one's, and so on."""
    event: EventOrigin | None = None
    """The event that started it, through which trigger."""
    traceparent: str | None = None
    seq: int
    waiting_for: str | None = None
    """Why it has not begun: `concurrency`, a place in its group. None: it has, or is about to."""
    holding: list[str] = Field(default_factory=list)
    """Tasks whose failure an operator must decide about before it goes on (`onFailure: hold`)."""
    compensation: CompensationView | None = None
    terminated: bool = False
    """An operator ended it without waiting for anything."""
    erased_at: Instant | None = None
    """Since then its payloads and error messages are gone."""
    input: Any = None
    output: Any = None
    error: FailureView | None = None
    orchestration: OrchestrationView | None = None
    """Of a code workflow: what Durable Functions says of it now."""
    links: dict[str, str] = Field(default_factory=dict)


class AttemptView(View):
    """One attempt of a task."""

    attempt: int
    worker: str
    started_at: Instant
    ended_at: Instant | None = None
    error: FailureView | None = None
    child: str | None = None
    """The execution that this attempt of a `workflow` task started."""
    instance: str | None = None
    """The orchestration that this attempt of a `durable` task started."""


class LeaseView(View):
    """Who works on a task now."""

    worker: str
    expires_at: Instant
    heartbeat_at: Instant


class MapView(View):
    """Progress of a map."""

    count: int
    queued: int
    completed: int
    failed: int


class RetryView(View):
    """The retry policy in force, defaults applied. Milliseconds."""

    max_attempts: int
    initial_interval_ms: int
    backoff_coefficient: float
    max_interval_ms: int
    jitter: str
    retryable: list[str] | None = None
    non_retryable: list[str] = Field(default_factory=list)


class TaskSummary(View):
    """A task in a list."""

    id: str
    type: str
    status: TaskStatus
    reason: str | None = None  # SKIPPED: condition | upstream
    needs: list[str] = Field(default_factory=list)
    run_when: str
    compensates: str | None = None  # the task that this one undoes
    attempt: int = 0
    started_at: Instant | None = None
    ended_at: Instant | None = None
    next_attempt_at: Instant | None = None
    due_at: Instant | None = None  # of a wait
    deadline_at: Instant | None = None  # while it is in flight, if it has one
    map: MapView | None = None
    child: str | None = None
    """The execution that a `workflow` task started last."""
    instance: str | None = None
    """The orchestration (its instance's id) that a `durable` task started last."""
    signal: str | None = None
    """The name that a `signal` task waits for; of a map, what its items do."""
    error: FailureView | None = None


class TaskView(TaskSummary):
    """One task (or map item) with everything known of it."""

    item: int | None = None
    timeout_ms: int
    retry: RetryView
    attempts: list[AttemptView] = Field(default_factory=list)
    lease: LeaseView | None = None
    output: Any = None
    orchestration: OrchestrationView | None = None
    """What Durable Functions says now of the orchestration that a `durable` task started."""


class HistoryEvent(View):
    """One event. Further properties depend on its type (`docs/state-machines.md`)."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="allow"
    )

    seq: int  # of the commit that recorded it
    type: str
    at: str


class WorkflowSummary(View):
    """A workflow in a list."""

    name: str
    description: str = ""
    latest_version: int
    kind: Literal["definition", "code"] = "definition"
    """`code`: a code workflow, deployed with the app; nobody published it."""
    archived: bool = False
    created_at: Instant | None = None
    updated_at: Instant | None = None


class VersionSummary(View):
    """One published version."""

    name: str
    version: int
    hash: str  # sha256 of the canonical definition
    kind: Literal["definition", "code"] = "definition"
    published_at: Instant | None = None
    published_by: str = ""


class VersionView(VersionSummary):
    """One published version with its definition as it was published."""

    archived: bool = False
    definition: Any


class PublishResult(View):
    """`created` is false if the content was already the latest version, or for a dry run."""

    name: str
    version: int
    created: bool
    dry_run: bool = False


class StartResult(View):
    """`created` is false if the idempotency key had been used with the same request before."""

    id: str
    workflow: str
    version: int
    status: ExecutionStatus
    created: bool
    links: dict[str, str] = Field(default_factory=dict)


class VerifyReport(View):
    """Whether history folds to the stored state."""

    execution: str
    ok: bool
    events: int
    commits: int
    problems: list[str] = Field(default_factory=list)


class SweepReport(View):
    """What one sweep found and mended."""

    outboxes: int = 0
    tasks: int = 0
    signals: int = 0
    notifications: int = 0
    executions: int = 0


class RebuildReport(View):
    """What a rebuild of the read model found and did."""

    executions: int = 0  # execution documents read
    written: int = 0  # rows that were missing, behind, ahead or different
    removed: int = 0  # rows whose execution is gone
    poisoned: int = 0  # documents that cannot be read; the log names them
    failed: int = 0  # rows that the store refused; the log names them


class Check(View):
    """One dependency's health. `seconds`: of the backlog, how long the oldest of each kind has
    waited."""

    ok: bool
    latency_ms: float | None = None
    detail: str = ""
    seconds: dict[str, float] | None = None


class HealthView(View):
    """`status`: ok | degraded | down."""

    status: str
    checks: dict[str, Check] = Field(default_factory=dict)
