"""State and events as JSON documents, and back; the one module that others import for it.

Events are stored as `{"type", "at", …}` with positions of tasks; `describe` turns those into ids
for the history API. Positions of wide events are packed as ranges (`"0-1999"`), so that a
10,000-wide fan-out is a few bytes of history, not 50 KB. One entry per event type in two tables,
written by hand for speed. The state's half is in `codec_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from orchestrator.domain import events as ev
from orchestrator.domain.codec_compensation import READ_COMPENSATION, WRITE_COMPENSATION
from orchestrator.domain.codec_operator import READ_OPERATOR, WRITE_OPERATOR
from orchestrator.domain.codec_state import (
    chunks_of,
    open_maps,
    record_from_doc,
    record_to_doc,
    state_from_doc,
    state_to_doc,
)
from orchestrator.domain.payload import Payload
from orchestrator.domain.positions import pack, pack_times, unpack, unpack_times
from orchestrator.domain.workflow import Workflow

__all__ = [
    "chunks_of",
    "describe",
    "event_from_doc",
    "event_to_doc",
    "iso",
    "open_maps",
    "pack",
    "record_from_doc",
    "record_to_doc",
    "state_from_doc",
    "state_to_doc",
    "unpack",
]

_WIDE: Final = (
    ev.TasksQueued,
    ev.TasksSkipped,
    ev.TasksCancelled,
    ev.TasksRequeued,
    ev.TasksReopened,
    ev.TasksReset,
    ev.TasksCopied,
)


def event_to_doc(event: ev.Event) -> dict[str, Any]:
    """The stored form."""
    kind, write = _WRITE[type(event)]
    doc: dict[str, Any] = {"type": kind, "at": event.at}
    write(event, doc)
    return doc


def event_from_doc(doc: Mapping[str, Any]) -> ev.Event:
    """Inverse of `event_to_doc`. Raises KeyError for an unknown type or a missing field."""
    return _READ[doc["type"]](doc, doc["at"])


def describe(event: ev.Event, workflow: Workflow) -> dict[str, Any]:
    """The form of the history API: times in ISO 8601 (UTC, milliseconds), tasks by id."""
    doc = event_to_doc(event)
    for name in ("at", "startedAt", "dueAt", "deadlineAt"):
        if name in doc:
            doc[name] = iso(doc[name])
    if "deadlines" in doc:
        found = unpack_times(doc["deadlines"])
        doc["deadlines"] = {workflow.tasks[task].id: iso(due) for task, due in found}
    if isinstance(event, _WIDE):
        doc["tasks"] = [workflow.tasks[task].id for task in event.tasks]
    elif "task" in doc:
        doc["task"] = workflow.tasks[int(doc["task"])].id
    if "undo" in doc:
        doc["undo"] = workflow.tasks[int(doc["undo"])].id
    if isinstance(event, ev.MapItemsCompleted | ev.MapItemsCancelled):
        doc["items"] = list(event.items)
    if isinstance(event, ev.TasksRequeued | ev.TasksReopened):
        doc["items"] = [
            {"task": workflow.tasks[task].id, "item": item} for task, item in event.items
        ]
    return doc


def iso(at: int) -> str:
    """Epoch milliseconds as ISO 8601 in UTC, e.g. `2027-03-28T01:30:00.000Z`."""
    text = datetime.fromtimestamp(at // 1000, UTC).isoformat()  # quicker than strftime by far
    return f"{text[:19]}.{at % 1000:03}Z"


_Doc = dict[str, Any]


def _w_accepted(event: ev.ExecutionAccepted, doc: _Doc) -> None:
    doc["tasks"] = event.tasks
    if event.hidden:
        doc["hidden"] = event.hidden


def _w_started(event: ev.ExecutionStarted, doc: _Doc) -> None:
    if event.deadline_at is not None:
        doc["deadlineAt"] = event.deadline_at


def _w_operator(
    event: ev.ExecutionPaused | ev.ExecutionResumed | ev.ExecutionCancelled, doc: _Doc
) -> None:
    doc["by"] = event.by
    if event.reason:
        doc["reason"] = event.reason
    if isinstance(event, ev.ExecutionCancelled) and event.terminated:
        doc["terminated"] = True


def _w_queued(event: ev.TasksQueued, doc: _Doc) -> None:
    doc["tasks"] = pack(event.tasks)
    if event.deadlines:
        doc["deadlines"] = pack_times(event.deadlines)


def _w_requeued(event: ev.TasksRequeued, doc: _Doc) -> None:
    if event.tasks:
        doc["tasks"] = pack(event.tasks)
    if event.items:
        doc["items"] = [list(pair) for pair in event.items]


def _w_waiting(event: ev.TaskWaiting, doc: _Doc) -> None:
    doc["task"] = event.task
    doc["dueAt"] = event.due_at
    if event.deadline_at is not None:
        doc["deadlineAt"] = event.deadline_at


def _w_skipped(event: ev.TasksSkipped, doc: _Doc) -> None:
    doc["tasks"] = pack(event.tasks)
    doc["reason"] = "condition" if event.condition else "upstream"


def _w_completed(event: ev.TaskCompleted, doc: _Doc) -> None:
    doc["task"] = event.task
    if event.attempt:
        doc["attempt"] = event.attempt
    if event.started_at is not None:
        doc["startedAt"] = event.started_at
    if event.undo is not None:
        doc["undo"] = event.undo


def _w_failed(event: ev.TaskFailed, doc: _Doc) -> None:
    doc["task"] = event.task
    if event.accepted:
        doc["accepted"] = True
    doc["failure"] = record_to_doc(event.failure)
    if event.attempt:
        doc["attempt"] = event.attempt


def _w_cancelled(event: ev.TasksCancelled, doc: _Doc) -> None:
    doc["tasks"] = pack(event.tasks)
    doc["reason"] = event.reason


def _w_map_started(event: ev.MapStarted, doc: _Doc) -> None:
    doc["task"] = event.task
    doc["count"] = event.count
    if event.deadline_at is not None:
        doc["deadlineAt"] = event.deadline_at


def _w_items_queued(event: ev.MapItemsQueued, doc: _Doc) -> None:
    doc["task"] = event.task
    doc["start"] = event.start
    doc["count"] = event.count


def _w_items(event: ev.MapItemsCompleted | ev.MapItemsCancelled, doc: _Doc) -> None:
    doc["task"] = event.task
    doc["items"] = pack(event.items)


def _w_item_failed(event: ev.MapItemFailed, doc: _Doc) -> None:
    doc["task"] = event.task
    doc["item"] = event.item
    doc["failure"] = record_to_doc(event.failure)
    if event.attempt:
        doc["attempt"] = event.attempt


def _w_failure(event: ev.FailureNoted | ev.ExecutionFailed, doc: _Doc) -> None:
    doc["failure"] = record_to_doc(event.failure)


def _w_execution_completed(event: ev.ExecutionCompleted, doc: _Doc) -> None:
    if event.output is not None:
        doc["output"] = event.output.to_doc()


_WRITE: Final[dict[type, tuple[str, Callable[[Any, _Doc], None]]]] = {
    ev.ExecutionAccepted: ("executionAccepted", _w_accepted),
    ev.ExecutionStarted: ("executionStarted", _w_started),
    ev.ExecutionPaused: ("executionPaused", _w_operator),
    ev.ExecutionResumed: ("executionResumed", _w_operator),
    ev.ExecutionCancelled: ("executionCancelled", _w_operator),
    ev.TasksQueued: ("tasksQueued", _w_queued),
    ev.TasksRequeued: ("tasksRequeued", _w_requeued),
    ev.TaskWaiting: ("taskWaiting", _w_waiting),
    ev.TasksSkipped: ("tasksSkipped", _w_skipped),
    ev.TaskCompleted: ("taskCompleted", _w_completed),
    ev.TaskFailed: ("taskFailed", _w_failed),
    ev.TasksCancelled: ("tasksCancelled", _w_cancelled),
    ev.MapStarted: ("mapStarted", _w_map_started),
    ev.MapItemsQueued: ("mapItemsQueued", _w_items_queued),
    ev.MapItemsCompleted: ("mapItemsCompleted", _w_items),
    ev.MapItemFailed: ("mapItemFailed", _w_item_failed),
    ev.MapItemsCancelled: ("mapItemsCancelled", _w_items),
    ev.FailureNoted: ("failureNoted", _w_failure),
    ev.ExecutionCompleted: ("executionCompleted", _w_execution_completed),
    ev.ExecutionFailed: ("executionFailed", _w_failure),
    **WRITE_OPERATOR,
    **WRITE_COMPENSATION,
}

_READ: Final[dict[str, Callable[[Mapping[str, Any], int], ev.Event]]] = {
    "executionAccepted": lambda doc, at: ev.ExecutionAccepted(
        at=at, tasks=doc["tasks"], hidden=doc.get("hidden", 0)
    ),
    "executionStarted": lambda doc, at: ev.ExecutionStarted(
        at=at, deadline_at=doc.get("deadlineAt")
    ),
    "executionPaused": lambda doc, at: ev.ExecutionPaused(
        at=at, by=doc["by"], reason=doc.get("reason", "")
    ),
    "executionResumed": lambda doc, at: ev.ExecutionResumed(
        at=at, by=doc["by"], reason=doc.get("reason", "")
    ),
    "executionCancelled": lambda doc, at: ev.ExecutionCancelled(
        at=at,
        by=doc["by"],
        reason=doc.get("reason", ""),
        terminated=doc.get("terminated", False),
    ),
    "tasksQueued": lambda doc, at: ev.TasksQueued(
        at=at, tasks=unpack(doc["tasks"]), deadlines=unpack_times(doc.get("deadlines", {}))
    ),
    "tasksRequeued": lambda doc, at: ev.TasksRequeued(
        at=at,
        tasks=unpack(doc.get("tasks", [])),
        items=tuple((task, item) for task, item in doc.get("items", ())),
    ),
    "taskWaiting": lambda doc, at: ev.TaskWaiting(
        at=at, task=doc["task"], due_at=doc["dueAt"], deadline_at=doc.get("deadlineAt")
    ),
    "tasksSkipped": lambda doc, at: ev.TasksSkipped(
        at=at, tasks=unpack(doc["tasks"]), condition=doc["reason"] == "condition"
    ),
    "taskCompleted": lambda doc, at: ev.TaskCompleted(
        at=at,
        task=doc["task"],
        attempt=doc.get("attempt", 0),
        started_at=doc.get("startedAt"),
        undo=doc.get("undo"),
    ),
    "taskFailed": lambda doc, at: ev.TaskFailed(
        at=at,
        task=doc["task"],
        failure=record_from_doc(doc["failure"]),
        attempt=doc.get("attempt", 0),
        accepted=doc.get("accepted", False),
    ),
    "tasksCancelled": lambda doc, at: ev.TasksCancelled(
        at=at, tasks=unpack(doc["tasks"]), reason=doc["reason"]
    ),
    "mapStarted": lambda doc, at: ev.MapStarted(
        at=at, task=doc["task"], count=doc["count"], deadline_at=doc.get("deadlineAt")
    ),
    "mapItemsQueued": lambda doc, at: ev.MapItemsQueued(
        at=at, task=doc["task"], start=doc["start"], count=doc["count"]
    ),
    "mapItemsCompleted": lambda doc, at: ev.MapItemsCompleted(
        at=at, task=doc["task"], items=unpack(doc["items"])
    ),
    "mapItemFailed": lambda doc, at: ev.MapItemFailed(
        at=at,
        task=doc["task"],
        item=doc["item"],
        failure=record_from_doc(doc["failure"]),
        attempt=doc.get("attempt", 0),
    ),
    "mapItemsCancelled": lambda doc, at: ev.MapItemsCancelled(
        at=at, task=doc["task"], items=unpack(doc["items"])
    ),
    "failureNoted": lambda doc, at: ev.FailureNoted(at=at, failure=record_from_doc(doc["failure"])),
    "executionCompleted": lambda doc, at: ev.ExecutionCompleted(
        at=at, output=None if doc.get("output") is None else Payload.from_doc(doc["output"])
    ),
    "executionFailed": lambda doc, at: ev.ExecutionFailed(
        at=at, failure=record_from_doc(doc["failure"])
    ),
    **READ_OPERATOR,
    **READ_COMPENSATION,
}
