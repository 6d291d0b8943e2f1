"""Recorded histories as files: what `weft code export` writes, and what Durable's HTTP API answers.

Ours is exact: `{"instanceId", "name", "parentInstanceId", "history"}`, the events of the protocol.
Durable's (`GET …/instances/ID?showHistory=true&showHistoryOutput=true&showInput=true`) leaves out
the turns, merges what was scheduled into how it ended, and drops the numbers. They are told again
from the times at which steps were scheduled, and each event is taken for a turn of its own; so the
time within a turn is known to a moment only (`exact` false).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from orchestrator.local.durable import events as ev
from orchestrator.local.durable import store_rows
from orchestrator.local.durable.events import Event
from orchestrator.local.durable.protocol import Identity
from orchestrator.local.durable.store_schema import FILE

LONG_TIMER_MS: Final = 6 * 24 * 3_600_000
"""A longer one is several where histories are kept in Azure Storage."""
LONG_TIMERS: Final[Mapping[str, Any]] = {
    "maximumShortTimerDuration": "6.00:00:00",
    "longRunningTimerIntervalDuration": "3.00:00:00",
}
"""What Durable's host tells the library there."""
_QUERY: Final = "showHistory=true&showHistoryOutput=true&showInput=true"
_NUMBERS: Final = {name: number for number, name in ev.NAMES.items()}
_BEGAN: Final = {
    ev.TASK_COMPLETED: ev.TASK_SCHEDULED,
    ev.TASK_FAILED: ev.TASK_SCHEDULED,
    ev.CHILD_COMPLETED: ev.CHILD_CREATED,
    ev.CHILD_FAILED: ev.CHILD_CREATED,
}
_HEARD: Final = ev.FINISHED | {ev.EVENT_RAISED, ev.EXECUTION_STARTED, ev.GENERIC}


_NEEDED: Final[Mapping[int, Mapping[str, type]]] = {
    ev.EXECUTION_STARTED: {"Name": str},
    ev.TASK_SCHEDULED: {"EventId": int, "Name": str},
    ev.CHILD_CREATED: {"EventId": int, "Name": str},
    ev.TIMER_CREATED: {"EventId": int, "FireAt": str},
    ev.TASK_COMPLETED: {"TaskScheduledId": int},
    ev.TASK_FAILED: {"TaskScheduledId": int},
    ev.CHILD_COMPLETED: {"TaskScheduledId": int},
    ev.CHILD_FAILED: {"TaskScheduledId": int},
    ev.TIMER_FIRED: {"TimerId": int},
    ev.EVENT_RAISED: {"Name": str},
}
"""What a replay reads of events, beside their `Timestamp`."""


class Unusable(Exception):
    """The file holds no history that can be replayed; the text says what to do about it."""


@dataclass(slots=True, kw_only=True)
class RecordedTurn:
    """One turn: what it took in, and the numbers of the steps that it scheduled (None: unknown)."""

    now: int  # epoch ms
    news: list[Event] = field(default_factory=list)
    scheduled: list[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A history that can be told again."""

    identity: Identity
    turns: Sequence[RecordedTurn]
    steps: Mapping[int, Event]  # what was scheduled, by number
    end: Event | None  # ExecutionCompleted or -Terminated
    exact: bool
    settings: Mapping[str, Any]  # of the host that recorded it, for the library


def read(text: str) -> Recording:
    """The recording in a file. Raises `Unusable`."""
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Unusable("a history is a JSON object, as `weft code export` writes it")
    events = body.get("historyEvents", body.get("history"))
    if not isinstance(events, list) or not events:
        raise Unusable(f"it holds no history; ask Durable with ?{_QUERY}")
    if not all(isinstance(event, dict) and "EventType" in event for event in events):
        raise Unusable("every event of a history has an EventType")
    try:
        told = _exact if isinstance(events[0]["EventType"], int) else _shown
        recording = told(body, events)
        _check(recording)
        return recording
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unusable(f"an event of the history is not as expected: {error!r}") from None


def _check(recording: Recording) -> None:
    """Raises `Unusable` for what a replay would stumble over."""
    heard = [event for turn in recording.turns for event in turn.news]
    for event in (*heard, *recording.steps.values()):
        kind = event["EventType"]
        ev.milliseconds(event["Timestamp"])
        for name, type_ in _NEEDED.get(kind, {}).items():
            value = event.get(name)
            if not isinstance(value, type_) or isinstance(value, bool):
                raise Unusable(f"an event {ev.NAMES[kind]} of the history has no {name}")
        if kind == ev.TIMER_CREATED:
            ev.milliseconds(event["FireAt"])
    who = recording.identity
    if not recording.turns or not all(isinstance(one, str) for one in (who.name, who.instance)):
        raise Unusable("the history does not say whose it is")


def exported(db: sqlite3.Connection, instance: str) -> str | None:
    """The text of a file that `read` takes: an instance of `durable.db`, its present generation.
    None: there is no such instance."""
    row = db.execute(
        "SELECT name, execution, parent FROM instances WHERE id = ?", (instance,)
    ).fetchone()
    if row is None:
        return None
    name, execution, parent = row
    body = {
        "instanceId": instance,
        "name": name,
        "executionId": execution,
        "parentInstanceId": parent,
        "history": store_rows.history(db, instance),
    }
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def exported_from(data: Path, instance: str) -> str | None:
    """`exported` from the data folder of `weft up`, which may be running. Raises `OSError`."""
    file = data / FILE
    if not file.is_file():
        raise FileNotFoundError(f"{FILE} is not there")
    try:
        db = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        try:
            db.execute("BEGIN")  # one state of the file for all reads
            return exported(db, instance)
        finally:
            db.close()
    except sqlite3.Error as error:
        raise OSError(str(error)) from error


# --- exact ----------------------------------------------------------------------------------------


def _exact(body: Mapping[str, Any], events: Sequence[Event]) -> Recording:
    turns: list[RecordedTurn] = []
    steps: dict[int, Event] = {}
    end: Event | None = None
    for event in events:
        kind = event["EventType"]
        if kind == ev.ORCHESTRATOR_STARTED:
            turns.append(RecordedTurn(now=ev.milliseconds(event["Timestamp"]), scheduled=[]))
            continue
        if kind in (ev.EXECUTION_COMPLETED, ev.EXECUTION_TERMINATED):
            end = event
        if not turns:
            continue
        if kind in _HEARD:
            turns[-1].news.append(event)
        elif kind in ev.SCHEDULED:
            steps[event["EventId"]] = event
            turns[-1].scheduled = [*(turns[-1].scheduled or ()), event["EventId"]]
    started = _started(events)
    return Recording(
        identity=Identity(
            name=started["Name"],
            instance=body["instanceId"],
            execution=body.get("executionId") or body["instanceId"],
            payload=started["Input"],
            parent=body.get("parentInstanceId"),
        ),
        turns=turns,
        steps=steps,
        end=end,
        exact=True,
        settings={},
    )


def _started(events: Sequence[Event]) -> Event:
    for event in events:
        if event["EventType"] in (ev.EXECUTION_STARTED, ev.NAMES[ev.EXECUTION_STARTED]):
            return event
    raise Unusable("the history does not begin with ExecutionStarted")


# --- as Durable shows it --------------------------------------------------------------------------


def _shown(body: Mapping[str, Any], events: Sequence[Event]) -> Recording:
    known = [{**e, "EventType": _NUMBERS.get(e["EventType"], -1)} for e in events]
    numbers = _numbered(known)
    steps = {number: _step(known[place], number) for place, number in numbers.items()}
    timers = [e for e in steps.values() if e["EventType"] == ev.TIMER_CREATED]
    payload = _payload(body, _started(events))
    turns: list[RecordedTurn] = []
    end: Event | None = None
    for place, event in enumerate(known):
        kind, now = event["EventType"], ev.milliseconds(event["Timestamp"])
        if kind == ev.EXECUTION_STARTED:
            turns.append(RecordedTurn(now=now, news=[ev.started(now, _name(event), payload)]))
        elif kind in _BEGAN:
            turns.append(RecordedTurn(now=now, news=[_ended(event, kind, now, numbers[place])]))
        elif kind == ev.TIMER_FIRED:
            timer = next((one for one in timers if one["FireAt"] == event["FireAt"]), None)
            if timer is None:
                raise Unusable(f"a timer fires at {event['FireAt']} that was never created")
            timers.remove(timer)
            fired = ev.event(kind, now, TimerId=timer["EventId"], FireAt=_time(event["FireAt"]))
            turns.append(RecordedTurn(now=now, news=[fired]))
        elif kind == ev.EVENT_RAISED:
            if "Input" not in event:
                raise Unusable(f"payloads of signals are missing; ask Durable with ?{_QUERY}")
            news = [ev.raised(now, event["Name"], _text(event["Input"]))]
            turns.append(RecordedTurn(now=now, news=news))
        elif kind in (ev.EXECUTION_COMPLETED, ev.EXECUTION_TERMINATED):
            end = {**event, "Result": json.dumps(event.get("Result"))}
    whole = any(
        ev.milliseconds(e["FireAt"]) - ev.milliseconds(e["Timestamp"]) > LONG_TIMER_MS
        for e in steps.values()
        if e["EventType"] == ev.TIMER_CREATED
    )
    instance = body.get("instanceId") or "unknown"
    return Recording(
        identity=Identity(
            name=_name(_started(events)), instance=instance, execution=instance, payload=payload
        ),
        turns=turns,
        steps=steps,
        end=end,
        exact=False,
        settings={} if whole else LONG_TIMERS,
    )


def _numbered(events: Sequence[Event]) -> dict[int, int]:
    """Places of events that tell of a step: the step's number, by when it was scheduled."""
    began: list[tuple[tuple[str, str], int]] = []
    for place, event in enumerate(events):
        kind = event["EventType"]
        if kind in ev.SCHEDULED:
            began.append((_order(event["Timestamp"]), place))
        elif kind in _BEGAN:
            began.append((_order(event["ScheduledTime"]), place))
    return {place: number for number, (_, place) in enumerate(sorted(began))}


def _order(time: str) -> tuple[str, str]:
    """All digits: two steps of one turn are less than a microsecond apart."""
    head, _, digits = time.rstrip("Zz").partition(".")
    return head, digits.ljust(9, "0")


def _step(event: Event, number: int) -> Event:
    told: int = event["EventType"]
    kind = _BEGAN.get(told, told)
    now = ev.milliseconds(event.get("ScheduledTime") or event["Timestamp"])
    if kind == ev.TIMER_CREATED:
        return ev.event(kind, now, number, FireAt=event["FireAt"])
    step = ev.event(kind, now, number, Name=event.get("FunctionName") or event.get("Name"))
    for key in ("Input", "InstanceId"):
        if event.get(key) is not None:
            step[key] = event[key]
    return step


def _ended(event: Event, kind: int, now: int, number: int) -> Event:
    if kind in ev.FAILED:
        reason, details = event.get("Reason") or "", event.get("Details") or ""
        return ev.failed(kind, now, number, reason, details)
    if "Result" not in event:
        raise Unusable(f"results are missing; ask Durable with ?{_QUERY}")
    return ev.completed(kind, now, number, json.dumps(event["Result"]))


def _payload(body: Mapping[str, Any], started: Event) -> str | None:
    if started.get("Input") is not None:
        return _text(started["Input"])
    if body.get("input") is None:
        raise Unusable(f"the input is missing; ask Durable with ?{_QUERY}")
    return json.dumps(body["input"])


def _name(started: Event) -> str:
    return started.get("FunctionName") or started["Name"]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _time(text: str) -> str:
    return ev.timestamp(ev.milliseconds(text))
