"""How compensation changes the state. Used by `evolve`; see there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from orchestrator.domain import events as ev
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.transitions import ExecutionOperation, IllegalTransition
from orchestrator.domain.working import WorkingState


def _started(fold: WorkingState, event: ev.CompensationStarted) -> None:
    fold.ending = ExecutionStatus(event.ending)
    if fold.ending is ExecutionStatus.FAILED:
        if fold.unsettled():
            raise IllegalTransition(
                ExecutionOperation.COMPENSATE, "unsettled tasks", "the execution"
            )
        fold.failure = event.failure


def _reopened(fold: WorkingState, event: ev.CompensationReopened) -> None:
    if fold.ending is None or fold.terminated:
        raise IllegalTransition(
            ExecutionOperation.COMPENSATE_AGAIN, "an end without compensation", "the execution"
        )
    fold.ended_at = None


APPLY: Final[dict[type, Callable[[Any, Any], None]]] = {
    ev.CompensationStarted: _started,
    ev.CompensationReopened: _reopened,
}
