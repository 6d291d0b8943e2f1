"""Whether code still decides as a recorded history says: told again turn by turn, step by step.

Running executions are histories that go on. One whose code decides otherwise in a replay fails, or
worse, takes one step's result for another's; here that is found before a deployment.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from azure.durable_functions.models.history import HistoryEvent

from orchestrator.domain.orchestration_result import failure_from
from orchestrator.local.durable import events as ev
from orchestrator.local.durable import steps
from orchestrator.local.durable.driver import Machine
from orchestrator.local.durable.events import Event
from orchestrator.local.durable.protocol import KINDS, Outcome, Turn, drive
from orchestrator.local.durable.recordings import RecordedTurn, Recording

LOGGER: Final = "weft.code"
"""Above those of code workflows (`activities/code/context.py`)."""
_DUPLICATE: Final = "Potential duplicate"
_VERSION: Final = "register the changed function as the next version, and leave this one as it was"
_HINTS: Final = {
    "other": f"a step was replaced, or steps changed places: {_VERSION}",
    "extra": f"the code takes a step that was not taken then: {_VERSION}",
    "missing": f"the code no longer takes a step that was taken then: {_VERSION}",
    "input": "the same step with another input; what has ended keeps its result, what is begun "
    f"anew gets the new input. If that is not meant, {_VERSION}",
    "signal": f"a signal that was taken then would not be taken now: {_VERSION}",
    "end": "all steps are the same, only the end is not; executions that have ended keep theirs",
    "early": f"the code ends where it went on then: {_VERSION}",
    "random": "it must decide the same each time: no clock, no random numbers, no sets in a loop; "
    "`weft code lint` names such places",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first place where code and history part. `step`: its number; None: between steps."""

    step: int | None
    at: str  # when it was recorded, ISO 8601
    recorded: str
    current: str
    hint: str


def check(recording: Recording, function: Callable[[str], str]) -> Divergence | None:
    """Tell `recording` to an orchestrator function (context in, answer out; JSON); None if it
    decides the same, as far as the record goes."""
    with warnings.catch_warnings(record=True) as caught, times_read_once(), _silent():
        warnings.simplefilter("always")
        return _Check(recording, function, caught).run()


@contextlib.contextmanager
def times_read_once() -> Iterator[None]:
    """The library reads the time of every event at every turn, and spends most of a replay on it.
    Within, it remembers what it has read."""
    # Not by attributes: the package has a class of the module's name.
    module: Any = importlib.import_module(HistoryEvent.__module__)
    read = module.dt_parse
    module.dt_parse = functools.cache(read)
    try:
        yield
    finally:
        module.dt_parse = read


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """What a workflow logs was said when the history was recorded."""
    log = logging.getLogger(LOGGER)
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


class _Check:
    def __init__(
        self, recording: Recording, function: Callable[[str], str], caught: list[Any]
    ) -> None:
        self._recording = recording
        self._function = function
        self._caught = caught
        self._machine = Machine(recording.identity, [], settings=recording.settings)
        self._seen: dict[int, Event] = {}
        self._now = 0

    def run(self) -> Divergence | None:
        held: list[Event] = []
        for recorded in self._recording.turns:
            self._now = recorded.now
            if found := self._unknown(recorded):
                return found
            turn = drive(self._machine.turn(recorded.news, held, recorded.now), self._function)
            held = turn.held
            if found := self._after(recorded, turn):
                return found
        missing = [n for n in sorted(self._recording.steps) if n not in self._seen]
        return self._missing(missing[0]) if missing else self._end()

    def _unknown(self, recorded: RecordedTurn) -> Divergence | None:
        """A step has ended that the code has not begun."""
        for event in recorded.news:
            if event["EventType"] in ev.FINISHED:
                number = ev.finished_id(event)
                if number not in self._seen and number in self._recording.steps:
                    return self._missing(number)
        return None

    def _after(self, recorded: RecordedTurn, turn: Turn) -> Divergence | None:
        exact = self._recording.exact
        for event in sorted(turn.scheduled, key=lambda one: one["EventId"]):
            number = event["EventId"]
            was = self._recording.steps.get(number)
            if was is None:
                now = steps.told(steps.step_of(event))
                return self._found(number, "no further step", now, "extra")
            if (two := steps.difference(was, event, exact=exact)) is not None:
                same = (was["EventType"], was.get("Name")) == (
                    event["EventType"],
                    event.get("Name"),
                )
                input = same and two[0].partition(":")[0] == two[1].partition(":")[0]
                return self._found(number, *two, "input" if input else "other")
            if recorded.scheduled is not None and number not in recorded.scheduled:
                said = steps.told(steps.step_of(was))
                return self._found(number, f"{said}, later", f"{said}, at once", "other")
            self._seen[number] = event
        if (found := self._random(turn.outcome)) is not None:
            return found
        if exact:
            waiting = {id(event) for event in turn.held}
            for event in recorded.news:
                if event["EventType"] == ev.EVENT_RAISED and id(event) in waiting:
                    said = f"took the signal {event['Name']}"
                    return self._found(None, said, self._doing(), "signal")
        for number in recorded.scheduled or ():
            if number not in self._seen:
                return self._missing(number)
        return None

    def _missing(self, number: int) -> Divergence:
        said = steps.told(steps.step_of(self._recording.steps[number]))
        return self._found(number, said, self._doing(), "missing")

    def _end(self) -> Divergence | None:
        outcome, end = self._machine.outcome, self._recording.end
        if end is None:
            # Of a generation that has gone on as new, the record may have been taken before.
            return (
                None
                if outcome is None or outcome.status == "ContinuedAsNew"
                else self._found(None, "was still running", _ended(outcome), "early")
            )
        status = end.get("OrchestrationStatus")
        if end["EventType"] == ev.EXECUTION_TERMINATED or status == "Terminated":
            return None
        was = Outcome(status=str(status), value=end.get("Result") or "null")
        if outcome is None or outcome.status != was.status:
            return self._found(None, _ended(was), self._doing(), "end")
        if was.status == "Failed":
            types = [getattr(failure_from(one.value), "type", None) for one in (was, outcome)]
            if types[0] != types[1]:
                return self._found(None, _ended(was), _ended(outcome), "end")
            return None
        exact = self._recording.exact
        two = steps.apart(was.value, outcome.value, exact=exact, path="")
        if two is None:
            return None
        path, old, new = two
        return self._found(None, f"ended: {path} is {old}", f"ends: {path} is {new}", "end")

    def _doing(self) -> str:
        """What the code does instead of a step."""
        if self._machine.outcome is not None:
            return _ended(self._machine.outcome)
        waits = [f"the signal {name}" for name in self._machine.waiting()]
        waits += [steps.told(steps.step_of(one)) for one in self._machine.open.values()]
        return f"waits for {' or '.join(waits)}" if waits else "waits for nothing"

    def _random(self, outcome: Outcome | None) -> Divergence | None:
        """The code has decided otherwise than a moment before, about the same history."""
        numbered = [one for one in self._machine.actions if one["actionType"] in KINDS]
        for was, action in zip(self._machine.primaries, numbered, strict=False):
            now = ev.event(KINDS[action["actionType"]], 0, was["EventId"], **_fields(action))
            if (two := steps.difference(was, now, exact=True)) is not None:
                return self._found(was["EventId"], f"{two[0]}, at first", two[1], "random")
        if outcome is not None and "Non-Deterministic workflow detected" in outcome.value:
            return self._found(None, "one decision", _message(outcome), "random")
        if any(_DUPLICATE in str(one.message) for one in self._caught):
            said = "takes a result that nobody waits for"
            return self._found(None, "one decision", said, "random")
        return None

    def _found(self, step: int | None, recorded: str, current: str, hint: str) -> Divergence:
        was = self._recording.steps.get(step) if step is not None else None
        at = was["Timestamp"] if was is not None else ev.timestamp(self._now)
        return Divergence(step=step, at=at, recorded=recorded, current=current, hint=_HINTS[hint])


def _fields(action: dict[str, Any]) -> dict[str, Any]:
    """Of an action, as an event of the history has them."""
    if "fireAt" in action:
        return {"FireAt": action["fireAt"]}
    return {
        "Name": action["functionName"],
        "Input": action.get("input"),
        "InstanceId": action.get("instanceId"),
    }


def _ended(outcome: Outcome) -> str:
    if outcome.status == "Failed":
        return f"fails: {_message(outcome)}"
    if outcome.status == "ContinuedAsNew":
        return "goes on as new"
    value = steps.unnested(outcome.value)
    given = value.get("output", value) if isinstance(value, dict) else value
    return f"returns {steps.shown(given)}"


def _message(outcome: Outcome | None) -> str:
    """Why it failed, in one line."""
    if outcome is None:
        return ""
    failure = failure_from(outcome.value)
    if failure is not None:
        return f"{failure.type}: {failure.message}"[: steps.MAX_SHOWN]
    return str(json.loads(outcome.value)).strip().partition("\n")[0][: steps.MAX_SHOWN]
