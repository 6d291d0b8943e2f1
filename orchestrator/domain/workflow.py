"""A published workflow, compiled for running: ids resolved to positions, expressions compiled.

`definition.py` holds what a user writes (pydantic), `validation.py` checks it, `compile.py` turns
it into these values. `decide` and the workers read only these. All are immutable and shared
between executions of one version.

Positions: a task is known by its index in `Workflow.tasks` (definition order, then compensations);
the packed status bytes of an execution are in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from orchestrator.domain.expressions import Expression, Template
from orchestrator.domain.priority import Priority
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.tolerance import NONE, Tolerance


class TaskType(StrEnum):
    """What a task does."""

    ACTIVITY = "activity"
    HTTP = "http"
    TRANSFORM = "transform"
    WAIT = "wait"
    SIGNAL = "signal"
    WORKFLOW = "workflow"
    MAP = "map"
    PUBLISH = "publish"
    DURABLE = "durable"


class RunWhen(StrEnum):
    """Which outcomes of the needs let a task run. Always judged after ALL needs have settled, so
    that the result cannot depend on the order of messages."""

    ALL_SUCCEEDED = "allSucceeded"  # every need COMPLETED
    ALL_DONE = "allDone"  # whatever happened
    ANY_FAILED = "anyFailed"  # at least one need DEAD_LETTERED
    ANY_SUCCEEDED = "anySucceeded"  # at least one need COMPLETED
    NONE_FAILED = "noneFailed"  # no need DEAD_LETTERED (skipped ones are fine)


class OnFailure(StrEnum):
    """What a failed task (without `continueOnError`) does to the execution.

    FAIL_FAST: no further task is started, except handlers (`runWhen` allDone or anyFailed) once
    their needs have settled; tasks that already run end; then FAILED.
    CONTINUE: everything that can still run does; then FAILED.
    HOLD: waits for an operator.
    """

    FAIL_FAST = "failFast"
    CONTINUE = "continue"
    HOLD = "hold"


UNDO_SUFFIX = "~undo"
"""Behind a task's id: the id of its compensation. No id in a definition holds a `~`."""

HANDLERS = frozenset({RunWhen.ALL_DONE, RunWhen.ANY_FAILED})
"""`runWhen` of tasks that still start while an execution is failing fast."""


class Jitter(StrEnum):
    """How a retry delay is spread; always derived from ids, never from a random source."""

    NONE = "none"
    FULL = "full"
    EQUAL = "equal"
    DECORRELATED = "decorrelated"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to try again. Milliseconds. `domain/retry.py` turns it into delays."""

    max_attempts: int
    initial_interval_ms: int
    backoff_coefficient: float
    max_interval_ms: int
    jitter: Jitter
    retryable: frozenset[str] | None = None  # failure types; None: all but `non_retryable`
    non_retryable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """One task. Fields that do not belong to its type keep their defaults."""

    id: str
    type: TaskType
    needs: tuple[int, ...] = ()
    run_when: RunWhen = RunWhen.ALL_SUCCEEDED
    when: Expression | None = None
    continue_on_error: bool = False
    timeout_ms: int  # of one attempt
    deadline_ms: int | None = None  # from dispatch to end, all attempts; of a map: all items
    heartbeat_timeout_ms: int | None = None  # activity: the longest silence within an attempt
    retry: RetryPolicy
    activity: str = ""  # activity: its registered name
    host: str = ""  # http: what it calls, unless an expression makes it (domain/dependencies.py)
    target: str = ""  # publish: name of where the event goes
    template: Template | None = None
    """What the worker resolves: activity -> its input, http -> the request object,
    transform -> the output, publish -> the event, workflow and durable -> the input of what they
    start."""
    workflow: str = ""  # workflow: the child's name…
    workflow_version: int | None = None  # …and version; None: the one of the parent's start
    duration_ms: int | None = None  # wait: this long…
    until: Template | None = None  # …or until this ISO 8601 time (one of the two is set)
    items: Template | None = None  # map: must give a list
    max_concurrency: int = 0  # map: 0 means no limit but MAX_MAP_ITEMS
    tolerate: Tolerance = NONE  # map: how many items may fail
    do: TaskSpec | None = None  # map: what is run per item (`id` is the map's id, no needs)
    signal: str = ""  # signal: the name that it waits for…
    wait_ms: int | None = None  # …and for how long at most; None: for ever
    schema: Any = None  # signal: JSON Schema of its payload, None: anything
    output_schema: Any = None  # activity, http: JSON Schema of its output, None: anything
    undoes: int | None = None  # a compensation: position of the task that it undoes
    orchestration: str = ""  # durable: the code workflow's name…
    orchestration_version: int | None = None  # …and version; None: the one of the start

    @property
    def listener(self) -> TaskSpec | None:
        """What waits for a signal: the task itself, or a map's `do`; None if neither does."""
        work = self if self.do is None else self.do
        return work if work.type is TaskType.SIGNAL else None


class ConcurrencyPolicy(StrEnum):
    """What becomes of an execution that finds no place in its group."""

    QUEUE = "queue"
    SKIP = "skip"
    CANCEL_PREVIOUS = "cancelPrevious"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencySpec:
    """How many executions may run at the same time. `key`: of those that have an equal one."""

    limit: int
    key: Template | None
    policy: ConcurrencyPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifySpec:
    """Who is told of an end: a webhook, or a target of events."""

    on: frozenset[ExecutionStatus]
    url: str = ""  # of the webhook…
    target: str = ""  # …or name of where the event goes (one of the two is set)
    secret: str | None = None  # name of the secret that signs
    include_output: bool = False
    retry: RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """One version of a workflow."""

    name: str
    tasks: tuple[TaskSpec, ...]
    index: Mapping[str, int]  # task id -> position
    successors: tuple[tuple[int, ...], ...]  # position -> positions that need it
    on_failure: OnFailure = OnFailure.FAIL_FAST
    timeout_ms: int | None = None  # of the whole execution
    priority: Priority = Priority.STANDARD
    output: Template | None = None
    input_schema: Any = None  # JSON Schema (dict or bool), None: anything
    signals: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Signal name -> positions of the tasks, and of the maps whose items, wait for it."""
    notify: tuple[NotifySpec, ...] = ()
    concurrency: ConcurrencySpec | None = None
    undo: Mapping[int, int] = field(default_factory=dict[int, int])
    """Task -> its compensation: a task of its own, behind all that the definition names."""
    hears: Mapping[str, int] = field(default_factory=dict[str, int])
    """Signal name -> position of the `durable` task that it is handed to."""
    heavy: bool = False
    """The orchestrator evaluates expressions that may take long."""
    code: bool = False
    """A code workflow: its only task is the orchestration, and every signal is handed to it."""

    def hearer(self, signal: str) -> int | None:
        """The `durable` task that signals of this name are handed to, by position."""
        return 0 if self.code else self.hears.get(signal)

    def takes(self, signal: str) -> bool:
        """Whether anything wants signals of this name."""
        return signal in self.signals or self.hearer(signal) is not None

    @property
    def takes_signals(self) -> bool:
        """Whether anything wants any signal."""
        return bool(self.signals or self.hears or self.code)

    @property
    def visible(self) -> int:
        """How many tasks the definition names."""
        return len(self.tasks) - len(self.undo)
