"""Steps of code workflows in words, and where two of them differ.

To Durable every activity of a code workflow is `weft_activity`: what it really is stands in its
input, JSON text within JSON text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.domain.orchestration import workflow_of
from orchestrator.local.durable import events as ev
from orchestrator.local.durable.events import Event
from orchestrator.ports_durable import (
    ACTIVITY_FUNCTION,
    CALL_FUNCTION,
    ENDED_FUNCTION,
    SUPPORT_FUNCTION,
)

TOLERANCE_MS: Final = 60_000
"""Of timers, where the time of a turn is not recorded: a busy host takes long turns."""
MAX_SHOWN: Final = 200
_VARIES: Final = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]*(?:Z|[+-]\d\d:?\d\d)?"
)
"""Times and ids that come from them; not to be compared where times are not recorded."""


@dataclass(frozen=True, slots=True)
class Step:
    """`what`: in words; `more`: its input and the like, None if that is not recorded."""

    what: str
    more: Any


def step_of(event: Event) -> Step:
    """A scheduled event (`ev.SCHEDULED`)."""
    if event["EventType"] == ev.TIMER_CREATED:
        return Step("timer", {"until": ev.timestamp(ev.milliseconds(event["FireAt"]))})
    name, child = str(event["Name"]), event["EventType"] == ev.CHILD_CREATED
    given = unnested(event.get("Input"))
    if isinstance(given, list) and len(given) == 1:  # Durable's host: a list of arguments
        given = unnested(given[0])
    doc = given if isinstance(given, dict) else {}
    if "call" in doc:
        what = f"activity {doc['call'].get('activity')} with retry"
    elif "activity" in doc and name == ACTIVITY_FUNCTION:
        what = f"activity {doc['activity']}"
    elif name == CALL_FUNCTION:
        what = f"workflow {doc['workflow']}" if "workflow" in doc else "activity with retry"
    elif name == SUPPORT_FUNCTION:
        what = f"step of Weft's own ({doc.get('op', 'not recorded')})"
    elif name == ENDED_FUNCTION:
        what = "word to Weft that it ends"
    elif found := workflow_of(name):
        what = f"workflow {found[0]} version {found[1]}"
    else:
        what = f"{'orchestrator' if child else 'activity'} {name}"
    return Step(what, given)


def difference(recorded: Event, current: Event, *, exact: bool) -> tuple[str, str] | None:
    """What was recorded and what the code does now, in words; None if they are the same. What is
    not recorded is not compared."""
    was, now = step_of(recorded), step_of(current)
    if (recorded["EventType"], recorded.get("Name")) != (current["EventType"], current.get("Name")):
        return told(was), told(now)
    if recorded["EventType"] == ev.TIMER_CREATED:
        apart = ev.milliseconds(recorded["FireAt"]) - ev.milliseconds(current["FireAt"])
        return None if abs(apart) <= (0 if exact else TOLERANCE_MS) else (told(was), told(now))
    if was.more is None:
        return None
    if was.what != now.what:
        return was.what, now.what
    found = _apart(was.more, now.more, exact, "")
    if found is None and exact and current.get("InstanceId"):  # else the host gives it an id
        found = _apart(recorded.get("InstanceId"), current.get("InstanceId"), exact, "instance")
    if found is None:
        return None
    path, old, new = found
    return f"{was.what}: {path} is {old}", f"{now.what}: {path} is {new}"


def told(step: Step) -> str:
    """In words, a timer with its time."""
    return f"timer until {step.more['until']}" if step.what == "timer" else step.what


def shown(value: Any) -> str:
    """JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def unnested(value: Any) -> Any:
    """JSON text as a value, also that within."""
    while isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            break
    return value


def apart(recorded: Any, current: Any, *, exact: bool, path: str) -> tuple[str, str, str] | None:
    """The first place where two values differ, and both sides of it."""
    return _apart(unnested(recorded), unnested(current), exact, path)


def _apart(was: Any, now: Any, exact: bool, path: str) -> tuple[str, str, str] | None:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted(was.keys() | now.keys()):
            inner = f"{path}.{key}" if path else str(key)
            if key not in was or key not in now:
                sides = [shown(one[key]) if key in one else "not there" for one in (was, now)]
                return inner, sides[0], sides[1]
            if found := _apart(_inner(key, was[key]), _inner(key, now[key]), exact, inner):
                return found
        return None
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for place, (one, other) in enumerate(zip(was, now, strict=True)):
            if found := _apart(one, other, exact, f"{path}[{place}]"):
                return found
        return None
    if not exact and isinstance(was, str) and isinstance(now, str):
        was, now = _VARIES.sub("…", was), _VARIES.sub("…", now)
    # 1 == 1.0 == True to Python, not to JSON.
    same = was == now and (type(was) is type(now))
    return None if same else (path or "it", shown(was), shown(now))


def _inner(key: str, value: Any) -> Any:
    """What is JSON text by its place; a user's text that looks like JSON stays text."""
    return unnested(value) if key in ("input", "output", "envelope") else value
