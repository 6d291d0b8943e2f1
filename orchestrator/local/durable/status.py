"""Instances as the Durable extension's HTTP API shows them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

from orchestrator.local.durable import events as ev
from orchestrator.local.durable.clients import Status
from orchestrator.local.durable.events import Event

_HIDDEN: Final = {"EventId", "IsPlayed", "Retry", "RetryOf", "Own", "Version"}
_INNER: Final = {ev.ORCHESTRATOR_STARTED, ev.ORCHESTRATOR_COMPLETED}


def shown(
    status: Status, *, payload: bool, events: list[Event] | None, results: bool = False
) -> dict[str, Any]:
    """The answer's body. `events`: its history if it is to be shown; `payload`: with inputs,
    `results`: with those."""
    return {
        "name": status.name,
        "instanceId": status.id,
        "runtimeStatus": status.shown,
        "input": _value(status.payload) if payload else None,
        "customStatus": _value(status.custom_status),
        "output": _value(status.output),
        "createdTime": _seconds(status.created),
        "lastUpdatedTime": _seconds(status.updated),
    } | ({} if events is None else {"historyEvents": _history(events, payload, results)})


def _history(events: list[Event], payload: bool, results: bool) -> list[dict[str, Any]]:
    """Turns are left out; what was scheduled is merged into how it ended."""
    begun = {e["EventId"]: e for e in events if e["EventType"] in ev.SCHEDULED}
    merged = {
        ev.finished_id(e)
        for e in events
        if e["EventType"] in ev.FINISHED and e["EventType"] != ev.TIMER_FIRED
    }
    return [
        _event(event, begun, payload, results)
        for event in events
        if event["EventType"] not in _INNER
        and not (event["EventType"] in ev.SCHEDULED and event["EventId"] in merged)
    ]


def _event(event: Event, begun: dict[int, Event], payload: bool, results: bool) -> dict[str, Any]:
    kind = event["EventType"]
    out = {key: value for key, value in event.items() if key not in _HIDDEN}
    out["EventType"] = ev.NAMES[kind]
    if kind in ev.FINISHED and kind != ev.TIMER_FIRED:
        was = begun.get(out.pop("TaskScheduledId"))
        if was is not None:
            out["ScheduledTime"], out["FunctionName"] = was["Timestamp"], was["Name"]
            if was.get("Input") is not None:
                out["Input"] = was["Input"]
    if kind == ev.EXECUTION_STARTED:
        out["FunctionName"] = out.pop("Name")
    if not payload:
        out.pop("Input", None)
    elif "Input" in out:
        out["Input"] = _value(out["Input"])
    out.pop("TimerId", None)
    if "Result" in out:
        if results:
            out["Result"] = _value(out["Result"])
        else:
            del out["Result"]
    return out


def _value(text: str | None) -> Any:
    """JSON text as JSON; text that is none as it is."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _seconds(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
