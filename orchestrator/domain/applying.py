"""Inputs become events: the first half of `decide`.

Everything that does not fit the state is dropped here, silently: at-least-once delivery makes
doubled and late inputs normal. Within a batch the first of two contradicting results counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from orchestrator.domain import compensating
from orchestrator.domain import events as ev
from orchestrator.domain.deadlines import fail_overdue
from orchestrator.domain.draft import Draft
from orchestrator.domain.inputs import (
    Accept,
    Cancel,
    Input,
    Lost,
    Overdue,
    Override,
    Pause,
    Resume,
    Retry,
    SignalArrived,
    SignalHandedOver,
    Start,
    TaskResult,
    Terminate,
    TimerDue,
)
from orchestrator.domain.reopening import Operator, apply_operator
from orchestrator.domain.signalling import handed_over, take_signals
from orchestrator.domain.state import FailureRecord
from orchestrator.domain.status import TERMINAL_EXECUTION, Code, ExecutionStatus
from orchestrator.domain.workflow import TaskType


class _Batch:
    """What is told once for the whole batch, not per input."""

    def __init__(self) -> None:
        self.settled_items: set[tuple[int, int]] = set()
        self.completed_items: dict[int, list[int]] = {}
        self.cancelled_items: dict[int, list[int]] = {}
        self.failed_items: list[TaskResult] = []
        self.cancelled: list[int] = []
        self.overdue: list[Overdue] = []
        self.lost: list[Lost] = []
        self.operator: list[Operator] = []
        self.cancel: Cancel | None = None
        self.signals: list[SignalArrived] = []
        self.handed: list[SignalHandedOver] = []
        self.timers = False
        self.terminate: Terminate | None = None


def apply_inputs(draft: Draft, inputs: Sequence[Input]) -> None:
    """Emit the events that say what the inputs say, nothing of what follows from them. Wide ones
    are merged: results of one map's items are one event."""
    batch = _Batch()
    for given in inputs:
        _APPLY[type(given)](draft, batch, given)
    now = draft.now
    draft.cancel(sorted(batch.cancelled), draft.reason)
    for task, items in sorted(batch.completed_items.items()):
        draft.emit(ev.MapItemsCompleted(at=now, task=task, items=tuple(sorted(items))))
    for task, items in sorted(batch.cancelled_items.items()):
        draft.emit(ev.MapItemsCancelled(at=now, task=task, items=tuple(sorted(items))))
    for result in batch.failed_items:
        _item_failed(draft, result)
    # What these take over or change besides fills the commit; the next decision hands them out.
    draft.items_listen = not (batch.operator or batch.overdue)
    handed_over(draft, batch.handed)
    take_signals(draft, batch.signals, timers=batch.timers)
    fail_overdue(draft, batch.overdue)  # results that arrived with it are results
    _requeue(draft, batch.lost)
    apply_operator(draft, batch.operator)
    if batch.operator:  # they may have taken up an execution that took no signals before
        take_signals(draft, batch.signals, timers=batch.timers)
    # Last: results that arrived with it are results.
    if batch.cancel is not None and draft.fold.status not in TERMINAL_EXECUTION:
        compensating.cancel(draft, batch.cancel)
    if batch.terminate is not None and draft.fold.status not in TERMINAL_EXECUTION:
        compensating.terminate(draft, batch.terminate)


def _start(draft: Draft, batch: _Batch, given: Start) -> None:
    if draft.fold.status is ExecutionStatus.PENDING:
        timeout = draft.workflow.timeout_ms
        deadline_at = None if timeout is None else draft.now + timeout
        draft.emit(ev.ExecutionStarted(at=draft.now, deadline_at=deadline_at))


def _task_result(draft: Draft, batch: _Batch, given: TaskResult) -> None:
    task, codes = given.task, draft.fold.codes
    if not 0 <= task < len(codes):
        return
    if given.item is not None:
        _item_result(draft, batch, given, given.item)
    elif codes[task] == Code.QUEUED and task not in batch.cancelled:
        if given.outcome == "completed":
            draft.emit(
                ev.TaskCompleted(
                    at=draft.now,
                    task=task,
                    attempt=given.attempt,
                    started_at=given.started_at,
                    undo=draft.workflow.undo.get(task),
                )
            )
            draft.changed.append(task)
        elif given.failure is not None:
            draft.fail_recorded(task, given.failure, attempt=given.attempt)
        else:
            batch.cancelled.append(task)


def _item_result(draft: Draft, batch: _Batch, given: TaskResult, item: int) -> None:
    task = given.task
    state = draft.fold.maps.get(task)
    if state is None or draft.fold.codes[task] != Code.WAITING:
        return
    known = 0 <= item < state.count and state.items[item] == Code.QUEUED
    if not known or (task, item) in batch.settled_items:
        return
    batch.settled_items.add((task, item))
    draft.maps.add(task)
    if given.outcome == "completed":
        batch.completed_items.setdefault(task, []).append(item)
    elif given.failure is not None:
        batch.failed_items.append(given)
    else:
        batch.cancelled_items.setdefault(task, []).append(item)


def _item_failed(draft: Draft, result: TaskResult) -> None:
    assert result.item is not None
    assert result.failure is not None
    record = FailureRecord(
        failure=result.failure,
        task=draft.workflow.tasks[result.task].id,
        index=result.item,
    )
    draft.emit(
        ev.MapItemFailed(
            at=draft.now,
            task=result.task,
            item=result.item,
            failure=record,
            attempt=result.attempt,
        )
    )


def _pause(draft: Draft, batch: _Batch, given: Pause) -> None:
    _start(draft, batch, Start())  # a deadline counts from here on, paused or not
    if draft.fold.status is ExecutionStatus.RUNNING:
        draft.emit(ev.ExecutionPaused(at=draft.now, by=given.by, reason=given.reason))


def _resume(draft: Draft, batch: _Batch, given: Resume) -> None:
    if draft.fold.status is ExecutionStatus.PAUSED:
        draft.emit(ev.ExecutionResumed(at=draft.now, by=given.by, reason=given.reason))


def _cancel(draft: Draft, batch: _Batch, given: Cancel) -> None:
    batch.cancel = batch.cancel or given


def _terminate(draft: Draft, batch: _Batch, given: Terminate) -> None:
    batch.terminate = batch.terminate or given


def _operator(draft: Draft, batch: _Batch, given: Operator) -> None:
    batch.operator.append(given)


def _timer_due(draft: Draft, batch: _Batch, given: TimerDue) -> None:
    if draft.fold.status is ExecutionStatus.PAUSED:
        return  # resuming looks at the waits again
    batch.timers = True  # limits of signal tasks: after the signals of this batch
    tasks = draft.workflow.tasks
    for task in sorted(task for task, due in draft.fold.waits.items() if due <= draft.now):
        if tasks[task].type is TaskType.WAIT:
            draft.complete(task, None)


def _signal_arrived(draft: Draft, batch: _Batch, given: SignalArrived) -> None:
    _start(draft, batch, Start())  # it may be faster than the message that starts the execution
    batch.signals.append(given)


def _signal_handed_over(draft: Draft, batch: _Batch, given: SignalHandedOver) -> None:
    batch.handed.append(given)


def _overdue(draft: Draft, batch: _Batch, given: Overdue) -> None:
    batch.overdue.append(given)


def _lost(draft: Draft, batch: _Batch, given: Lost) -> None:
    batch.lost.append(given)


def _requeue(draft: Draft, lost: list[Lost]) -> None:
    """After all results of the batch: what has one is not lost."""
    if not lost:
        return
    codes, maps = draft.fold.codes, draft.fold.maps
    tasks = {
        task
        for given in lost
        for task in given.tasks
        if 0 <= task < len(codes) and codes[task] == Code.QUEUED
    }
    items = {
        (task, item)
        for given in lost
        for task, item in given.items
        if task in maps
        and codes[task] == Code.WAITING
        and 0 <= item < maps[task].count
        and maps[task].items[item] == Code.QUEUED
    }
    if tasks or items:
        draft.emit(
            ev.TasksRequeued(at=draft.now, tasks=tuple(sorted(tasks)), items=tuple(sorted(items)))
        )


_APPLY: Final[dict[type, Callable[[Draft, _Batch, Any], None]]] = {
    Start: _start,
    TaskResult: _task_result,
    TimerDue: _timer_due,
    SignalArrived: _signal_arrived,
    SignalHandedOver: _signal_handed_over,
    Overdue: _overdue,
    Lost: _lost,
    Pause: _pause,
    Resume: _resume,
    Cancel: _cancel,
    Terminate: _terminate,
    Retry: _operator,
    Override: _operator,
    Accept: _operator,
}
