"""Histories told again: what the code as it is now does with a recorded one, and how a failed one
is taken up again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.local.durable import events as ev
from orchestrator.local.durable.driver import Machine
from orchestrator.local.durable.events import Event
from orchestrator.local.durable.protocol import Asking, Identity, Outcome


@dataclass(slots=True, kw_only=True)
class Rehearsal:
    """What the code as it is now does with a recorded history."""

    scheduled: list[Event] = field(default_factory=list)  # numbered as recorded ones are
    outcome: Outcome | None = None
    custom_status: str | None = None


def rehearse(identity: Identity, history: Sequence[Event]) -> Asking[Rehearsal]:
    """Replay the completions and events of `history` (a prefix of a whole one will do; ours, or one
    recorded on Azure) from the start, turn by turn as recorded. What comes out is to be held
    against what is recorded by `first_difference`; nothing is taken from that."""
    machine, result = Machine(identity, []), Rehearsal()
    held: list[Event] = []
    for now, news in episodes(history):
        turn = yield from machine.turn(news, held, now)
        held = turn.held
        result.scheduled += turn.scheduled
        result.custom_status = turn.custom_status or result.custom_status
        if turn.outcome is not None:
            result.outcome = turn.outcome
            break
    return result


def first_difference(history: Sequence[Event], told: Rehearsal) -> str | None:
    """Where the code as it is now (`told`, by `rehearse`) leaves the recorded `history`: the first
    task, by number, that is another one, missing or new, else another end. None if nowhere."""
    was = {e["EventId"]: _task(e) for e in history if e["EventType"] in ev.SCHEDULED}
    now = {e["EventId"]: _task(e) for e in told.scheduled}
    for number in sorted(was.keys() | now.keys()):
        if was.get(number) != now.get(number):
            recorded, does = was.get(number, "nothing"), now.get(number, "nothing")
            return f"task {number} was {recorded}; the code as it is now does {does}"
    ends = [e["OrchestrationStatus"] for e in history if e["EventType"] == ev.EXECUTION_COMPLETED]
    end = None if told.outcome is None else told.outcome.status
    if ends and ends[0] != end:
        return f"it ended as {ends[0]}; the code as it is now ends as {end or 'running'}"
    if not ends and end not in (None, "ContinuedAsNew"):
        return f"it had not ended; the code as it is now ends as {end}"
    return None


def _task(event: Event) -> str:
    return f"{ev.NAMES[event['EventType']]} {event.get('Name', '')}".strip()


def episodes(history: Sequence[Event]) -> list[tuple[int, list[Event]]]:
    """The turns of a history: when each was, and what it took in."""
    turns: list[tuple[int, list[Event]]] = []
    for event in history:
        kind = event["EventType"]
        if kind == ev.ORCHESTRATOR_STARTED:
            turns.append((ev.milliseconds(event["Timestamp"]), []))
        elif turns and kind in ev.FINISHED | {ev.EVENT_RAISED, ev.EXECUTION_STARTED, ev.GENERIC}:
            turns[-1][1].append(event)
    return turns


@dataclass(slots=True, kw_only=True)
class Rewound:
    """A failed execution without its failures."""

    history: list[Event]
    open: list[Event]  # scheduled, to be done (again): nothing of it is under way
    news: list[Event]  # to be heard next
    held: list[Event]
    children: dict[str, int]  # instance of a sub-orchestration: the number that it now has


def rewind(
    identity: Identity, history: Sequence[Event], held: Sequence[Event], now: int, reason: str
) -> Asking[Rewound]:
    """Tell `history` again without the failures of activities and sub-orchestrations, and so
    without their retries: what succeeded keeps its result, what failed is open again.

    Told from the start, since numbers move up where retries are left out. What only followed from a
    failure that the orchestrator had caught is dropped, and is decided again. The last turn, in
    which it failed, is left to come (`news`)."""
    place = {e["EventId"]: n for n, e in enumerate(_firsts(history))}
    begun = {e["EventId"]: e for e in history if e["EventType"] in ev.SCHEDULED}
    machine = Machine(identity, [])
    for event in begun.values():
        if event["EventType"] == ev.CHILD_CREATED:  # of several attempts the last
            machine.child_ids[place[event.get("RetryOf", event["EventId"])]] = event["InstanceId"]

    def moved(event: Event) -> Event | None:
        if event["EventType"] not in ev.FINISHED:
            return event
        old = begun[ev.finished_id(event)]
        number = place[old.get("RetryOf", old["EventId"])]
        if event["EventType"] in ev.FAILED or number >= len(machine.primaries):
            return None
        new = machine.primaries[number]  # a retry's timer finds its activity here, and is no more
        if (new["EventType"], new.get("Name")) != (old["EventType"], old.get("Name")):
            return None
        key = "TimerId" if event["EventType"] == ev.TIMER_FIRED else "TaskScheduledId"
        return {**event, key: new["EventId"]}

    kept, waiting = list[Event](), list[Event]()
    turns = episodes(history)
    for when, news in turns[:-1]:
        turn = yield from machine.turn([e for old in news if (e := moved(old))], waiting, when)
        if turn.outcome is not None:
            break
        kept += turn.events
        waiting = turn.held
    last = [e for old in turns[-1][1] if (e := moved(old))]
    for event in last:
        if event["EventType"] in ev.FINISHED:
            machine.open.pop(ev.finished_id(event), None)
    return Rewound(
        history=kept,
        open=list(machine.open.values()),
        news=[*last, ev.event(ev.GENERIC, now, Data=f"Rewound: {reason}")],
        held=[*waiting, *held],
        children={
            e["InstanceId"]: e["EventId"]
            for e in machine.open.values()
            if e["EventType"] == ev.CHILD_CREATED
        },
    )


def _firsts(history: Sequence[Event]) -> list[Event]:
    return [e for e in history if e["EventType"] in ev.SCHEDULED and "RetryOf" not in e]
