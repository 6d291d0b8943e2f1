"""Signals in a decision: taken in, matched with the tasks that wait for them, or out of time.

First come, first served: a task takes the oldest signal of its name, whether that came before it
began to wait or after; of tasks that wait for one name the first in the definition is served first,
of a map's items the first in the list (`itemsignals`).
A signal that is there when a task's time is over counts: matching comes before the limits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from orchestrator.domain import events as ev
from orchestrator.domain import itemsignals
from orchestrator.domain.deadlines import deadline_of
from orchestrator.domain.draft import Draft
from orchestrator.domain.durations import format_duration
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.inputs import SignalArrived, SignalHandedOver
from orchestrator.domain.status import Code, ExecutionStatus
from orchestrator.domain.workflow import TaskSpec, TaskType

MAX_BUFFERED: Final = 1_000
"""Signals of one execution that no task has taken. The state holds their ids, so that it must stay
bounded; what comes on top stays in the store until there is room (the API refuses it before)."""

_ALIVE: Final = frozenset({ExecutionStatus.RUNNING, ExecutionStatus.PAUSED})

MAX_SIGNAL_ID_CHARS: Final = 255
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def key_of(signal_id: str) -> str:
    """What stands for a signal's id in documents, state and history: itself if it is short and of
    plain characters, else a hash of it. No id can be taken for another's hash: `~` is not plain."""
    if _PLAIN.fullmatch(signal_id):
        return signal_id
    return "~" + hashlib.sha256(signal_id.encode()).hexdigest()[:40]


def take_signals(draft: Draft, arrived: Iterable[SignalArrived], *, timers: bool) -> None:
    """Buffer what is new, serve the tasks that wait, then fail those whose time is over (if
    `timers`). Paused executions only buffer."""
    fold = draft.fold
    if fold.status not in _ALIVE:
        return
    buffered = sum(map(len, fold.signals.values()))
    for signal in sorted(arrived, key=lambda one: (one.received_at, one.id)):
        if not draft.workflow.takes(signal.name) or fold.knows_signal(signal.id):
            continue
        if buffered >= MAX_BUFFERED and (
            buffered >= 2 * MAX_BUFFERED or not _waiting(draft, signal.name, most=1)
        ):
            continue
        draft.emit(ev.SignalReceived(at=draft.now, id=signal.id, name=signal.name))
        buffered += 1
    if fold.status is not ExecutionStatus.RUNNING:
        return
    serve_waiting(draft)
    if timers:
        _expire(draft)


def handed_over(draft: Draft, given: Iterable[SignalHandedOver]) -> None:
    """Forget the buffered signals that a worker has handed to an orchestration: their documents
    say so, and nothing else has to."""
    for one in given:
        task = draft.workflow.hearer(one.name)
        if task is not None and one.id in draft.fold.signals.get(one.name, ()):
            draft.emit(ev.SignalRaised(at=draft.now, id=one.id, name=one.name, task=task))


def serve_waiting(draft: Draft) -> bool:
    """Hand buffered signals to those who wait; whether a map item got one, so that its map may
    have moved."""
    served = len(draft.signalled_items)
    for name in sorted(draft.fold.signals):
        for task, item in _waiting(draft, name, most=len(draft.fold.signals[name])):
            if item is None:
                done = serve(draft, task, name)
            else:
                done = itemsignals.serve(draft, task, item, name)
            if not done:
                break
    return len(draft.signalled_items) > served


def start_signal(draft: Draft, task: int, spec: TaskSpec) -> None:
    """A signal task's turn has come: it takes a signal that came before it, or waits for one."""
    if serve(draft, task, spec.signal):
        return
    due_at = None if spec.wait_ms is None else draft.now + spec.wait_ms
    draft.emit(
        ev.SignalAwaited(
            at=draft.now,
            task=task,
            name=spec.signal,
            due_at=due_at,
            deadline_at=deadline_of(draft, task),
        )
    )


def serve(draft: Draft, task: int, name: str) -> bool:
    """Complete the task with the oldest signal of this name; whether there was one."""
    ids = draft.fold.signals.get(name)
    if not ids:
        return False
    undo = draft.workflow.undo.get(task)
    draft.emit(ev.TaskCompleted(at=draft.now, task=task, signal=ids[0], undo=undo))
    draft.signalled[task] = ids[0]
    draft.changed.append(task)
    return True


def listens(code: int, spec: TaskSpec) -> bool:
    """Whether a task at this code waits for a signal, with a time limit or without."""
    return code == Code.WAITING and spec.type is TaskType.SIGNAL


def _waiting(draft: Draft, name: str, *, most: int) -> list[tuple[int, int | None]]:
    """The first tasks, and items of maps, that wait for a signal of this name."""
    found: list[tuple[int, int | None]] = []
    for task in draft.workflow.signals.get(name, ()):
        if draft.workflow.tasks[task].do is not None:
            items = islice(itemsignals.waiting(draft, task), most - len(found))
            found += [(task, item) for item in items]
        elif draft.fold.codes[task] == Code.WAITING:
            found.append((task, None))
        if len(found) >= most:
            break
    return found


def _expire(draft: Draft) -> None:
    tasks = draft.workflow.tasks
    due = [
        task
        for task, due_at in draft.fold.waits.items()
        if due_at <= draft.now and tasks[task].type is TaskType.SIGNAL
    ]
    for task in sorted(due):
        spec = tasks[task]
        assert spec.wait_ms is not None
        draft.fail(
            task,
            Failure(
                type=FailureType.SIGNAL_TIMEOUT,
                message=f"no signal {spec.signal!r} came within {format_duration(spec.wait_ms)}",
                retryable=False,
                field=f"$.tasks.{spec.id}.timeout",
            ),
        )
