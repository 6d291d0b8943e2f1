"""What is stored comes back, is JSON, and is small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from core_build import BOOM, task, workflow
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain import events as ev
from orchestrator.domain.codec import (
    chunks_of,
    describe,
    event_from_doc,
    event_to_doc,
    open_maps,
    pack,
    state_from_doc,
    state_to_doc,
    unpack,
)
from orchestrator.domain.failure import Failure
from orchestrator.domain.payload import Payload
from orchestrator.domain.state import ExecutionState, FailureRecord, MapState
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.taken import mark_of

times = st.integers(0, 2**45)
positions = st.integers(0, 9_999)
many = st.lists(positions, max_size=40).map(tuple)
deadlines = st.dictionaries(positions, times, max_size=20).map(
    lambda found: tuple(sorted(found.items(), key=lambda pair: (pair[1], pair[0])))
)
failures = st.builds(
    Failure,
    type=st.text(max_size=5),
    message=st.text(max_size=20),
    retryable=st.booleans(),
    field=st.text(max_size=5),
    expression=st.text(max_size=5),
    retry_after_ms=st.none() | times,
    causes=st.just(()) | st.just((BOOM,)),
)
records = st.builds(
    FailureRecord, failure=failures, task=st.text(max_size=5), index=st.none() | positions
)
payloads = st.builds(Payload, text=st.text(max_size=9), size=positions) | st.builds(
    Payload, ref=st.text(min_size=1, max_size=9), size=positions
)
count = st.integers(1, 10_000)
texts = st.text(st.characters(codec="utf-8"), max_size=20)

EVENTS: dict[type, dict[str, Any]] = {
    ev.ExecutionAccepted: {"tasks": count, "hidden": positions},
    ev.ExecutionStarted: {"deadline_at": st.none() | times},
    ev.ExecutionPaused: {"by": texts, "reason": texts},
    ev.ExecutionResumed: {"by": texts, "reason": texts},
    ev.ExecutionCancelled: {"by": texts, "reason": texts, "terminated": st.booleans()},
    ev.TasksQueued: {"tasks": many, "deadlines": deadlines},
    ev.TasksRequeued: {
        "tasks": many,
        "items": st.lists(st.tuples(positions, positions)).map(tuple),
    },
    ev.TaskWaiting: {"task": positions, "due_at": times, "deadline_at": st.none() | times},
    ev.TasksSkipped: {"tasks": many, "condition": st.booleans()},
    ev.TaskCompleted: {
        "task": positions,
        "attempt": count,
        "started_at": st.none() | times,
        "signal": texts,
        "undo": st.none() | positions,
    },
    ev.TaskFailed: {
        "task": positions,
        "failure": records,
        "attempt": positions,
        "accepted": st.booleans(),
    },
    ev.TasksCancelled: {"tasks": many, "reason": st.sampled_from(["failFast", "executionTimeout"])},
    ev.MapStarted: {"task": positions, "count": count, "deadline_at": st.none() | times},
    ev.MapItemsQueued: {"task": positions, "start": positions, "count": count},
    ev.MapItemsCompleted: {"task": positions, "items": many},
    ev.MapItemFailed: {"task": positions, "item": positions, "failure": records, "attempt": count},
    ev.MapItemsCancelled: {"task": positions, "items": many},
    ev.FailureNoted: {"failure": records},
    ev.ExecutionCompleted: {"output": st.none() | payloads},
    ev.ExecutionFailed: {"failure": records},
    ev.ExecutionReopened: {"by": texts, "reason": texts, "deadline_at": st.none() | times},
    ev.TasksReopened: {
        "by": texts,
        "reason": texts,
        "tasks": many,
        "items": st.lists(st.tuples(positions, positions)).map(tuple),
        "deadlines": deadlines,
    },
    ev.TasksReset: {"tasks": many, "deadlines": deadlines},
    ev.TasksCopied: {"tasks": many},
    ev.TaskOverridden: {
        "task": positions,
        "item": st.none() | positions,
        "by": texts,
        "reason": texts,
        "undo": st.none() | positions,
        "deadline_at": st.none() | times,
    },
    ev.FailureAccepted: {"task": positions, "by": texts, "reason": texts, "failed": positions},
    ev.SignalReceived: {"id": texts, "name": texts},
    ev.SignalAwaited: {
        "task": positions,
        "name": texts,
        "due_at": st.none() | times,
        "deadline_at": st.none() | times,
    },
    ev.SignalRaised: {"id": texts, "name": texts, "task": positions},
    ev.MapItemSignalled: {"task": positions, "item": positions, "signal": texts},
    ev.CompensationStarted: {
        "ending": st.sampled_from(["FAILED", "CANCELLED"]),
        "failure": st.none() | records,
        "by": texts,
        "reason": texts,
    },
    ev.CompensationReopened: {"by": texts, "reason": texts},
}


def test_every_event_type_is_generated_here() -> None:
    assert set(EVENTS) == set(ev.Event.__args__)


@given(st.one_of(*(st.builds(kind, at=times, **fields) for kind, fields in EVENTS.items())))
def test_events_come_back_through_json(event: ev.Event) -> None:
    stored = orjson.loads(orjson.dumps(event_to_doc(event)))
    assert event_from_doc(stored) == event


@given(st.lists(positions, max_size=60), st.integers(0, 500))
def test_positions_come_back_in_their_order(some: list[int], run: int) -> None:
    wanted = (*some, *range(run))
    assert unpack(orjson.loads(orjson.dumps(pack(wanted)))) == wanted


def test_a_wide_fan_out_is_few_bytes() -> None:
    event = ev.TasksQueued(at=1, tasks=tuple(range(1, 10_000)))
    assert len(orjson.dumps(event_to_doc(event))) < 80
    due = tuple((task, 10**13) for task in event.tasks)
    late = ev.TasksQueued(at=1, tasks=event.tasks, deadlines=due)
    assert len(orjson.dumps(event_to_doc(late))) < 130
    assert event_from_doc(event_to_doc(late)) == late
    assert event_from_doc(event_to_doc(event)) == event


@st.composite
def map_states(draw: Any) -> MapState:
    items = draw(st.lists(st.sampled_from("PQCDX"), min_size=1, max_size=1200).map("".join))
    if draw(st.booleans()):
        items = items[0] * len(items)
    tally = {name: items.count(c) for name, c in zip(NAMES, "QCDX", strict=True)}
    failure = draw(records) if tally["failed"] else None
    accepted = draw(st.integers(0, tally["failed"]))
    return MapState(
        items=items.encode(), count=len(items), accepted=accepted, failure=failure, **tally
    )


NAMES = ("queued", "completed", "failed", "cancelled")
states = st.builds(
    ExecutionState,
    status=st.sampled_from(ExecutionStatus),
    tasks=st.text(alphabet="PQWCSsXDH", max_size=50).map(str.encode),
    maps=st.dictionaries(positions, map_states(), max_size=2),
    taken=st.dictionaries(st.tuples(positions, positions), texts.map(mark_of), max_size=5),
    waits=st.dictionaries(positions, times, max_size=3),
    signals=st.dictionaries(texts, st.lists(texts, min_size=1, max_size=3).map(tuple), max_size=2),
    consumed=st.dictionaries(positions, texts, max_size=2),
    hidden=positions,
    undo=many,
    ending=st.none() | st.sampled_from(ExecutionStatus),
    terminated=st.booleans(),
    deadlines=st.dictionaries(positions, times, max_size=20),
    failure=st.none() | records,
    output=st.none() | payloads,
    accepted_at=times,
    started_at=st.none() | times,
    ended_at=st.none() | times,
    deadline_at=st.none() | times,
    seq=positions,
)


@given(states)
def test_states_come_back_through_json(state: ExecutionState) -> None:
    doc = orjson.loads(orjson.dumps(state_to_doc(state)))
    needed = open_maps(doc)
    chunks = {task: chunks_of(state.maps[task]) for task in needed}
    assert {task: len(found) for task, found in chunks.items()} == needed
    assert state_from_doc(doc, chunks) == state
    # Without the chunks an open map comes back with its counts, and is stored the same again.
    assert state_to_doc(state_from_doc(doc)) == state_to_doc(state)


def test_maps_whose_items_are_all_alike_need_no_chunks() -> None:
    alike = [
        MapState(items=c * 700, count=700, **{n: 700}) for c, n in zip(CODES, NAMES, strict=True)
    ]
    alike.append(MapState(items=b"P" * 700, count=700))
    state = ExecutionState(
        status=ExecutionStatus.RUNNING, tasks=b"WWWWW", maps=dict(enumerate(alike)), accepted_at=1
    )
    assert open_maps(state_to_doc(state)) == {}
    assert state_from_doc(state_to_doc(state)) == state


CODES = (b"Q", b"C", b"D", b"X")


def test_chunks_that_do_not_fit_are_refused() -> None:
    progress = MapState(items=b"C" * 300 + b"P" * 300, count=600, completed=300)
    state = ExecutionState(
        status=ExecutionStatus.RUNNING, tasks=b"W", maps={0: progress}, accepted_at=1
    )
    with pytest.raises(ValueError, match="600"):
        state_from_doc(state_to_doc(state), {0: chunks_of(progress)[:1]})


def test_a_large_state_stays_small() -> None:
    state = ExecutionState(status=ExecutionStatus.RUNNING, tasks=b"P" * 10_000, accepted_at=1)
    assert len(orjson.dumps(state_to_doc(state))) < 10_100
    late = replace(state, deadlines=dict.fromkeys(range(10_000), 10**13))
    assert len(orjson.dumps(state_to_doc(late))) < 10_200


def test_history_is_shown_with_ids_and_iso_times() -> None:
    flow = workflow(task("a"), task("b"), task("m", items=[1]))
    at = 1_806_197_400_250
    assert describe(ev.TasksQueued(at=at, tasks=(0, 1)), flow) == {
        "type": "tasksQueued",
        "at": "2027-03-28T01:30:00.250Z",
        "tasks": ["a", "b"],
    }
    assert describe(ev.TaskWaiting(at=at, task=1, due_at=at + 750), flow) == {
        "type": "taskWaiting",
        "at": "2027-03-28T01:30:00.250Z",
        "task": "b",
        "dueAt": "2027-03-28T01:30:01.000Z",
    }
    late = describe(ev.TasksQueued(at=at, tasks=(0, 1), deadlines=((1, at + 750),)), flow)
    assert late["deadlines"] == {"b": "2027-03-28T01:30:01.000Z"}
    requeued = describe(ev.TasksRequeued(at=at, tasks=(0,), items=((2, 7),)), flow)
    assert (requeued["tasks"], requeued["items"]) == (["a"], [{"task": "m", "item": 7}])
    items = describe(ev.MapItemsCompleted(at=at, task=2, items=tuple(range(20))), flow)
    assert (items["task"], items["items"]) == ("m", list(range(20)))
    failed = describe(
        ev.TaskFailed(at=at, task=0, failure=FailureRecord(failure=BOOM, task="a")), flow
    )
    assert failed["failure"] == {"type": "Boom", "message": "boom", "task": "a"}
    accepted = describe(ev.ExecutionAccepted(at=at, tasks=3), flow)
    assert accepted["tasks"] == 3
