"""The only place where an execution's state changes: state + event -> state.

`decide` builds its new state by applying the events that it returns, the engine stores the two
together, and `weft verify` folds the history again and compares. A second place that changes state
would make the history a story beside the truth.

`Fold` is the working form (bytes thawed, so that a commit of many events copies them once);
`evolve` and `fold` are the pure functions around it. Events that make no sense raise
`IllegalTransition`. The workflow is not needed: a history can be checked by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from orchestrator.domain import events as ev
from orchestrator.domain import evolve_compensation, evolve_operator, evolve_signals
from orchestrator.domain.state import ExecutionState, MapState
from orchestrator.domain.status import SETTLED_CODES, Code, ExecutionStatus
from orchestrator.domain.transitions import (
    TASK,
    ExecutionOperation,
    IllegalTransition,
    TaskOperation,
    check_execution,
    codes_from,
)
from orchestrator.domain.working import ITEM_FROM, WorkingState

_QUEUE: Final = codes_from(TASK, TaskOperation.QUEUE)
_UNDO: Final = _QUEUE | codes_from(TASK, TaskOperation.UNDO)
_REQUEUE: Final = codes_from(TASK, TaskOperation.REQUEUE)
_WAIT: Final = codes_from(TASK, TaskOperation.WAIT)
_SKIP: Final = codes_from(TASK, TaskOperation.SKIP)
_COPY: Final = frozenset({Code.PENDING})
_COMPLETE: Final = codes_from(TASK, TaskOperation.COMPLETE)
_FAIL: Final = codes_from(TASK, TaskOperation.FAIL)
_CANCEL: Final = codes_from(TASK, TaskOperation.CANCEL)

_CANCEL_ITEMS: Final = bytes.maketrans(
    bytes(sorted(ITEM_FROM[TaskOperation.CANCEL])),
    bytes([Code.CANCELLED]) * len(ITEM_FROM[TaskOperation.CANCEL]),
)


class Fold(WorkingState):
    """The working state with the one way to change it."""

    __slots__ = ()

    def apply(self, event: ev.Event) -> None:
        """Change the state as `event` says. Raises `IllegalTransition`; the fold is then spoilt."""
        operation = _EXECUTION_OPERATION.get(type(event), ExecutionOperation.PROGRESS)
        self.status = check_execution(operation, self.status)
        _APPLY[type(event)](self, event)


def _copied(fold: Fold, event: ev.TasksCopied) -> None:
    for task in event.tasks:
        fold.move(task, Code.COMPLETED, _COPY, TaskOperation.COMPLETE)


def _started(fold: Fold, event: ev.ExecutionStarted) -> None:
    fold.started_at = event.at
    fold.deadline_at = event.deadline_at


def _queued(fold: Fold, event: ev.TasksQueued) -> None:
    allowed = _UNDO if fold.status is ExecutionStatus.COMPENSATING else _QUEUE
    for task in event.tasks:
        before = fold.move(task, Code.QUEUED, allowed, TaskOperation.QUEUE)
        if before == Code.WAITING:
            state = fold.maps.get(task)
            # How many may have failed is the definition's to say, and `decide`'s to judge.
            if state is None or state.completed + state.failed != state.count:
                raise IllegalTransition(TaskOperation.QUEUE, "WAITING", f"unfinished task {task}")
    fold.deadlines.update(event.deadlines)


def _requeued(fold: Fold, event: ev.TasksRequeued) -> None:
    for task in event.tasks:
        fold.move(task, Code.QUEUED, _REQUEUE, TaskOperation.REQUEUE)
    for task, item in event.items:
        fold.move_items(task, (item,), Code.QUEUED, TaskOperation.REQUEUE)


def _waiting(fold: Fold, event: ev.TaskWaiting) -> None:
    fold.move(event.task, Code.WAITING, _WAIT, TaskOperation.WAIT)
    fold.waits[event.task] = event.due_at
    fold.set_deadline(event.task, event.deadline_at)


def _skipped(fold: Fold, event: ev.TasksSkipped) -> None:
    code = Code.SKIPPED_CONDITION if event.condition else Code.SKIPPED_UPSTREAM
    for task in event.tasks:
        fold.move(task, code, _SKIP, TaskOperation.SKIP)


def _completed(fold: Fold, event: ev.TaskCompleted) -> None:
    before = fold.move(event.task, Code.COMPLETED, _COMPLETE, TaskOperation.COMPLETE)
    if event.signal:
        evolve_signals.consume(fold, event)
    elif before == Code.WAITING and fold.waits.pop(event.task, None) is None:
        raise IllegalTransition(TaskOperation.COMPLETE, "WAITING", f"map task {event.task}")
    if event.undo is not None:
        fold.undo.append(event.undo)


def _failed(fold: Fold, event: ev.TaskFailed) -> None:
    code = Code.DEAD_ACCEPTED if event.accepted else Code.DEAD_LETTERED
    late = event.at >= fold.deadlines.get(event.task, event.at + 1)
    before = fold.move(event.task, code, _FAIL, TaskOperation.FAIL)
    if before != Code.WAITING:
        return
    if late:
        _close(fold, event.task)
        return
    if evolve_signals.timed_out(fold, event):
        return
    state = fold.maps.get(event.task)
    if state is None or not state.failed or state.queued:
        raise IllegalTransition(TaskOperation.FAIL, "WAITING", f"task {event.task}")


def _cancelled(fold: Fold, event: ev.TasksCancelled) -> None:
    for task in event.tasks:
        _cancel(fold, task)


def _cancel(fold: Fold, task: int) -> None:
    fold.move(task, Code.CANCELLED, _CANCEL, TaskOperation.CANCEL)
    _close(fold, task)


def _close(fold: Fold, task: int) -> None:
    """A task that waits no longer, for time or for its items."""
    fold.waits.pop(task, None)
    state = fold.maps.get(task)
    if state is not None:
        fold.maps[task] = replace(
            state,
            items=state.items.translate(_CANCEL_ITEMS),
            queued=0,
            cancelled=state.count - state.completed - state.failed,
        )


def _map_started(fold: Fold, event: ev.MapStarted) -> None:
    fold.move(event.task, Code.WAITING, _WAIT, TaskOperation.WAIT)
    fold.maps[event.task] = MapState(items=bytes([Code.PENDING]) * event.count, count=event.count)
    fold.set_deadline(event.task, event.deadline_at)


def _items_queued(fold: Fold, event: ev.MapItemsQueued) -> None:
    items = range(event.start, event.start + event.count)
    state = fold.move_items(event.task, items, Code.QUEUED, TaskOperation.QUEUE)
    fold.maps[event.task] = replace(state, queued=state.queued + event.count)


def _items_completed(fold: Fold, event: ev.MapItemsCompleted) -> None:
    state = fold.move_items(event.task, event.items, Code.COMPLETED, TaskOperation.COMPLETE)
    done = len(event.items)
    fold.maps[event.task] = replace(
        state, queued=state.queued - done, completed=state.completed + done
    )


def _item_failed(fold: Fold, event: ev.MapItemFailed) -> None:
    state = fold.move_items(event.task, (event.item,), Code.DEAD_LETTERED, TaskOperation.FAIL)
    fold.maps[event.task] = replace(
        state,
        queued=state.queued - 1,
        failed=state.failed + 1,
        failure=state.failure or event.failure,
    )


def _items_cancelled(fold: Fold, event: ev.MapItemsCancelled) -> None:
    state = fold.move_items(event.task, event.items, Code.CANCELLED, TaskOperation.CANCEL)
    queued = state.items.count(Code.QUEUED)
    if state.queued - queued != len(event.items):
        raise IllegalTransition(TaskOperation.CANCEL, "PENDING", f"items of task {event.task}")
    fold.maps[event.task] = replace(
        state, queued=queued, cancelled=state.cancelled + len(event.items)
    )


def _failure_noted(fold: Fold, event: ev.FailureNoted) -> None:
    if fold.failure is None:
        fold.failure = event.failure


def _execution_completed(fold: Fold, event: ev.ExecutionCompleted) -> None:
    _end(fold, event.at, ExecutionOperation.COMPLETE)
    if fold.failure is not None:
        raise IllegalTransition(ExecutionOperation.COMPLETE, "failing", "the execution")
    fold.output = event.output


def _execution_failed(fold: Fold, event: ev.ExecutionFailed) -> None:
    _end(fold, event.at, ExecutionOperation.FAIL)
    fold.failure = event.failure


def _execution_cancelled(fold: Fold, event: ev.ExecutionCancelled) -> None:
    for task, code in enumerate(fold.codes):
        if code not in SETTLED_CODES:
            _cancel(fold, task)
    fold.ended_at = event.at
    fold.terminated = event.terminated


def _no_more(fold: Fold, event: ev.Event) -> None:
    """The status is all that changes."""


def _end(fold: Fold, at: int, operation: ExecutionOperation) -> None:
    if fold.unsettled():
        raise IllegalTransition(operation, "unsettled tasks", "the execution")
    fold.ended_at = at


_EXECUTION_OPERATION: Final[dict[type, ExecutionOperation]] = {
    ev.ExecutionStarted: ExecutionOperation.START,
    ev.ExecutionCompleted: ExecutionOperation.COMPLETE,
    ev.ExecutionFailed: ExecutionOperation.FAIL,
    ev.ExecutionPaused: ExecutionOperation.PAUSE,
    ev.ExecutionResumed: ExecutionOperation.RESUME,
    ev.ExecutionCancelled: ExecutionOperation.CANCEL,
    ev.ExecutionReopened: ExecutionOperation.REOPEN,
    ev.TasksCopied: ExecutionOperation.COPY,
    ev.CompensationStarted: ExecutionOperation.COMPENSATE,
    ev.CompensationReopened: ExecutionOperation.COMPENSATE_AGAIN,
}

_APPLY: Final[dict[type, Callable[[Fold, Any], None]]] = {
    ev.ExecutionStarted: _started,
    ev.TasksQueued: _queued,
    ev.TasksRequeued: _requeued,
    ev.TaskWaiting: _waiting,
    ev.TasksSkipped: _skipped,
    ev.TaskCompleted: _completed,
    ev.TaskFailed: _failed,
    ev.TasksCancelled: _cancelled,
    ev.MapStarted: _map_started,
    ev.MapItemsQueued: _items_queued,
    ev.MapItemsCompleted: _items_completed,
    ev.MapItemFailed: _item_failed,
    ev.MapItemsCancelled: _items_cancelled,
    ev.FailureNoted: _failure_noted,
    ev.ExecutionCompleted: _execution_completed,
    ev.ExecutionFailed: _execution_failed,
    ev.ExecutionPaused: _no_more,
    ev.ExecutionResumed: _no_more,
    ev.ExecutionCancelled: _execution_cancelled,
    ev.TasksCopied: _copied,
    **evolve_operator.APPLY,
    **evolve_signals.APPLY,
    **evolve_compensation.APPLY,
}


def accepted(event: ev.ExecutionAccepted) -> ExecutionState:
    """The state that submission stores: everything PENDING, compensations hidden behind it."""
    return ExecutionState(
        status=ExecutionStatus.PENDING,
        tasks=bytes([Code.PENDING]) * event.tasks + bytes([Code.HIDDEN]) * event.hidden,
        hidden=event.hidden,
        accepted_at=event.at,
    )


def evolve(state: ExecutionState | None, event: ev.Event) -> ExecutionState:
    """The state after `event`. `state` is None for the first one, ExecutionAccepted, only. `seq`
    belongs to the commit and is left alone. Raises `IllegalTransition`."""
    return fold(state, (event,))


def fold(state: ExecutionState | None, events: Iterable[ev.Event]) -> ExecutionState:
    """`evolve` over all events, in order, copying only once. Raises `IllegalTransition`, also for
    an empty history."""
    working = None if state is None else Fold(state)
    for event in events:
        if isinstance(event, ev.ExecutionAccepted):
            if working is not None:
                raise IllegalTransition("accept", working.status, "the execution")
            working = Fold(accepted(event))
        elif working is None:
            raise IllegalTransition(type(event).__name__, "nothing", "the execution")
        else:
            working.apply(event)
    if working is None:
        raise IllegalTransition("fold", "nothing", "an empty history")
    return working.freeze()
