"""History events as `azure-functions-durable` reads them: JSON objects with the extension's names.

Two of ours are added, which the library ignores: `Retry` (the options) on what was scheduled with a
retry, and `RetryOf` (the first attempt's `EventId`) on the timers and attempts that follow.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

Event = dict[str, Any]

EXECUTION_STARTED: Final = 0
EXECUTION_COMPLETED: Final = 1
EXECUTION_TERMINATED: Final = 3
TASK_SCHEDULED: Final = 4
TASK_COMPLETED: Final = 5
TASK_FAILED: Final = 6
CHILD_CREATED: Final = 7
CHILD_COMPLETED: Final = 8
CHILD_FAILED: Final = 9
TIMER_CREATED: Final = 10
TIMER_FIRED: Final = 11
ORCHESTRATOR_STARTED: Final = 12
ORCHESTRATOR_COMPLETED: Final = 13
EVENT_RAISED: Final = 15
GENERIC: Final = 17
SUSPENDED: Final = 19
RESUMED: Final = 20

NAMES: Final = {
    EXECUTION_STARTED: "ExecutionStarted",
    EXECUTION_COMPLETED: "ExecutionCompleted",
    EXECUTION_TERMINATED: "ExecutionTerminated",
    TASK_SCHEDULED: "TaskScheduled",
    TASK_COMPLETED: "TaskCompleted",
    TASK_FAILED: "TaskFailed",
    CHILD_CREATED: "SubOrchestrationInstanceCreated",
    CHILD_COMPLETED: "SubOrchestrationInstanceCompleted",
    CHILD_FAILED: "SubOrchestrationInstanceFailed",
    TIMER_CREATED: "TimerCreated",
    TIMER_FIRED: "TimerFired",
    ORCHESTRATOR_STARTED: "OrchestratorStarted",
    ORCHESTRATOR_COMPLETED: "OrchestratorCompleted",
    EVENT_RAISED: "EventRaised",
    GENERIC: "GenericEvent",
    SUSPENDED: "ExecutionSuspended",
    RESUMED: "ExecutionResumed",
}
SCHEDULED: Final = frozenset({TASK_SCHEDULED, CHILD_CREATED, TIMER_CREATED})
FAILED: Final = frozenset({TASK_FAILED, CHILD_FAILED})
FINISHED: Final = frozenset({TASK_COMPLETED, CHILD_COMPLETED, TIMER_FIRED}) | FAILED

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(ms: int) -> str:
    """Epoch ms as the protocol writes times."""
    return (_EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def milliseconds(text: str) -> int:
    """Epoch ms of a time of the protocol, rounded up: a timer must not fire early. A time without
    a zone is UTC, as for the extension. Raises `ValueError`."""
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return -((_EPOCH - when) // timedelta(milliseconds=1))


def event(kind: int, now: int, event_id: int = -1, /, **fields: Any) -> Event:
    """An event of `kind` at epoch ms `now`."""
    return {
        "EventType": kind,
        "EventId": event_id,
        "IsPlayed": False,
        "Timestamp": timestamp(now),
        **fields,
    }


def started(now: int, name: str, payload: str | None) -> Event:
    """The first event of an execution. `payload`: JSON text."""
    return event(EXECUTION_STARTED, now, Name=name, Input=payload, Version=None)


def raised(now: int, name: str, payload: str) -> Event:
    """An external event. `payload`: JSON text."""
    return event(EVENT_RAISED, now, Name=name, Input=payload)


def failed(kind: int, now: int, task: int, reason: str, details: str = "") -> Event:
    """The failure of the activity or sub-orchestration (`kind`) that was scheduled as `task`."""
    return event(kind, now, TaskScheduledId=task, Reason=reason, Details=details)


def completed(kind: int, now: int, task: int, result: str | None) -> Event:
    """Its success. `result`: JSON text."""
    return event(kind, now, TaskScheduledId=task, Result=result)


def finished_id(event: Event) -> int:
    """The `EventId` of what a finishing event finishes."""
    return event["TimerId"] if event["EventType"] == TIMER_FIRED else event["TaskScheduledId"]
