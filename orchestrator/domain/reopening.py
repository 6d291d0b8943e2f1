"""An operator's decisions about dead letters become events: part of `apply_inputs`.

The one exception to "what has settled does not move". Completed tasks stay completed: they are not
run again. What a failure had stopped, and what was skipped behind it, is judged again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from orchestrator.domain import compensating
from orchestrator.domain import events as ev
from orchestrator.domain.compensating import Operator
from orchestrator.domain.deadlines import deadline_of, deadlines_of
from orchestrator.domain.draft import Draft
from orchestrator.domain.inputs import Accept, Override, Retry
from orchestrator.domain.state import FailureRecord
from orchestrator.domain.status import DEAD_CODES, SKIPPED_CODES, Code, ExecutionStatus
from orchestrator.domain.workflow import TaskType

REOPENABLE: Final = frozenset(
    {ExecutionStatus.RUNNING, ExecutionStatus.PAUSED, ExecutionStatus.FAILED}
)


def apply_operator(draft: Draft, given: Sequence[Operator]) -> None:
    """Emit the events of these decisions, in their order; nothing for one that does not fit."""
    for one in given:
        if draft.fold.ending is not None:
            compensating.apply_operator(draft, one)
            continue
        if draft.fold.status not in REOPENABLE:
            return
        match one:
            case Retry():
                _retry(draft, one)
            case Override():
                _override(draft, one)
            case Accept():
                _accept(draft, one)


def _retry(draft: Draft, given: Retry) -> None:
    codes = draft.fold.codes
    judged = {
        task for task in given.judged if _dead(draft, task) and not _failed_items(draft, task)
    }
    tasks = {task for task in given.tasks if _dead(draft, task) and _has_worker(draft, task)}
    items = {(task, item) for task, item in given.items if _dead_item(draft, task, item)}
    cancelled = given.cancelled and Code.CANCELLED in codes
    if not (judged or tasks or items or cancelled):
        return
    _reopen(draft, given.by, given.reason)
    dispatched = {*(tasks - judged), *(task for task, _ in items)}
    draft.emit(
        ev.TasksReopened(
            at=draft.now,
            by=given.by,
            reason=given.reason,
            tasks=tuple(sorted(tasks - judged)),
            items=tuple(sorted(items)),
            deadlines=deadlines_of(draft, dispatched),
        )
    )
    _reset(draft, {*tasks, *(task for task, _ in items)}, also=judged)


def _override(draft: Draft, given: Override) -> None:
    if given.item is None:
        if not _dead(draft, given.task) or _failed_items(draft, given.task):
            return
    elif not _dead_item(draft, given.task, given.item):
        return
    _reopen(draft, given.by, given.reason)
    again = given.item is not None and draft.fold.codes[given.task] != Code.WAITING
    draft.emit(
        ev.TaskOverridden(
            at=draft.now,
            task=given.task,
            item=given.item,
            by=given.by,
            reason=given.reason,
            deadline_at=deadline_of(draft, given.task) if again else None,
            undo=draft.workflow.undo.get(given.task) if given.item is None else None,
        )
    )
    if given.item is None:
        draft.changed.append(given.task)
    _reset(draft, {given.task})


def _accept(draft: Draft, given: Accept) -> None:
    fits = draft.holding and draft.fold.status is not ExecutionStatus.FAILED
    if not fits or not _dead(draft, given.task, frozenset({Code.DEAD_LETTERED})):
        return
    record = FailureRecord(failure=given.failure, task=draft.workflow.tasks[given.task].id)
    state = draft.fold.maps.get(given.task)
    failed = 0 if state is None else state.failed
    draft.emit(
        ev.FailureAccepted(
            at=draft.now, task=given.task, by=given.by, reason=given.reason, failed=failed
        )
    )
    draft.changed.append(given.task)
    draft.note(record)


def _reopen(draft: Draft, by: str, reason: str) -> None:
    if draft.fold.status is ExecutionStatus.FAILED:
        timeout = draft.workflow.timeout_ms
        deadline_at = None if timeout is None else draft.now + timeout
        draft.emit(
            ev.ExecutionReopened(at=draft.now, by=by, reason=reason, deadline_at=deadline_at)
        )


def _reset(draft: Draft, roots: Iterable[int], also: Iterable[int] = ()) -> None:
    """Judge again: `also`, whatever a failure had cancelled, and what was skipped behind these or
    behind `roots`. Through tasks that stay as they are nothing is handed on."""
    codes, successors = draft.fold.codes, draft.workflow.successors
    found = {*also, *(task for task, code in enumerate(codes) if code == Code.CANCELLED)}
    stack = [*roots, *found]
    while stack:
        for task in successors[stack.pop()]:
            if task not in found and codes[task] in SKIPPED_CODES:
                found.add(task)
                stack.append(task)
    if found:
        again = [task for task in found if task in draft.fold.maps]  # they go on at once
        deadlines = deadlines_of(draft, again)
        draft.emit(ev.TasksReset(at=draft.now, tasks=tuple(sorted(found)), deadlines=deadlines))


def _dead(draft: Draft, task: int, dead: frozenset[int] = DEAD_CODES) -> bool:
    return 0 <= task < len(draft.fold.codes) and draft.fold.codes[task] in dead


def _has_worker(draft: Draft, task: int) -> bool:
    """Not a map that failed before all its items were done: with one (those are what can be taken
    up), without any, or at its deadline (it is judged again)."""
    kind = draft.workflow.tasks[task].type
    state = draft.fold.maps.get(task)
    if kind is TaskType.MAP:
        return state is not None and draft.workflow.tasks[task].tolerate.gathers(state)
    return kind not in (TaskType.WAIT, TaskType.SIGNAL)


def _failed_items(draft: Draft, task: int) -> bool:
    state = draft.fold.maps.get(task)
    return state is not None and draft.workflow.tasks[task].tolerate.exceeded(state)


def _dead_item(draft: Draft, task: int, item: int) -> bool:
    state = draft.fold.maps.get(task)
    if state is None or not 0 <= item < state.count:
        return False
    may = DEAD_CODES | {Code.CANCELLED, Code.WAITING}
    return draft.fold.codes[task] in may and state.items[item] == Code.DEAD_LETTERED
