"""From stored documents and state to the fields of the API's views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.domain.priority import Priority
from orchestrator.domain.state import ExecutionState
from orchestrator.domain.status import (
    SETTLED_CODES,
    SKIP_REASON,
    STATUS_OF_CODE,
    TERMINAL_EXECUTION,
    Code,
    TaskStatus,
)
from orchestrator.domain.workflow import OnFailure, TaskSpec
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.views import (
    AttemptView,
    FailureView,
    LeaseView,
    MapView,
    Progress,
    RetryView,
)


def summary(header: dict[str, Any], state: ExecutionState) -> dict[str, Any]:
    """Fields of `ExecutionSummary`."""
    return {
        "id": header["executionId"],
        "workflow": header["workflow"],
        "version": header["version"],
        "status": state.status,
        "created_at": header["createdAt"],
        "started_at": state.started_at,
        "ended_at": state.ended_at,
        "tags": header["tags"],
        "started_by": header["startedBy"],
        "parent": header.get("parent"),
        "priority": Priority.of(header),
        "progress": progress(state),
    }


def progress(state: ExecutionState) -> Progress:
    """Number of tasks by state. Compensations are no part of it."""
    count = state.visible.count
    return Progress(
        total=len(state.visible),
        pending=count(Code.PENDING),
        queued=count(Code.QUEUED),
        waiting=count(Code.WAITING),
        completed=count(Code.COMPLETED),
        skipped=count(Code.SKIPPED_UPSTREAM) + count(Code.SKIPPED_CONDITION),
        cancelled=count(Code.CANCELLED),
        dead_lettered=count(Code.DEAD_LETTERED) + count(Code.DEAD_ACCEPTED),
    )


def waiting_for(found: Aggregate) -> str | None:
    """What an execution that has not begun waits for."""
    begun = found.state.started_at is not None or found.state.status in TERMINAL_EXECUTION
    return "concurrency" if "place" in found.header and not begun else None


def holding(found: Aggregate) -> list[str]:
    """Ids of the tasks for which the execution waits for an operator."""
    over = found.state.status in TERMINAL_EXECUTION or found.state.ending is not None
    if found.workflow.on_failure is not OnFailure.HOLD or over:
        return []
    codes = enumerate(found.state.tasks)
    return [found.workflow.tasks[at].id for at, code in codes if code == Code.DEAD_LETTERED]


def failure(
    doc: dict[str, Any] | None, task: str = "", item: int | None = None
) -> FailureView | None:
    """A stored failure."""
    if doc is None:
        return None
    return FailureView(
        type=doc["type"],
        message=doc["message"],
        task=task or None,
        item=item,
        field=doc.get("field"),
        expression=doc.get("expression"),
        retryable=doc.get("retryable", True),
        causes=[view for cause in doc.get("causes", ()) if (view := failure(cause))],
    )


def task(
    found: Aggregate, at: int, doc: dict[str, Any] | None, item: int | None = None
) -> dict[str, Any]:
    """Fields of `TaskSummary`. The execution knows what counts; between dispatch and result the
    task document knows more (RUNNING, RETRYING)."""
    spec, state = found.workflow.tasks[at], found.state
    code = state.tasks[at] if item is None else state.maps[at].items[item]
    status = STATUS_OF_CODE[code]
    if doc is not None and code not in SETTLED_CODES and code == Code.QUEUED:
        status = TaskStatus(doc["status"])
    listener = spec.listener
    fields: dict[str, Any] = {
        "id": spec.id,
        "type": spec.type.value if item is None else _inner(spec).type.value,
        "status": status,
        "reason": SKIP_REASON.get(code),
        "signal": None if listener is None else listener.signal,
        "needs": [found.workflow.tasks[need].id for need in spec.needs],
        "run_when": spec.run_when.value,
        "compensates": None if spec.undoes is None else found.workflow.tasks[spec.undoes].id,
        "due_at": state.waits.get(at) if item is None else None,
        "deadline_at": state.deadlines.get(at) if item is None else None,
    }
    if doc is not None:
        fields |= {
            "attempt": doc["attempt"],
            "started_at": doc.get("startedAt"),
            "ended_at": doc.get("endedAt"),
            "next_attempt_at": doc.get("dueAt") if status is TaskStatus.RETRYING else None,
            "error": failure(doc.get("failure")),
        }
        if "child" in doc and doc["attempt"]:
            fields["child"] = doc["child"]["execution"]
        if "instance" in doc and doc["attempt"]:
            fields["instance"] = doc["instance"]["id"]
        if status is TaskStatus.WAITING and "dueAt" in doc:
            fields["due_at"] = doc["dueAt"]
    if item is None and at in state.maps:
        items = state.maps[at]
        fields["map"] = MapView(
            count=items.count, queued=items.queued, completed=items.completed, failed=items.failed
        )
    return fields


def task_details(
    found: Aggregate, at: int, doc: dict[str, Any] | None, item: int | None
) -> dict[str, Any]:
    """The further fields of `TaskView`, without the output."""
    spec = found.workflow.tasks[at]
    ran = spec if item is None and spec.do is None else _inner(spec)
    held = (doc or {}).get("lease")
    return {
        "item": item,
        "timeout_ms": ran.timeout_ms,
        "retry": _retry(ran),
        "attempts": attempts((doc or {}).get("attempts", ())),
        "lease": LeaseView(
            worker=held["worker"], expires_at=held["until"], heartbeat_at=held["beatAt"]
        )
        if held
        else None,
    }


def attempts(entries: Sequence[dict[str, Any]]) -> list[AttemptView]:
    """Stored attempts."""
    return [
        AttemptView(
            attempt=entry["attempt"],
            worker=entry["worker"],
            started_at=entry["startedAt"],
            ended_at=entry.get("endedAt"),
            error=failure(entry.get("error")),
            child=entry.get("child"),
            instance=entry.get("instance"),
        )
        for entry in entries
    ]


def _inner(spec: TaskSpec) -> TaskSpec:
    return spec.do if spec.do is not None else spec


def _retry(spec: TaskSpec) -> RetryView:
    policy = spec.retry
    return RetryView(
        max_attempts=policy.max_attempts,
        initial_interval_ms=policy.initial_interval_ms,
        backoff_coefficient=policy.backoff_coefficient,
        max_interval_ms=policy.max_interval_ms,
        jitter=policy.jitter.value,
        retryable=sorted(policy.retryable) if policy.retryable is not None else None,
        non_retryable=sorted(policy.non_retryable),
    )
