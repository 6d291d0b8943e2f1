"""Where an execution came from: a person, a trigger, a schedule, a parent, a replay. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.local.cli_times import clock


def origin(execution: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Labelled lines about what started `execution` (an `ExecutionView`), not yet printable."""
    lines: list[tuple[str, str]] = []
    if execution.get("parent"):
        lines.append(("child of", _parent(execution)))
    if event := execution.get("event"):
        lines.append(("trigger", str(event["trigger"])))
        lines.append(("event", f"{event['id']} of {event['source']}, type {event['type']}"))
    if execution.get("schedule"):
        tick = clock(execution.get("scheduledFor"))
        lines.append(
            ("schedule", f"{execution['schedule']}, {f'for {tick} UTC' if tick else 'by hand'}")
        )
    if execution.get("replayOf"):
        since = execution.get("replayFrom")
        lines.append(("replay of", f"{execution['replayOf']}{f', from {since}' if since else ''}"))
    if not lines and execution.get("startedBy"):
        lines.append(("started by", str(execution["startedBy"])))
    return lines


def _parent(execution: Mapping[str, Any]) -> str:
    """`1f2e…, task ship[3]`."""
    text = str(execution["parent"])
    if execution.get("parentTask"):
        text += f", task {execution['parentTask']}"
        if execution.get("parentItem") is not None:
            text += f"[{execution['parentItem']}]"
    return text
