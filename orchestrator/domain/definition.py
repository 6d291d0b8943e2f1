"""What a user writes: the models of a workflow definition, camelCase, nothing unknown allowed.

These check each value by itself. What needs the whole (edges, cycles, references in expressions)
is in `validation.py`; what the engine runs is made by `compile.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from orchestrator.domain.defaults import MAX_ATTEMPTS
from orchestrator.domain.definition_concurrency import Concurrency
from orchestrator.domain.definition_http import HttpRequest
from orchestrator.domain.definition_notify import MAX_NOTIFICATIONS, Notification
from orchestrator.domain.definition_types import (
    TASK_ID_PATTERN,
    ActivityName,
    AttemptTimeout,
    Duration,
    DurationOrZero,
    FailureName,
    Items,
    JsonSchema,
    Model,
    Name,
    SignalName,
    ToleratedFailures,
    When,
)
from orchestrator.domain.topology import MAX_MAP_ITEMS, MAX_TASKS


class Retry(Model):
    """When a failed attempt is repeated. A field left out falls back to `defaults`, then to the
    platform's."""

    max_attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS)] | None = None
    """Attempts in all, the first included; 1 means no retry."""
    initial_interval: Duration | None = None
    backoff_coefficient: Annotated[float, Field(ge=1)] | None = None
    max_interval: Duration | None = None
    jitter: Literal["none", "full", "equal", "decorrelated"] | None = None
    retryable: list[FailureName] | None = None
    """Failure types that are repeated; left out: all that are not in `nonRetryable`."""
    non_retryable: list[FailureName] | None = None


class Defaults(Model):
    """For every task that does not say otherwise."""

    timeout: AttemptTimeout | None = None
    retry: Retry | None = None


class Event(Model):
    """An event to publish (CloudEvents attributes)."""

    type: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)] | None = None
    subject: str | None = None
    data: Any = None


# --- what each type adds --------------------------------------------------------------------------


class Described(Model):
    """What everything that runs may have."""

    description: str | None = None


class Attempted(Described):
    """Work that occupies a worker, attempt by attempt."""

    timeout: AttemptTimeout | None = None
    retry: Retry | None = None


class Awaited(Described):
    """Something that is waited for; `timeout` is of the whole wait."""

    timeout: Duration | None = None
    retry: Retry | None = None


class ActivityDo(Attempted):
    """Runs a registered activity."""

    type: Literal["activity"]
    activity: ActivityName
    input: Any = None
    output_schema: JsonSchema = None
    """JSON Schema of what it gives."""
    heartbeat_timeout: Duration | None = None
    """An attempt that reports no heartbeat for this long has failed; shorter than `timeout`."""


class HttpDo(Attempted):
    """Makes an HTTP request."""

    type: Literal["http"]
    request: HttpRequest
    output_schema: JsonSchema = None
    """JSON Schema of what it gives: status, headers and body."""


class TransformDo(Attempted):
    """Computes a value."""

    type: Literal["transform"]
    output: Any


class WaitDo(Described):
    """Waits for a time: exactly one of `duration` and `until`."""

    type: Literal["wait"]
    duration: DurationOrZero | None = None
    until: str | None = None


class SignalDo(Described):
    """Waits for a signal; `timeout` is of the whole wait, and there is nothing to retry."""

    type: Literal["signal"]
    timeout: Duration | None = None
    signal: SignalName
    schema_: Annotated[JsonSchema, Field(alias="schema")] = None


class WorkflowDo(Awaited):
    """Runs another workflow as a child."""

    type: Literal["workflow"]
    workflow: Name
    version: Annotated[int, Field(ge=1)] | None = None
    input: Any = None


class PublishDo(Attempted):
    """Publishes an event."""

    type: Literal["publish"]
    event: Event
    to: Annotated[str, Field(min_length=1)] | None = None
    """Name of the target, as the platform's settings have it; left out: the platform's own queue
    of events."""


class DurableDo(Awaited):
    """Runs an orchestration of Durable Functions: a code workflow of the app."""

    type: Literal["durable"]
    orchestration: Name
    version: Annotated[int, Field(ge=1)] | None = None
    input: Any = None
    signals: list[SignalName] | None = None
    """Names of the signals that are handed to it."""


Do: TypeAlias = Annotated[
    ActivityDo | HttpDo | TransformDo | WaitDo | SignalDo | WorkflowDo | PublishDo | DurableDo,
    Field(discriminator="type"),
]


# --- tasks ----------------------------------------------------------------------------------------


class TaskCommon(Model):
    """What every task may have."""

    needs: list[str] = Field(default_factory=list[str])
    """Ids of the tasks that must settle before this one."""
    when: When = None
    run_when: Literal["allSucceeded", "allDone", "anyFailed", "anySucceeded", "noneFailed"] = (
        "allSucceeded"
    )
    continue_on_error: bool = False
    deadline: Duration | None = None
    """From the dispatch of the task to its end, all attempts and pauses included."""
    compensate: Do | None = None


class ActivityTask(TaskCommon, ActivityDo):
    """Runs a registered activity."""


class HttpTask(TaskCommon, HttpDo):
    """Makes an HTTP request."""


class TransformTask(TaskCommon, TransformDo):
    """Computes a value."""


class WaitTask(TaskCommon, WaitDo):
    """Waits for a time: exactly one of `duration` and `until`."""


class SignalTask(TaskCommon, SignalDo):
    """Waits for a signal."""


class WorkflowTask(TaskCommon, WorkflowDo):
    """Runs another workflow as a child."""


class PublishTask(TaskCommon, PublishDo):
    """Publishes an event."""


class DurableTask(TaskCommon, DurableDo):
    """Runs an orchestration of Durable Functions: a code workflow of the app."""


class MapTask(TaskCommon, Attempted):
    """Runs `do` once per item; `timeout` and `retry` are those of each item."""

    type: Literal["map"]
    items: Items
    max_concurrency: Annotated[int, Field(ge=1, le=MAX_MAP_ITEMS)] | None = None
    tolerate_failures: ToleratedFailures | None = None
    """How many items may fail without failing the map: a count, or a share of them ("10%")."""
    do: Do


Task: TypeAlias = Annotated[
    ActivityTask
    | HttpTask
    | TransformTask
    | WaitTask
    | SignalTask
    | WorkflowTask
    | MapTask
    | PublishTask
    | DurableTask,
    Field(discriminator="type"),
]


class Definition(Model):
    """A workflow: tasks, their order and their data."""

    name: Name
    description: str | None = None
    input: JsonSchema = None
    """JSON Schema of the execution's input."""
    defaults: Defaults | None = None
    timeout: Duration | None = None
    """Of the whole execution."""
    priority: Literal["high", "standard", "low"] = "standard"
    """The queue on which tasks travel; a start may say otherwise."""
    concurrency: Concurrency | None = None
    """How many executions may run at the same time."""
    on_failure: Literal["failFast", "continue", "hold"] = "failFast"
    notify: Annotated[list[Notification], Field(max_length=MAX_NOTIFICATIONS)] | None = None
    """Who is told when an execution has ended."""
    tags: dict[str, str] | None = None
    """Labels of the workflow, for people."""
    tasks: Annotated[
        dict[str, Task],
        Field(
            min_length=1,
            max_length=MAX_TASKS,
            json_schema_extra={"propertyNames": {"pattern": TASK_ID_PATTERN}},
        ),
    ]
    output: Any = None
