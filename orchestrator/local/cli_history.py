"""How a history looks in a terminal: one line per event, a map's many events folded into one.

Events are shown generically (`type`, times, then whatever properties they have), so that an event
type of a later version still prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from orchestrator.local.cli_faults import printable
from orchestrator.local.cli_render import failure_lines, table, value_text
from orchestrator.local.cli_times import clock, moment, seconds

MAP_EVENTS: Final = ("mapItemsQueued", "mapItemsCompleted", "mapItemSignalled")
MAX_IDS: Final = 8  # ids of a wide event shown before the rest is counted


def history_table(events: Sequence[Mapping[str, Any]], *, compact: bool) -> RenderableType:
    """The events, oldest first, with the time since the first. `compact` folds each run of a
    map's item events into one line."""
    if not events:
        return Text("No events.")
    first = moment(events[0]["at"])
    rows: list[tuple[str, str, str, str]] = []
    groups = _runs(events) if compact else [[event] for event in events]
    for group in groups:
        head = group[0]
        folded = len(group) > 1
        since = _since(first, head["at"])
        rows.append(
            (
                _span(head["seq"], group[-1]["seq"]),
                f"{since} … {_since(first, group[-1]['at'])}" if folded else since,
                "mapItems…" if folded else printable(head["type"]),
                _folded(group) if folded else _details(head, first),
            )
        )
    began = f"started {clock(events[0]['at'])} UTC"
    return table(("seq", "at", "event", began), rows)


def _runs(events: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    runs: list[list[Mapping[str, Any]]] = []
    for event in events:
        same_map = (
            runs
            and event["type"] in MAP_EVENTS
            and runs[-1][-1]["type"] in MAP_EVENTS
            and runs[-1][-1].get("task") == event.get("task")
        )
        if same_map:
            runs[-1].append(event)
        else:
            runs.append([event])
    return runs


def _folded(group: Sequence[Mapping[str, Any]]) -> str:
    queued = sum(e.get("count", 0) for e in group if e["type"] == "mapItemsQueued")
    completed = sum(len(e.get("items") or ()) for e in group if e["type"] == "mapItemsCompleted")
    completed += sum(e["type"] == "mapItemSignalled" for e in group)
    return printable(
        f"task={group[0].get('task')} {len(group)} events: "
        f"{queued} items queued, {completed} completed"
    )


def _details(event: Mapping[str, Any], first: datetime | None) -> str:
    parts: list[str] = []
    for key, value in event.items():
        if key in ("seq", "type", "at") or value is None or value in ([], ""):
            continue
        if key == "failure" and isinstance(value, Mapping):
            parts.append("; ".join(failure_lines(_placed(value, event))))
        elif key in ("tasks", "items") and isinstance(value, list):
            parts.append(f"{key}={_ids(value)}")
        elif key.endswith("At") and isinstance(value, str):
            parts.append(f"{key}={_since(first, value)}")
        elif isinstance(value, Mapping) and "bytes" in value:
            parts.append(f"{key}={value['bytes']} bytes")  # a payload; `weft show` has it
        elif isinstance(value, str):
            parts.append(printable(f"{key}={value}"))
        else:
            parts.append(f"{key}={value_text(value, full=False)}")
    return " ".join(parts)


def _placed(failure: Mapping[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
    """The failure with its place as answers spell it; none where the event names the task."""
    if event.get("task"):
        return {**failure, "task": None}
    return {**failure, "item": failure.get("index")}


def _since(first: datetime | None, iso: str) -> str:
    at = moment(iso)
    return f"+{seconds((at - first).total_seconds())}" if at and first else ""


def _ids(values: Sequence[Any]) -> str:
    """Ids, or item numbers as ranges: `0-31,40`. Long lists are counted."""
    if values and all(type(value) is int for value in values):
        parts = _ranges(sorted(values))
    else:
        parts = [printable(value) for value in values]
    if len(parts) <= MAX_IDS:
        return ",".join(parts)
    return f"{','.join(parts[:MAX_IDS])},… ({len(values)})"


def _ranges(numbers: Sequence[int]) -> list[str]:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return [_span(first, last) for first, last in spans]


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
