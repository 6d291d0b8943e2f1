"""How signals change the state: buffered in the order in which they came, consumed from the front,
each by one task. Used by `evolve`; see there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from orchestrator.domain import events as ev
from orchestrator.domain.status import Code
from orchestrator.domain.taken import mark_of
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
    _take_first(fold, event.signal, f"task {event.task}")
    fold.consumed[event.task] = event.signal


def _item_signalled(fold: WorkingState, event: ev.MapItemSignalled) -> None:
    _take_first(fold, event.signal, f"task {event.task} item {event.item}")
    state = fold.move_items(event.task, (event.item,), Code.COMPLETED, TaskOperation.COMPLETE)
    fold.maps[event.task] = replace(state, queued=state.queued - 1, completed=state.completed + 1)
    fold.taken[event.task, event.item] = mark_of(event.signal)


def _raised(fold: WorkingState, event: ev.SignalRaised) -> None:
    ids = fold.signals.get(event.name, ())
    if event.id not in ids:
        raise IllegalTransition("raise", "no such signal", f"signal {event.id}")
    left = tuple(id for id in ids if id != event.id)
    if left:
        fold.signals[event.name] = left
    else:
        del fold.signals[event.name]


def _take_first(fold: WorkingState, id: str, taker: str) -> None:
    for name, ids in fold.signals.items():
        if ids[0] == id:
            if len(ids) == 1:
                del fold.signals[name]
            else:
                fold.signals[name] = ids[1:]
            return
    raise IllegalTransition(TaskOperation.COMPLETE, "no such signal", taker)


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
    ev.SignalRaised: _raised,
    ev.MapItemSignalled: _item_signalled,
}
