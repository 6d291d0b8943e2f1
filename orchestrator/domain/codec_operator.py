"""Events of an operator's decisions about dead letters as JSON, and back. Used by `codec`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from orchestrator.domain import events as ev
from orchestrator.domain.positions import pack, pack_times, unpack, unpack_times

_Doc = dict[str, Any]


def _by(event: Any, doc: _Doc) -> None:
    doc["by"] = event.by
    if event.reason:
        doc["reason"] = event.reason


def _w_reopened(event: ev.ExecutionReopened, doc: _Doc) -> None:
    _by(event, doc)
    if event.deadline_at is not None:
        doc["deadlineAt"] = event.deadline_at


def _w_tasks_reopened(event: ev.TasksReopened, doc: _Doc) -> None:
    _by(event, doc)
    if event.tasks:
        doc["tasks"] = pack(event.tasks)
    if event.items:
        doc["items"] = [list(pair) for pair in event.items]
    _deadlines(event, doc)


def _deadlines(event: ev.TasksReopened | ev.TasksReset, doc: _Doc) -> None:
    if event.deadlines:
        doc["deadlines"] = pack_times(event.deadlines)


def _w_reset(event: ev.TasksReset, doc: _Doc) -> None:
    doc["tasks"] = pack(event.tasks)
    _deadlines(event, doc)


def _w_copied(event: ev.TasksCopied, doc: _Doc) -> None:
    doc["tasks"] = pack(event.tasks)


def _w_overridden(event: ev.TaskOverridden, doc: _Doc) -> None:
    _by(event, doc)
    doc["task"] = event.task
    if event.item is not None:
        doc["item"] = event.item
    if event.deadline_at is not None:
        doc["deadlineAt"] = event.deadline_at
    if event.undo is not None:
        doc["undo"] = event.undo


def _w_accepted(event: ev.FailureAccepted, doc: _Doc) -> None:
    _by(event, doc)
    doc["task"] = event.task
    if event.failed:
        doc["failed"] = event.failed


WRITE_OPERATOR: Final[dict[type, tuple[str, Callable[[Any, _Doc], None]]]] = {
    ev.ExecutionReopened: ("executionReopened", _w_reopened),
    ev.TasksReopened: ("tasksReopened", _w_tasks_reopened),
    ev.TasksReset: ("tasksReset", _w_reset),
    ev.TasksCopied: ("tasksCopied", _w_copied),
    ev.TaskOverridden: ("taskOverridden", _w_overridden),
    ev.FailureAccepted: ("failureAccepted", _w_accepted),
}

READ_OPERATOR: Final[dict[str, Callable[[Mapping[str, Any], int], ev.Event]]] = {
    "executionReopened": lambda doc, at: ev.ExecutionReopened(
        at=at, by=doc["by"], reason=doc.get("reason", ""), deadline_at=doc.get("deadlineAt")
    ),
    "tasksReopened": lambda doc, at: ev.TasksReopened(
        at=at,
        by=doc["by"],
        reason=doc.get("reason", ""),
        tasks=unpack(doc.get("tasks", [])),
        items=tuple((task, item) for task, item in doc.get("items", ())),
        deadlines=unpack_times(doc.get("deadlines", {})),
    ),
    "tasksReset": lambda doc, at: ev.TasksReset(
        at=at, tasks=unpack(doc["tasks"]), deadlines=unpack_times(doc.get("deadlines", {}))
    ),
    "tasksCopied": lambda doc, at: ev.TasksCopied(at=at, tasks=unpack(doc["tasks"])),
    "taskOverridden": lambda doc, at: ev.TaskOverridden(
        at=at,
        task=doc["task"],
        item=doc.get("item"),
        by=doc["by"],
        reason=doc.get("reason", ""),
        deadline_at=doc.get("deadlineAt"),
        undo=doc.get("undo"),
    ),
    "failureAccepted": lambda doc, at: ev.FailureAccepted(
        at=at,
        task=doc["task"],
        by=doc["by"],
        reason=doc.get("reason", ""),
        failed=doc.get("failed", 0),
    ),
}
