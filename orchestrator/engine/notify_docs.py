"""Notifications of an execution's end, as stored: created by the commit that ends it, with the
message that has them sent.

    id          notify:{seq}.{number}      that commit's `seq`, place in the definition's `notify`
    key         {seq}.{number}
    status      QUEUED, RUNNING, RETRYING, then COMPLETED or DEAD_LETTERED
    about       what is told, but the output; the same for every attempt
    output      the execution's output (claim check), with `includeOutput`
    attempt, attempts, lease, dueAt, sweepAt, granted     as in a task document
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.domain import notifying
from orchestrator.domain.codec import iso
from orchestrator.domain.events import Event
from orchestrator.domain.state import ExecutionState
from orchestrator.domain.status import TaskStatus
from orchestrator.engine import documents
from orchestrator.engine.aggregate import Aggregate

TYPE = "notification"
GRACE_MS = 60_000
"""A notification whose message did not come this long after the commit is sent for again."""


def of_commit(
    aggregate: Aggregate, events: Sequence[Event], state: ExecutionState, now: int
) -> list[dict[str, Any]]:
    """The documents that a commit of `events`, which leads to `state`, must create."""
    docs: list[dict[str, Any]] = []
    for number in notifying.due(aggregate.workflow, events, state):
        key = notifying.key_of(state.seq, number)
        doc: dict[str, Any] = {
            **documents.base(aggregate.partition, documents.notification_id(key), TYPE),
            "key": key,
            "number": number,
            "createdAt": now,
            "status": TaskStatus.QUEUED.value,
            "attempt": 0,
            "attempts": [],
            "about": _about(aggregate, state, key),
            "sweepAt": now + GRACE_MS,
        }
        if aggregate.workflow.notify[number].include_output and state.output is not None:
            doc["output"] = state.output.to_doc()
        docs.append(doc)
    return docs


def event_id(execution: str, key: str) -> str:
    """The id that the receiver sees: the same for every attempt."""
    return f"{execution}.{key}"


def _about(aggregate: Aggregate, state: ExecutionState, key: str) -> dict[str, Any]:
    failure = state.failure
    return {
        "id": event_id(aggregate.execution, key),
        "type": f"execution.{state.status.value.lower()}",
        "execution": aggregate.execution,
        "workflow": aggregate.workflow.name,
        "version": aggregate.header["version"],
        "status": state.status.value,
        "error": None
        if failure is None
        else {"type": failure.failure.type, "task": failure.task or None},
        "createdAt": iso(state.accepted_at),
        "startedAt": None if state.started_at is None else iso(state.started_at),
        "endedAt": None if state.ended_at is None else iso(state.ended_at),
        "tags": aggregate.header["tags"],
    }
