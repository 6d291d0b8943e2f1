"""Compensation as people see it: how far it is, and what an operator may still do meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.domain.errors import ConflictError
from orchestrator.domain.reopening import REOPENABLE
from orchestrator.domain.status import DEAD_CODES, Code, ExecutionStatus
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.views import CompensationView

ALREADY = "ALREADY_COMPENSATED"


def view(found: Aggregate) -> CompensationView | None:
    """How far it is; None if there is nothing to say: nothing completed that could be undone, or
    no failure and no cancel."""
    state, tasks = found.state, found.workflow.tasks
    if state.ending is None and (state.status is not ExecutionStatus.CANCELLED or not state.undo):
        return None
    codes = [(tasks[at].id, state.tasks[at]) for at in reversed(state.undo)]
    done = sum(1 for _, code in codes if code == Code.COMPLETED)
    if state.ending is None:
        status = "notRun"
    elif state.status is ExecutionStatus.COMPENSATING:
        status = "running"
    else:
        status = "complete" if done == len(codes) else "incomplete"
    return CompensationView(
        status=status,
        tasks=len(codes),
        done=done,
        failed=[id for id, code in codes if code in DEAD_CODES],
        left=[id for id, code in codes if code in (Code.HIDDEN, Code.CANCELLED)],
    )


def check_letters(aggregate: Aggregate, tasks: Iterable[str]) -> None:
    """Whether dead letters of these tasks may change the execution. Raises `ConflictError`."""
    state, workflow = aggregate.state, aggregate.workflow
    if state.ending is not None:
        for task in tasks:
            if workflow.tasks[workflow.index[task]].undoes is None:
                raise already(aggregate)
    if state.terminated or (state.ending is None and state.status not in REOPENABLE):
        raise ConflictError(
            f"the execution is {state.status.value}; a dead letter of it can only be discarded",
            code="EXECUTION_ENDED",
        )


def already(aggregate: Aggregate) -> ConflictError:
    """Nothing of it can be taken up again but dead compensations."""
    doing = "is being" if aggregate.state.status is ExecutionStatus.COMPENSATING else "was"
    return ConflictError(
        f"what this execution had completed {doing} undone, so nothing of it can be taken up "
        "again but dead letters of its compensations; replay it instead",
        code=ALREADY,
    )
