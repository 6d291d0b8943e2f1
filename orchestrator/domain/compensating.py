"""Compensation (saga): undo what completed, last first, before an execution ends without success.

Every task with a `compensate` has a second, hidden task behind the visible ones. It is dispatched
like any other, so claims, retries, leases and dead letters need no second set of rules; only who
dispatches it differs: not its needs, but this module, one at a time, in reverse order of
completion. One that fails for good becomes a dead letter and does not stop the others.
"""

from __future__ import annotations

from typing import TypeAlias

from orchestrator.domain import events as ev
from orchestrator.domain.draft import Draft
from orchestrator.domain.inputs import Accept, Cancel, Override, Retry, Terminate
from orchestrator.domain.starting import advance_map, dispatch
from orchestrator.domain.state import ExecutionState, FailureRecord
from orchestrator.domain.status import DEAD_CODES, Code, ExecutionStatus
from orchestrator.domain.workflow import HANDLERS, OnFailure, TaskType, Workflow
from orchestrator.domain.working import WorkingState

Operator: TypeAlias = Retry | Override | Accept


def fail(draft: Draft, failure: FailureRecord) -> None:
    """The end FAILED; before it, what completed is undone."""
    if draft.fold.undo:
        draft.emit(ev.CompensationStarted(at=draft.now, ending="FAILED", failure=failure))
        compensate(draft)
    else:
        draft.emit(ev.ExecutionFailed(at=draft.now, failure=failure))


def cancel(draft: Draft, given: Cancel) -> None:
    """The end CANCELLED at once, or compensation before it: then nothing new starts, what is in
    flight ends, and its results count."""
    fold = draft.fold
    if fold.status is ExecutionStatus.COMPENSATING:
        return
    if not (given.compensate and (fold.undo or _in_flight(fold))):
        draft.emit(ev.ExecutionCancelled(at=draft.now, by=given.by, reason=given.reason))
        return
    draft.emit(
        ev.CompensationStarted(at=draft.now, ending="CANCELLED", by=given.by, reason=given.reason)
    )
    victims = [t for t, code in enumerate(fold.codes) if code == Code.PENDING or t in fold.waits]
    draft.cancel(victims, draft.reason)


def terminate(draft: Draft, given: Terminate) -> None:
    """The end CANCELLED, whatever it is doing."""
    draft.emit(
        ev.ExecutionCancelled(at=draft.now, by=given.by, reason=given.reason, terminated=True)
    )


def compensate(draft: Draft) -> None:
    """While COMPENSATING: wait for what is in flight, then dispatch the next compensation; after
    the last one, end."""
    fold = draft.fold
    for task in sorted(fold.maps):
        advance_map(draft, task)
    dispatch(draft, set())
    if fold.unsettled():
        return
    for undo in reversed(fold.undo):
        if fold.codes[undo] == Code.HIDDEN:
            draft.emit(ev.TasksQueued(at=draft.now, tasks=(undo,)))
            return
    if fold.ending is ExecutionStatus.CANCELLED:
        draft.emit(ev.ExecutionCancelled(at=draft.now, by=""))
    else:
        assert fold.failure is not None
        draft.emit(ev.ExecutionFailed(at=draft.now, failure=fold.failure))


def apply_operator(draft: Draft, given: Operator) -> None:
    """Retry or skip a dead compensation; the only thing that an operator can still change once
    compensation has begun. A retry is dispatched at once, beside one that may be in flight."""
    if draft.fold.terminated:
        return
    match given:
        case Retry():
            tasks = sorted({task for task in given.tasks if _dead(draft, task)})
            if tasks:
                _again(draft, given)
                draft.emit(
                    ev.TasksReopened(
                        at=draft.now, by=given.by, reason=given.reason, tasks=tuple(tasks)
                    )
                )
        case Override(item=None) if _dead(draft, given.task):
            _again(draft, given)
            draft.emit(
                ev.TaskOverridden(at=draft.now, task=given.task, by=given.by, reason=given.reason)
            )
        case _:
            pass


def gives_back(workflow: Workflow, state: ExecutionState, position: int) -> bool:
    """Whether a dispatched task is not begun any more: the execution is failing fast and this is no
    handler, or it is cancelled with compensation. Compensations are begun; so is the gathering of
    a map that can be undone: its items are done, and without it their work would stay."""
    spec = workflow.tasks[position]
    gathers = spec.type is TaskType.MAP and state.tasks[position] == Code.QUEUED
    if spec.undoes is not None or (gathers and position in workflow.undo):
        return False
    return state.status is ExecutionStatus.COMPENSATING or (
        state.failure is not None
        and workflow.on_failure is OnFailure.FAIL_FAST
        and spec.run_when not in HANDLERS
    )


def _in_flight(fold: WorkingState) -> bool:
    return Code.QUEUED in fold.codes or any(progress.queued for progress in fold.maps.values())


def _again(draft: Draft, given: Retry | Override) -> None:
    if draft.fold.status is not ExecutionStatus.COMPENSATING:
        draft.emit(ev.CompensationReopened(at=draft.now, by=given.by, reason=given.reason))


def _dead(draft: Draft, task: int) -> bool:
    codes, tasks = draft.fold.codes, draft.workflow.tasks
    return 0 <= task < len(codes) and tasks[task].undoes is not None and codes[task] in DEAD_CODES
