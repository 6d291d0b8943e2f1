"""One instance of an orchestrator function, driven by hand through Durable's own protocol.

The real library replays the whole history at every turn; what it asks for is compared with what it
had asked for before, so a workflow that decides otherwise in a replay is found.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.durable_functions import Orchestrator

from activities.code.driver import functions
from activities.code.registry import CodeRegistry
from orchestrator.domain.failure import Failure
from orchestrator.domain.orchestration import Envelope, SignalEnvelope
from orchestrator.domain.orchestration_result import encode_output, failure_from, failure_text
from orchestrator.functions.durable_replay import DurableReplay

ACTIVITY, SUB, CONTINUE, TIMER, EVENT = 0, 2, 4, 5, 6
START = datetime(2026, 11, 30, 12, tzinfo=UTC)
MARK = "$OutOfProcData$:"


def envelope(workflow: str, value: Any = None, *, version: int = 1, **given: Any) -> str:
    """The text that Weft starts an instance with."""
    fields = {"tenant": "acme", "execution": "e1", "task": "main", "input": json.dumps(value)}
    return Envelope(workflow=workflow, version=version, **(fields | given)).encode()


def signal(id: str, payload: Any = None, **given: Any) -> str:
    """A signal as Weft hands it over."""
    fields: dict[str, Any] = {"payload": json.dumps(payload)} | given
    return SignalEnvelope(id=id, at=0, **fields).encode()


class Hand:
    """`name`: the Azure function. Times are those of the turns, a second apart."""

    def __init__(
        self, registry: CodeRegistry, name: str, text: str, *, instance: str = "e1"
    ) -> None:
        drive = {one.name: one.drive for one in functions(registry)}[name]

        def orchestrator(context: Any) -> Generator[Any, Any, Any]:
            return drive(DurableReplay(context))

        self._handle = Orchestrator.create(orchestrator)
        self.name, self.text, self.instance = name, text, instance
        self.now = START
        self.history: list[dict[str, Any]] = []
        self._new: list[dict[str, Any]] = [
            {"EventType": 0, "Name": name, "Input": json.dumps(text), "Version": None}
        ]
        self.actions: list[dict[str, Any]] = []
        self.asked: dict[int, dict[str, Any]] = {}
        self.state: dict[str, Any] = {}
        self.turn()

    # --- what happens -----------------------------------------------------------------------------

    def gives(self, number: int, value: Any = None) -> Hand:
        """Activity or child `number` gives `value`, as Weft's functions do."""
        return self.answers(number, encode_output(json.dumps(value)))

    def answers(self, number: int, text: str) -> Hand:
        """It gives this text."""
        kind = 5 if self.asked[number]["actionType"] == ACTIVITY else 8
        return self._happened(EventType=kind, TaskScheduledId=number, Result=json.dumps(text))

    def fails(self, number: int, type: str, message: str = "no", **given: Any) -> Hand:
        """It fails, with a failure of Weft's."""
        return self.breaks(number, failure_text(Failure(type=type, message=message, **given)))

    def breaks(self, number: int, text: str) -> Hand:
        """It fails, with Durable's words around `text`."""
        kind = 6 if self.asked[number]["actionType"] == ACTIVITY else 9
        reason = f"Function '{self.asked[number]['functionName']}' failed: Exception: {text}\nStack"
        return self._happened(EventType=kind, TaskScheduledId=number, Reason=reason, Details=text)

    def fires(self, number: int) -> Hand:
        """Timer `number` is due."""
        due = datetime.fromisoformat(self.asked[number]["fireAt"])
        self.now = max(self.now, due)
        return self._happened(EventType=11, TimerId=number, FireAt=_at(due))

    def raises(self, name: str, text: str) -> Hand:
        """An external event comes."""
        return self._happened(EventType=15, Name=name, Input=json.dumps(text))

    def _happened(self, **event: Any) -> Hand:
        self._new.append(event)
        return self

    # --- the function's turn ----------------------------------------------------------------------

    def turn(self) -> Hand:
        """Hand it what has happened since."""
        self.now += timedelta(seconds=1)
        self._add(EventType=12)
        for event in self._new:
            self._add(**event)
        self._new = []
        self.state = self._run()
        found = self.state["actions"][0]
        before = _flat(self.actions)
        assert _asked(_flat(found)[: len(before)]) == _asked(before), (
            "decided otherwise in a replay"
        )
        for action in _flat(found[len(self.actions) :]):
            self._ask(action)
        self.actions = found
        self._add(EventType=13)
        return self

    def _run(self) -> dict[str, Any]:
        body = {
            "history": self.history,
            "input": self.text,
            "instanceId": self.instance,
            "isReplaying": len(self.history) > 2,
            "parentInstanceId": None,
            "upperSchemaVersion": 2,
            "maximumShortTimerDuration": "6.00:00:00",
            "longRunningTimerIntervalDuration": "3.00:00:00",
        }
        try:
            return json.loads(self._handle(json.dumps(body)))  # type: ignore[arg-type]
        except Exception as error:
            before, mark, after = str(error).partition(MARK)
            assert mark, before
            return json.loads(after)

    def _ask(self, action: dict[str, Any]) -> None:
        kind = action["actionType"]
        if kind in (EVENT, CONTINUE):
            return
        number = len(self.asked)
        self.asked[number] = action
        event = {ACTIVITY: 4, SUB: 7, TIMER: 10}[kind]
        self._add(EventType=event, EventId=number, Name=action.get("functionName"))

    def _add(self, **event: Any) -> None:
        self.history.append({"EventId": -1, "IsPlayed": False, "Timestamp": _at(self.now), **event})

    # --- what it asks for -------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether it has returned or failed."""
        return self.state["isDone"] or "error" in self.state

    @property
    def output(self) -> Any:
        """The value of what it returned."""
        return json.loads(self.state["output"])["output"]

    @property
    def failure(self) -> Failure:
        """What it failed with."""
        found = failure_from(self.state["error"])
        assert found is not None, self.state["error"]
        return found

    def sent(self, number: int) -> Any:
        """The input of an activity or child; that of a user's activity as a value."""
        value = self.asked[number]["input"]
        while isinstance(value, str):
            value = json.loads(value)
        call = value.get("call", value)
        if "activity" in call:
            call["input"] = json.loads(call["input"])
        return value

    def names(self) -> list[str]:
        """The functions it has asked for; `timer` for a timer."""
        return [action.get("functionName", "timer") for action in self.asked.values()]

    def end(self) -> Hand:
        """Answer its last word to Weft."""
        number = max(self.asked)
        assert self.asked[number]["functionName"] == "weft_ended", self.names()
        return self.answers(number, "null").turn()


def _flat(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    flat: list[dict[str, Any]] = []
    for action in actions:
        inner = action.get("compoundActions")
        flat.extend([action] if inner is None else _flat(inner))
    return flat


def _asked(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """But for whether a timer was cancelled meanwhile."""
    return [{**action, "isCanceled": None} for action in actions]


def _at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
