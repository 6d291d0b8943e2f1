"""Histories as Durable's HTTP API answers with them, out of the protocol's: what the extension does
to each event (`DurableClient.GetStatusAsync`), so that tests need no extension."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.local.durable import events as ev

_BEGAN = {
    ev.TASK_COMPLETED: ev.TASK_SCHEDULED,
    ev.TASK_FAILED: ev.TASK_SCHEDULED,
    ev.CHILD_COMPLETED: ev.CHILD_CREATED,
    ev.CHILD_FAILED: ev.CHILD_CREATED,
}
_GONE = ("EventId", "IsPlayed", "Version", "Own", "TaskScheduledId", "TimerId")


def answer(body: Mapping[str, Any], *, inputs: bool = True, results: bool = True) -> dict[str, Any]:
    """`body`: as `weft code export` writes it. `inputs`: with showInput, `results`: with
    showHistoryOutput."""
    events: Sequence[dict[str, Any]] = body["history"]
    begun = {e["EventId"]: e for e in events if e["EventType"] in ev.SCHEDULED}
    ended = {e["TaskScheduledId"] for e in events if e["EventType"] in _BEGAN}
    shown: list[dict[str, Any]] = []
    for event in events:
        kind = event["EventType"]
        if kind in (ev.ORCHESTRATOR_STARTED, ev.ORCHESTRATOR_COMPLETED):
            continue
        if kind in _BEGAN.values() and event["EventId"] in ended:
            continue
        one = {key: value for key, value in event.items() if key not in _GONE}
        one["EventType"] = ev.NAMES[kind]
        if kind in ev.SCHEDULED:
            one["Timestamp"] = _tick(event)
            if "Input" in one:
                one["Input"] = _arguments(kind, one["Input"])
        elif kind in _BEGAN:
            was = begun[event["TaskScheduledId"]]
            one |= {"ScheduledTime": _tick(was), "FunctionName": was["Name"]}
            if "Input" in was:
                one["Input"] = _arguments(_BEGAN[kind], was["Input"])
        elif kind == ev.EXECUTION_STARTED:
            one["FunctionName"] = one.pop("Name")
        if "Result" in one:
            one["Result"] = json.loads(one["Result"])
            if not results:
                del one["Result"]
        if not inputs:
            one.pop("Input", None)
        shown.append(one)
    started = next(e for e in events if e["EventType"] == ev.EXECUTION_STARTED)
    return {
        "name": started["Name"],
        "instanceId": body["instanceId"],
        "runtimeStatus": "Running",
        "input": json.loads(started["Input"]) if inputs else None,
        "historyEvents": shown,
    }


def _tick(event: Mapping[str, Any]) -> str:
    """The seventh digit: no two steps are scheduled at the same time."""
    return f"{event['Timestamp'].rstrip('Z')}{event['EventId']:02d}Z"


def _arguments(kind: int, text: str) -> str:
    """Of an activity a list of its arguments, each as the worker sent it."""
    return json.dumps([json.loads(text)]) if kind == ev.TASK_SCHEDULED else text
