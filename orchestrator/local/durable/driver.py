"""Runs an orchestrator function turn by turn, without any I/O: history in, what it decides out.

The library is asked with the whole history and answers with *all* actions since the start. What is
new are those beyond what the history has scheduled; they are numbered as the library numbers its
tasks (activities, sub-orchestrations and timers, in the order of scheduling). Without that exact
order a completion would reach another task than the one that it belongs to.

- **Retries** are the extension's part of the protocol: after a failure a timer, after the timer the
  next attempt, each with the next number *at that moment*, also one last timer after the last
  attempt. So whatever came before a failure is run first.
- **External events** go into the history when the orchestrator waits for them. The library (1.7.0)
  keeps only the last of several early events of one name; handed over one per wait, none is lost.

`Machine.turn` is a generator: it yields the context (JSON) that the orchestrator function takes,
and is sent its answer, or thrown what the function raised. `protocol.drive` does so with a plain
function.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.local.durable import events as ev
from orchestrator.local.durable.events import Event
from orchestrator.local.durable.protocol import (
    ACTIVITY_RETRY,
    CHILD_RETRY,
    CONTINUE,
    KINDS,
    SCHEMA,
    UNSUPPORTED,
    WAIT,
    Asking,
    Identity,
    Outcome,
    Turn,
    answer_of_failure,
    divergence,
    flat,
)


class Machine:
    """One execution, its history so far. May take several turns."""

    def __init__(
        self,
        identity: Identity,
        history: Sequence[Event],
        *,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`settings`: what a host tells the library beside history and input."""
        self.identity = identity
        self._settings = dict(settings or {})
        self.history: list[Event] = []
        self.primaries: list[Event] = []  # first attempts, in the order of the library's actions
        self.open: dict[int, Event] = {}  # scheduled, not finished
        self.outcome: Outcome | None = None
        self.actions: list[dict[str, Any]] = []
        self.child_ids: dict[int, str] = {}  # number of a primary: the instance that it had
        self._firsts: dict[int, Event] = {}  # the primaries by `EventId`
        self._extra = 0  # timers and attempts of retries
        self._now = 0
        self._attempts: Counter[int] = Counter()  # by the first one's `EventId`
        self._delivered: Counter[str] = Counter()
        self._waits: list[str] | None = None  # names; None: the orchestrator was not asked yet
        self._turn = Turn()
        self._seen = 0  # events of the history that the orchestrator has been told
        self._dirty = False
        for event in history:
            self._take(event)
        self._seen = len(self.history)

    def turn(self, news: Sequence[Event], held: Sequence[Event], now: int) -> Asking[Turn]:
        """Take in `news` (in the order they came) at epoch ms `now`. `held`: external events of
        earlier turns that nobody waited for."""
        last = self.history[-1]["Timestamp"] if self.history else ""
        self._now = max(now, ev.milliseconds(last)) if last else now
        self._turn = Turn(held=list(held))
        self._add(ev.event(ev.ORCHESTRATOR_STARTED, self._now))
        for event in news:
            yield from self._hear(event)
        yield from self._ask()
        self._turn.events += self._turn.scheduled
        self._add(ev.event(ev.ORCHESTRATOR_COMPLETED, self._now))
        self._turn.outcome = self.outcome
        return self._turn

    def waiting(self) -> list[str]:
        """Names of external events that it waits for and has not been handed."""
        left, found = self._delivered.copy(), list[str]()
        for name in self._waits or ():
            if left[name.casefold()] > 0:
                left[name.casefold()] -= 1
            else:
                found.append(name)
        return found

    def _hear(self, event: Event) -> Asking[None]:
        kind = event["EventType"]
        if kind == ev.EVENT_RAISED:
            if not self.outcome and not self._waits_for(event):
                self._dirty = self._dirty or self._waits is None
                yield from self._ask()
            self._turn.held.append(event)
            self._hand_over()
            return
        if kind in ev.FINISHED:
            begun = self.open.get(ev.finished_id(event))
            if begun is None:
                return  # heard before, or of work that this execution did not schedule
            root = self._root(begun)
            if root is not None and (kind in ev.FAILED or kind == ev.TIMER_FIRED):
                yield from self._ask()  # what came before is numbered before
                self._add(event)
                # The orchestrator has nothing to say before the last attempt's timer.
                self._dirty = self._dirty or not (self.outcome or self._try_again(kind, root))
                return
        self._add(event)
        self._dirty = True

    def _ask(self) -> Asking[None]:
        while self._dirty and self.outcome is None:
            self._dirty = False
            try:
                answer = yield self._context()
            except Exception as error:
                answer = answer_of_failure(error)
            self._seen = len(self.history)
            self._decide(json.loads(answer))
            self._hand_over()

    def _context(self) -> str:
        told = self.history[: self._seen]
        payload = self.identity.payload
        return json.dumps(
            {
                "history": [{**event, "IsPlayed": True} for event in told]
                + self.history[self._seen :],
                "input": None if payload is None else json.loads(payload),
                "instanceId": self.identity.instance,
                "isReplaying": bool(told),
                "parentInstanceId": self.identity.parent,
                "upperSchemaVersion": SCHEMA,
                **self._settings,
            }
        )

    def _decide(self, state: dict[str, Any]) -> None:
        if state["actions"] is None:
            return self._fail(state["error"])
        self.actions = actions = list(flat(a for row in state["actions"] for a in row))
        for action in actions:
            if (what := UNSUPPORTED.get(action["actionType"])) is not None:
                return self._fail(f"the embedded mode does not run {what}")
        numbered = [action for action in actions if action["actionType"] in KINDS]
        if wrong := divergence(self.primaries, numbered):
            return self._fail(f"Non-Deterministic workflow detected: {wrong}")
        if state.get("customStatus") is not None:
            self._turn.custom_status = json.dumps(state["customStatus"])
        for action in numbered[len(self.primaries) :]:
            self._schedule(action)
        self._waits = [a["externalEventName"] for a in actions if a["actionType"] == WAIT]
        if "error" in state:
            self._fail(state["error"])
        elif state["isDone"]:
            follow = next((a for a in actions if a["actionType"] == CONTINUE), None)
            self.outcome = (
                Outcome(status="Completed", value=json.dumps(state.get("output")))
                if follow is None
                else Outcome(
                    status="ContinuedAsNew",
                    value=json.dumps(follow.get("input")),
                )
            )
        return None

    def _fail(self, message: str) -> None:
        text = f"Orchestrator function '{self.identity.name}' failed: {message}"
        self.outcome = Outcome(status="Failed", value=json.dumps(text))

    def _schedule(self, action: dict[str, Any]) -> None:
        kind, number = KINDS[action["actionType"]], self._next()
        if kind == ev.TIMER_CREATED:
            return self._plan(ev.event(kind, self._now, number, FireAt=action["fireAt"]))
        event = ev.event(
            kind, self._now, number, Name=action["functionName"], Input=action.get("input")
        )
        if kind == ev.CHILD_CREATED:
            event["InstanceId"] = (
                self.child_ids.get(len(self.primaries))
                or action.get("instanceId")
                or self._child_id(number)
            )
            event["Own"] = not action.get("instanceId")
        if action["actionType"] in (ACTIVITY_RETRY, CHILD_RETRY):
            event["Retry"] = action["retryOptions"]
        return self._plan(event)

    def _try_again(self, kind: int, root: Event) -> bool:
        """After a failure the timer, after the timer the next attempt; false if there is none."""
        number, options = root["EventId"], root["Retry"]
        if kind in ev.FAILED:
            due = self._now + options["firstRetryIntervalInMilliseconds"]
            timer = ev.event(
                ev.TIMER_CREATED, self._now, self._next(), FireAt=ev.timestamp(due), RetryOf=number
            )
            self._plan(timer)
            return True
        if self._attempts[number] >= options["maxNumberOfAttempts"]:
            return False
        again = {
            **root,
            "EventId": self._next(),
            "Timestamp": ev.timestamp(self._now),
            "RetryOf": number,
        }
        del again["Retry"]
        if again.get("Own"):
            again["InstanceId"] = self._child_id(again["EventId"])
        self._plan(again)
        return True

    def _root(self, begun: Event) -> Event | None:
        """The first attempt of what was `begun` with a retry; None if it was without."""
        if "Retry" in begun:
            return begun
        return self._firsts.get(begun.get("RetryOf", -1))

    def _next(self) -> int:
        return len(self.primaries) + self._extra

    def _child_id(self, number: int) -> str:
        return f"{self.identity.execution}:{number:08x}"

    def _waits_for(self, event: Event) -> str | None:
        """The name under which the orchestrator waits for it: names differ in case as well, which
        the extension does not mind and the library does."""
        name = event["Name"].casefold()
        waits = [wait for wait in self._waits or () if wait.casefold() == name]
        return waits[self._delivered[name]] if len(waits) > self._delivered[name] else None

    def _hand_over(self) -> None:
        if self.outcome is not None or self._waits is None:
            return
        for event in list(self._turn.held):
            if name := self._waits_for(event):
                # By identity: two events may say the same.
                self._turn.held = [one for one in self._turn.held if one is not event]
                self._add({**event, "Name": name})
                self._dirty = True

    def _add(self, event: Event) -> None:
        self._turn.events.append(event)
        self._take(event)

    def _plan(self, event: Event) -> None:
        self._turn.scheduled.append(event)
        self._take(event)

    def _take(self, event: Event) -> None:
        self.history.append(event)
        kind = event["EventType"]
        if kind in ev.SCHEDULED:
            number, first = event["EventId"], event.get("RetryOf")
            self.open[number] = event
            if first is None:
                self.primaries.append(event)
                self._firsts[number] = event
                self._attempts[number] = 1
            else:
                self._extra += 1
                self._attempts[first] += kind != ev.TIMER_CREATED
        elif kind in ev.FINISHED:
            self.open.pop(ev.finished_id(event), None)
        elif kind == ev.EVENT_RAISED:
            self._delivered[event["Name"].casefold()] += 1
