"""Deliberate faults in schedules, breakers, event triggers and children; see `mutants`."""

from __future__ import annotations

from orchestrator.domain import breakers, slots
from orchestrator.engine import (
    children,
    event_letters,
    events,
    gate,
    leadership,
    places,
    schedule_fire,
    waiting,
)
from tests.simulation.mutants import Mutant

SCHEDULES, OUTAGE, EVENTS = "schedules", "outage", "events"
CROWDS, SHARING = "crowds", "sharing"

MUTANTS = (
    Mutant(
        "every process takes all slots",
        slots,
        "hold",
        "left = limit - sum(one.count for one in others.values())",
        "left = limit",
        feature=SHARING,
    ),
    Mutant(
        "slot not given back",
        gate,
        "Passage.__aexit__",
        "if self._slot:",
        "if False:",
        feature=SHARING,
    ),
    Mutant(
        "two leaders with one token",
        leadership,
        "Leadership._contend",
        'token = max(int(found.body["token"]), self._floor) + 1',
        'token = max(int(found.body["token"]), self._floor, 1)',
        feature=SCHEDULES,
    ),
    Mutant(
        "id of a tick's execution not derived",
        schedule_fire,
        "_Run._start",
        "id = tick_id(self.tenant, schedule.name, tick)",
        "id = self.engine.ids.new()",
        feature=SCHEDULES,
    ),
    Mutant(
        "tick started beside the one before",
        schedule_fire,
        "_Run.waiting",
        'elif overlap == "queue" and running:',
        "elif False:",
        feature=SCHEDULES,
    ),
    Mutant(
        "ticks that wait forgotten",
        schedule_fire,
        "accept",
        'body["waiting"] = waiting[:MAX_CATCH_UP]',
        'body["waiting"] = waiting[:1]',
        feature=SCHEDULES,
    ),
    Mutant(
        "two probes at once",
        breakers,
        "admit",
        "return Gate.WAIT if breaker.probe and breaker.probe.until > now else Gate.PROBE",
        "return Gate.PROBE",
        feature=OUTAGE,
    ),
    Mutant(
        "tasks run although the breaker is open",
        breakers,
        "admit",
        "return Gate.PROBE if until is not None and until <= now else Gate.WAIT",
        "return Gate.RUN",
        feature=OUTAGE,
    ),
    Mutant(
        "probe before the breaker's time is over",
        breakers,
        "due",
        "min(breaker.until, seen_at + breaker.span_ms)",
        "breaker.until - breaker.span_ms // 2",
        feature=OUTAGE,
    ),
    Mutant(
        "execution of an event not derived from it",
        events,
        "fire",
        "execution = execution_id(tenant, trigger.name, event)",
        "execution = engine.ids.new()",
        feature=EVENTS,
    ),
    Mutant(
        "another event of the same id passes for the first",
        events,
        "_exists",
        'if doc.body.get("event", {}).get("content") != event.content:',
        "if False:",
        feature=EVENTS,
    ),
    Mutant(
        "dead letter of an event kept again",
        event_letters,
        "keep",
        "id = _id(key)",
        "id = _id(engine.ids.new())",
        feature=EVENTS,
    ),
    Mutant(
        "child that its parent does not know",
        children,
        "_submit",
        'execution=claim.doc["child"]["execution"]',
        "execution=engine.ids.new()",
    ),
    Mutant(
        "end of the parent not passed on",
        waiting,
        "_cancel",
        "    try:\n",
        "    return\n    try:\n",
    ),
    Mutant(
        "concurrency group stored without if_match",
        places,
        "_change",
        "if_match=found.etag",
        "if_match=None",
        feature=CROWDS,
    ),
    Mutant(
        "signal that begins an execution without a place",
        places,
        "admitted",
        "isinstance(given, Start | SignalArrived) for given in inputs",
        "isinstance(given, Start) for given in inputs",
        feature=CROWDS,
    ),
)
