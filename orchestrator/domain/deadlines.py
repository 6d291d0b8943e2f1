"""Deadlines of tasks: from dispatch to end, over all attempts.

The event that dispatches a task (starts a map, begins a wait, takes up a dead letter) says until
when it must have ended. `decide` fails what has not, if the engine has looked at its document and
found no result there (`Overdue`): a result that is stored already wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.domain.draft import Draft
from orchestrator.domain.events import Deadlines
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.inputs import Overdue
from orchestrator.domain.state import ExecutionState, MapState
from orchestrator.domain.status import Code, ExecutionStatus
from orchestrator.domain.workflow import TaskSpec, Workflow


def deadline_of(draft: Draft, task: int) -> int | None:
    """When a task that is dispatched now must have ended (epoch ms); None if it need not."""
    limit = draft.workflow.tasks[task].deadline_ms
    return None if limit is None else draft.now + limit


def deadlines_of(draft: Draft, tasks: Iterable[int]) -> Deadlines:
    """`deadline_of` all of these that have one, earliest first."""
    found = [(task, due) for task in tasks if (due := deadline_of(draft, task)) is not None]
    return tuple(sorted(found, key=lambda pair: (pair[1], pair[0])))


def dispatched_at(workflow: Workflow, state: ExecutionState, task: int) -> int:
    """When a task in flight that has a deadline was dispatched the last time; 0 if it has none."""
    due, limit = state.deadlines.get(task), workflow.tasks[task].deadline_ms
    return 0 if due is None or limit is None else due - limit


def overdue(state: ExecutionState, now: int) -> list[int]:
    """Tasks whose deadline has passed, the longest overdue first."""
    late = [(due, task) for task, due in state.deadlines.items() if due <= now]
    return [task for _, task in sorted(late)]


def exceeded(spec: TaskSpec, cause: Failure | None) -> Failure:
    """The failure of a task that did not end in time; `cause`: how its last attempt failed."""
    seconds = (spec.deadline_ms or 0) / 1000
    return Failure(
        type=FailureType.DEADLINE_EXCEEDED,
        message=f"the task did not end within {seconds:g} s of its dispatch",
        retryable=False,
        field=f"$.tasks.{spec.id}.deadline",
        causes=() if cause is None else (cause,),
    )


def item_failure(state: MapState) -> Failure | None:
    """Why a map fails with an item; None while none has failed."""
    cause = state.failure
    if cause is None:
        return None
    return Failure(
        type=FailureType.MAP_ITEM_FAILED,
        message=f"item {cause.index} failed: {cause.failure.message}",
        retryable=False,
        causes=(cause.failure,),
    )


def fail_overdue(draft: Draft, given: Sequence[Overdue]) -> None:
    """Fail what is still unsettled after all results of the batch. A map of which an item has
    failed fails because of that, as ever; only that it waits no longer for the others. While the
    execution is paused nothing fails: resuming looks again."""
    for one in given:
        fold = draft.fold
        if fold.status not in (ExecutionStatus.RUNNING, ExecutionStatus.COMPENSATING):
            return
        if fold.deadlines.get(one.task, draft.now + 1) > draft.now:
            continue
        state = fold.maps.get(one.task) if fold.codes[one.task] == Code.WAITING else None
        spec = draft.workflow.tasks[one.task]
        broken = state is not None and spec.tolerate.exceeded(state)
        failure = item_failure(state) if state is not None and broken else None
        if state is not None and state.failure is not None and failure is not None:
            draft.fail_item(one.task, state, failure)
        else:
            draft.fail(one.task, exceeded(spec, one.cause), attempt=one.attempt)
