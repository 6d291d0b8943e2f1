"""How an operator's decisions about dead letters change the state: the only events that move what
had settled. Used by `evolve`; see there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from orchestrator.domain import events as ev
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.state import FailureRecord, MapState
from orchestrator.domain.status import DEAD_CODES, STATUS_OF_CODE, Code, ExecutionStatus
from orchestrator.domain.transitions import TASK, IllegalTransition, TaskOperation, codes_from
from orchestrator.domain.working import ITEM_FROM, WorkingState

_RETRY: Final = codes_from(TASK, TaskOperation.RETRY)
_RESET: Final = codes_from(TASK, TaskOperation.RESET)
_OVERRIDE: Final = codes_from(TASK, TaskOperation.OVERRIDE)
_ACCEPT: Final = frozenset({Code.DEAD_LETTERED})
_MAP_AGAIN: Final = DEAD_CODES | {Code.CANCELLED}

_RESET_ITEMS: Final = bytes.maketrans(bytes([Code.CANCELLED]), bytes([Code.PENDING]))


def _reopened(fold: WorkingState, event: ev.ExecutionReopened) -> None:
    fold.failure = None
    fold.ended_at = None
    fold.deadline_at = event.deadline_at


def _tasks_reopened(fold: WorkingState, event: ev.TasksReopened) -> None:
    _no_failure(fold)
    for task in event.tasks:
        fold.move(task, Code.QUEUED, _RETRY, TaskOperation.RETRY)
    by_map: dict[int, list[int]] = {}
    for task, item in event.items:
        by_map.setdefault(task, []).append(item)
    for task, items in by_map.items():
        _map_again(fold, task, items, Code.QUEUED, TaskOperation.RETRY)
    fold.deadlines.update(event.deadlines)


def _reset(fold: WorkingState, event: ev.TasksReset) -> None:
    for task in event.tasks:
        if task in fold.maps:
            _map_again(fold, task, (), Code.PENDING, TaskOperation.RESET)
        else:
            fold.move(task, Code.PENDING, _RESET, TaskOperation.RESET)
    fold.deadlines.update(event.deadlines)


def _overridden(fold: WorkingState, event: ev.TaskOverridden) -> None:
    _no_failure(fold)
    if event.item is None:
        fold.move(event.task, Code.COMPLETED, _OVERRIDE, TaskOperation.OVERRIDE)
        if event.undo is not None:
            fold.undo.append(event.undo)
    else:
        _map_again(fold, event.task, (event.item,), Code.COMPLETED, TaskOperation.OVERRIDE)
        fold.set_deadline(event.task, event.deadline_at)


def _accepted(fold: WorkingState, event: ev.FailureAccepted) -> None:
    fold.move(event.task, Code.DEAD_ACCEPTED, _ACCEPT, TaskOperation.ACCEPT)
    if event.failed:
        fold.maps[event.task] = replace(fold.maps[event.task], accepted=event.failed)


def _no_failure(fold: WorkingState) -> None:
    """The failure no longer counts; what is being undone because of it is undone none the less."""
    if fold.status is not ExecutionStatus.COMPENSATING:
        fold.failure = None


def _map_again(
    fold: WorkingState, task: int, items: Iterable[int], code: int, operation: TaskOperation
) -> None:
    """A map waits for its items again, these (dead ones) at `code`. Once none of it is dead, the
    items that were cancelled with it are dispatched like those that never were."""
    state = fold.maps.get(task)
    if state is None:
        raise IllegalTransition(operation, "a task that is no map", f"task {task}")
    if fold.codes[task] != Code.WAITING:
        fold.move(task, Code.WAITING, _MAP_AGAIN, operation)
    codes, moved = bytearray(state.items), 0
    for item in items:
        before = codes[item] if 0 <= item < len(codes) else 0
        if before not in ITEM_FROM[operation]:
            status = STATUS_OF_CODE[before].value if before else "nowhere"
            raise IllegalTransition(operation, status, f"task {task} item {item}")
        codes[item] = code
        moved += 1
    state = replace(
        state,
        items=bytes(codes),
        failed=state.failed - moved,
        accepted=min(state.accepted, state.failed - moved),
        queued=state.queued + (moved if code == Code.QUEUED else 0),
        completed=state.completed + (moved if code == Code.COMPLETED else 0),
    )
    if state.failed:
        fold.maps[task] = replace(state, failure=_still_failed(state))
    else:
        fold.maps[task] = replace(
            state, items=state.items.translate(_RESET_ITEMS), cancelled=0, failure=None
        )


def _still_failed(state: MapState) -> FailureRecord | None:
    """Why the map fails if nothing more is done: the failure known, or the first of those left."""
    known = state.failure
    if known is None or (
        known.index is not None and state.items[known.index] == Code.DEAD_LETTERED
    ):
        return known
    item = state.items.find(Code.DEAD_LETTERED)
    failure = Failure(type=FailureType.MAP_ITEM_FAILED, message="see its dead letter")
    return FailureRecord(failure=failure, task=known.task, index=item)


APPLY: Final[dict[type, Callable[[Any, Any], None]]] = {
    ev.ExecutionReopened: _reopened,
    ev.TasksReopened: _tasks_reopened,
    ev.TasksReset: _reset,
    ev.TaskOverridden: _overridden,
    ev.FailureAccepted: _accepted,
}
