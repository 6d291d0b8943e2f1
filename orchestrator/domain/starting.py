"""What happens when a task's turn has come: its condition, then what its type does first.

One function per kind of start, found by type. Tasks for the workers are only collected
(`Draft.ready`): dispatch is decided last, when it is certain that nothing stops them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from orchestrator.domain import events as ev
from orchestrator.domain.deadlines import deadline_of, deadlines_of, item_failure
from orchestrator.domain.draft import Draft
from orchestrator.domain.evaluation import (
    Missing,
    Refused,
    evaluate,
    json_text,
    refused,
    source_of,
)
from orchestrator.domain.failure import FailureType
from orchestrator.domain.join import Verdict, judge
from orchestrator.domain.signalling import start_signal
from orchestrator.domain.status import Code
from orchestrator.domain.topology import MAX_MAP_ITEMS
from orchestrator.domain.workflow import TaskSpec, TaskType

MAX_WAIT_DAYS: Final = 3650  # a wait further ahead is taken for a mistake (seconds for ms, …)
_MAX_WAIT_MS: Final = MAX_WAIT_DAYS * 24 * 3600 * 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def consider(draft: Draft, task: int) -> None:
    """Skip, start or leave alone a PENDING task, by its needs and its `when`. If data is missing
    (`Draft.missing`), it is left alone."""
    spec = draft.workflow.tasks[task]
    verdict = judge(spec.run_when, spec.needs, draft.fold.codes, holding=draft.holding)
    if verdict is Verdict.WAIT:
        return
    if verdict is Verdict.SKIP:
        draft.skip(task, condition=False)
        return
    try:
        if _condition(draft, task, spec):
            _start(draft, task, spec)
        else:
            draft.skip(task, condition=True)
    except Missing:
        return
    except Refused as refusal:
        draft.fail(task, refusal.failure)


def advance_map(draft: Draft, task: int) -> None:
    """End or gather a WAITING map whose items moved, if nothing of it is in flight. After a failed
    or given back item, or when fail-fast stops it, no further item is dispatched."""
    if draft.fold.codes[task] != Code.WAITING:
        return
    state = draft.fold.maps[task]
    # Stopped or not, a map can be undone only after it has completed.
    may = not draft.stopped(task) or task in draft.workflow.undo
    if state.completed == state.count and may:
        draft.ready.add(task)
    elif not state.queued and (state.failed or state.cancelled or draft.stopped(task)):
        failure = item_failure(state)
        if state.failure is None or failure is None:
            draft.cancel([task], draft.reason)
            return
        draft.fail(task, failure, index=state.failure.index)


def dispatch(draft: Draft, maps: set[int]) -> None:
    """Hand to the workers what is ready now: tasks and gatherings in one event, then the next items
    of `maps`, each up to its `maxConcurrency`."""
    ready = sorted(t for t in draft.ready if draft.fold.codes[t] in (Code.PENDING, Code.WAITING))
    if ready:
        # A map's deadline counts from its start, not from its gathering.
        begun = [task for task in ready if draft.fold.codes[task] == Code.PENDING]
        deadlines = deadlines_of(draft, begun)
        draft.emit(ev.TasksQueued(at=draft.now, tasks=tuple(ready), deadlines=deadlines))
    for task in sorted(maps):
        if draft.fold.codes[task] != Code.WAITING or draft.stopped(task):
            continue
        state = draft.fold.maps[task]
        if state.failed or state.cancelled:
            continue
        room = (draft.workflow.tasks[task].max_concurrency or state.count) - state.queued
        for start, count in _pending_runs(state.items, room):
            draft.emit(ev.MapItemsQueued(at=draft.now, task=task, start=start, count=count))


def _pending_runs(items: bytes, room: int) -> Iterator[tuple[int, int]]:
    """The first `room` PENDING items as (start, count). One run, unless the map was reopened."""
    start = items.find(Code.PENDING)
    while room > 0 and start >= 0:
        some = items[start : start + room]
        count = len(some) - len(some.lstrip(bytes([Code.PENDING])))
        yield start, count
        room -= count
        start = items.find(Code.PENDING, start + count)


def _condition(draft: Draft, task: int, spec: TaskSpec) -> bool:
    if spec.when is None:
        return True
    field = f"$.tasks.{spec.id}.when"
    value = evaluate(draft, spec.when, field, task)
    if not isinstance(value, bool):
        raise refused(
            FailureType.EXPRESSION,
            f"`when` must give true or false, not {_kind(value)}",
            field,
            spec.when.source,
        )
    return value


def _start(draft: Draft, task: int, spec: TaskSpec) -> None:
    match spec.type:
        case TaskType.WAIT:
            _start_wait(draft, task, spec)
        case TaskType.MAP:
            _start_map(draft, task, spec)
        case TaskType.SIGNAL:
            start_signal(draft, task, spec)
        case _:
            draft.ready.add(task)


def _start_wait(draft: Draft, task: int, spec: TaskSpec) -> None:
    if spec.until is not None:
        due_at = _until(draft, task, spec)
    else:
        due_at = draft.now + (spec.duration_ms or 0)
    if due_at - draft.now > _MAX_WAIT_MS:
        field = f"$.tasks.{spec.id}." + ("duration" if spec.until is None else "until")
        raise refused(
            FailureType.WAIT_INVALID, f"the wait is longer than {MAX_WAIT_DAYS} days", field
        )
    if due_at <= draft.now:
        draft.complete(task, None)
    else:
        deadline = deadline_of(draft, task)
        draft.emit(ev.TaskWaiting(at=draft.now, task=task, due_at=due_at, deadline_at=deadline))


def _until(draft: Draft, task: int, spec: TaskSpec) -> int:
    """The time that `until` names, epoch milliseconds, rounded up: never fire before it."""
    assert spec.until is not None
    field = f"$.tasks.{spec.id}.until"
    source = source_of(spec.until)
    value = evaluate(draft, spec.until, field, task)
    if not isinstance(value, str):
        raise refused(
            FailureType.WAIT_INVALID,
            f"`until` must give an ISO 8601 time as text, not {_kind(value)}",
            field,
            source,
        )
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise refused(
            FailureType.WAIT_INVALID, "`until` is not an ISO 8601 time", field, source
        ) from None
    if time.utcoffset() is None:
        raise refused(
            FailureType.WAIT_INVALID,
            "`until` has no offset: write Z or +01:00 at the end",
            field,
            source,
        )
    return -((_EPOCH - time) // _MILLISECOND)


def _start_map(draft: Draft, task: int, spec: TaskSpec) -> None:
    assert spec.items is not None
    field = f"$.tasks.{spec.id}.items"
    source = source_of(spec.items)
    value = evaluate(draft, spec.items, field, task)
    if not isinstance(value, list):
        raise refused(
            FailureType.MAP_ITEMS_INVALID,
            f"`items` must give a list, not {_kind(value)}",
            field,
            source,
        )
    if len(value) > MAX_MAP_ITEMS:
        raise refused(
            FailureType.MAP_ITEMS_INVALID,
            f"`items` gives {len(value)} items, at most {MAX_MAP_ITEMS} are allowed",
            field,
            source,
        )
    if not value:
        draft.complete(task, [])
        return
    json_text(value, FailureType.MAP_ITEMS_INVALID, field, source)
    deadline = deadline_of(draft, task)
    draft.emit(ev.MapStarted(at=draft.now, task=task, count=len(value), deadline_at=deadline))
    draft.items[task] = value
    draft.maps.add(task)


_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "something else")
