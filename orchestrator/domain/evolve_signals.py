"""How signals change the state: buffered in the order in which they came, consumed from the front,
each by one task. Used by `evolve`; see there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from orchestrator.domain import events as ev
from orchestrator.domain.status import Code
from orchestrator.domain.transitions import TASK, IllegalTransition, TaskOperation, codes_from
from orchestrator.domain.working import WorkingState

_WAIT: Final = codes_from(TASK, TaskOperation.WAIT)


def _received(fold: WorkingState, event: ev.SignalReceived) -> None:
    if fold.knows_signal(event.id):
        raise IllegalTransition("receive", "received", f"signal {event.id}")
    fold.signals[event.name] = (*fold.signals.get(event.name, ()), event.id)


def _awaited(fold: WorkingState, event: ev.SignalAwaited) -> None:
    fold.move(event.task, Code.WAITING, _WAIT, TaskOperation.WAIT)
    if event.due_at is not None:
        fold.waits[event.task] = event.due_at
    fold.set_deadline(event.task, event.deadline_at)


def consume(fold: WorkingState, event: ev.TaskCompleted) -> None:
    """The task took the first signal of some name. Raises `IllegalTransition` if it was not the
    first, or not there at all."""
    fold.waits.pop(event.task, None)
    for name, ids in fold.signals.items():
        if ids[0] == event.signal:
            if len(ids) == 1:
                del fold.signals[name]
            else:
                fold.signals[name] = ids[1:]
            fold.consumed[event.task] = event.signal
            return
    raise IllegalTransition(TaskOperation.COMPLETE, "no such signal", f"task {event.task}")


def timed_out(fold: WorkingState, event: ev.TaskFailed) -> bool:
    """Whether a task that failed while it waited had waited for a signal until its time was over;
    it does not wait any more."""
    due_at = fold.waits.get(event.task)
    if due_at is None or due_at > event.at:
        return False
    del fold.waits[event.task]
    return True


APPLY: Final[dict[type, Callable[[Any, Any], None]]] = {
    ev.SignalReceived: _received,
    ev.SignalAwaited: _awaited,
}
