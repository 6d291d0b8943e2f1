"""What goes to and comes from an orchestrator function: contexts, states and actions of
`azure-functions-durable`, and what a turn makes of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from orchestrator.local.durable import events as ev
from orchestrator.local.durable.events import Event

SCHEMA: Final = 2
"""The newest replay schema that the library knows: one flat list of actions."""
_FAILURE_MARK: Final = "$OutOfProcData$:"

ACTIVITY, ACTIVITY_RETRY, CHILD, CHILD_RETRY, CONTINUE, TIMER, WAIT = range(7)
ANY, ALL = 11, 12
KINDS: Final = {
    ACTIVITY: ev.TASK_SCHEDULED,
    ACTIVITY_RETRY: ev.TASK_SCHEDULED,
    CHILD: ev.CHILD_CREATED,
    CHILD_RETRY: ev.CHILD_CREATED,
    TIMER: ev.TIMER_CREATED,
}
UNSUPPORTED: Final = {
    7: "entities (call_entity)",
    8: "call_http (call an activity instead)",
    9: "entities (signal_entity)",
    10: "entities (signal_entity)",
}

T = TypeVar("T")
Asking = Generator[str, str, T]
"""Yields contexts, is sent answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which execution of which instance."""

    name: str  # the orchestrator function
    instance: str
    execution: str  # another one after continue-as-new
    payload: str | None = None  # the input, as the client sent it: JSON text
    parent: str | None = None  # instance id


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an execution ended. `value` is JSON text: output, message of the failure, or the next
    execution's input."""

    status: str  # Completed | Failed | ContinuedAsNew
    value: str


@dataclass(slots=True, kw_only=True)
class Turn:
    """What a turn adds."""

    events: list[Event] = field(default_factory=list)  # to the history, in this order
    scheduled: list[Event] = field(default_factory=list)  # those of them that are work to be done
    held: list[Event] = field(default_factory=list)  # external ones that nobody waits for yet
    custom_status: str | None = None  # JSON text; None: as it was
    outcome: Outcome | None = None


def drive(asking: Asking[T], function: Callable[[str], str]) -> T:
    """Let a plain orchestrator function answer until the result is there."""
    try:
        context = next(asking)
        while True:
            try:
                answer = function(context)
            except Exception as error:
                context = asking.throw(error)
            else:
                context = asking.send(answer)
    except StopIteration as end:
        return end.value


def divergence(recorded: Sequence[Event], actions: Sequence[dict[str, Any]]) -> str | None:
    """The first place where the orchestrator's numbered `actions` are not what was `recorded` as
    scheduled (first attempts only); None if they agree as far as the record goes."""
    for place, event in enumerate(recorded):
        what = f"{ev.NAMES[event['EventType']]} {event.get('Name', '')}".strip()
        if place >= len(actions):
            return f"action {place} was {what}; the code as it is now does not get there"
        action = actions[place]
        kind, name = KINDS[action["actionType"]], action.get("functionName")
        if kind != event["EventType"] or name != event.get("Name"):
            now = f"{ev.NAMES[kind]} {name or ''}".strip()
            return f"action {place} was {what}; the code as it is now does {now}"
    return None


def flat(actions: Iterable[dict[str, Any]]) -> Generator[dict[str, Any], None, None]:
    """Actions in the order of scheduling, those within when-any and when-all too."""
    for action in actions:
        if action["actionType"] in (ANY, ALL):
            yield from flat(action["compoundActions"])
        else:
            yield action


def answer_of_failure(error: BaseException) -> str:
    """The state (JSON) that a failed orchestrator's exception carries; or one with its text and
    without actions (null), since whoever could not be asked has decided nothing."""
    _, mark, state = str(error).rpartition(_FAILURE_MARK)
    if mark:
        return state
    message = str(error) or type(error).__name__
    return json.dumps({"isDone": False, "actions": None, "error": message})
