"""What the fold allows of compensation, whatever `decide` does."""

from __future__ import annotations

import pytest

from orchestrator.domain import events as ev
from orchestrator.domain.evolve import accepted, evolve
from orchestrator.domain.state import ExecutionState
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.transitions import IllegalTransition


def test_a_history_without_hidden_tasks_folds_as_before() -> None:
    state = accepted(ev.ExecutionAccepted(at=1, tasks=2))
    assert (state.tasks, state.hidden, state.undo, state.ending) == (b"PP", 0, (), None)
    assert accepted(ev.ExecutionAccepted(at=1, tasks=2, hidden=1)).tasks == b"PPH"


def test_a_hidden_task_moves_only_while_compensating() -> None:
    running = ExecutionState(
        status=ExecutionStatus.RUNNING, tasks=b"CH", hidden=1, accepted_at=1, undo=(1,)
    )
    for event in (
        ev.TasksQueued(at=2, tasks=(1,)),
        ev.TasksCancelled(at=2, tasks=(1,), reason="cancelled"),
        ev.TasksSkipped(at=2, tasks=(1,)),
        ev.TaskCompleted(at=2, task=1),
    ):
        with pytest.raises(IllegalTransition):
            evolve(running, event)
    started = evolve(running, ev.CompensationStarted(at=2, ending="CANCELLED", by="eve"))
    assert evolve(started, ev.TasksQueued(at=3, tasks=(1,))).tasks == b"CQ"


def test_compensation_after_a_failure_cannot_begin_before_all_has_settled() -> None:
    state = ExecutionState(status=ExecutionStatus.RUNNING, tasks=b"CQH", hidden=1, accepted_at=1)
    with pytest.raises(IllegalTransition):
        evolve(state, ev.CompensationStarted(at=2, ending="FAILED"))
    with pytest.raises(IllegalTransition):  # it never compensated
        evolve(
            ExecutionState(status=ExecutionStatus.FAILED, tasks=b"D", accepted_at=1),
            ev.CompensationReopened(at=2, by="eve"),
        )
