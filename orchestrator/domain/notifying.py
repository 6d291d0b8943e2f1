"""Which notifications the end of an execution causes: pure, from the events of the commit.

An execution that an operator takes up again and that ends again notifies again: the commit's number
is part of the key, so that the second end is another event.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.domain import events as ev
from orchestrator.domain.state import ExecutionState
from orchestrator.domain.status import TERMINAL_EXECUTION
from orchestrator.domain.workflow import Workflow

_ENDS = (ev.ExecutionCompleted, ev.ExecutionFailed, ev.ExecutionCancelled)


def due(workflow: Workflow, events: Sequence[ev.Event], state: ExecutionState) -> list[int]:
    """Positions in `workflow.notify` of those that want to hear of this end; none if the commit of
    `events` is no end."""
    if not workflow.notify or state.status not in TERMINAL_EXECUTION:
        return []
    if not any(isinstance(event, _ENDS) for event in events):
        return []
    wanted = enumerate(workflow.notify)
    return [number for number, one in wanted if state.status in one.on]


def key_of(seq: int, number: int) -> str:
    """What names a notification within its execution. A dot: no task is called like it."""
    return f"{seq}.{number}"
