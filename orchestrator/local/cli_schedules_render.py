"""How schedules look in a terminal. Pure; every text of a user goes through `printable`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.local.cli_faults import printable
from orchestrator.local.cli_render import table, value_text
from orchestrator.local.cli_times import clock

_STYLES: Final = {
    "ACTIVE": "green",
    "PAUSED": "yellow",
    "ENDED": "dim",
    "started": "green",
    "manual": "green",
    "missed": "yellow",
    "skipped": "yellow",
    "refused": "bold red",
}


def _styled(word: str) -> Text:
    return Text(printable(word), _STYLES.get(word, ""))


def schedule_list(items: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Schedules by name."""
    if not items:
        return Text("No schedules.")
    rows = [
        (
            printable(item["name"]),
            printable(item["workflow"]),
            _styled(item["status"]),
            clock(item.get("nextAt")),
            _last(item.get("last")),
        )
        for item in items
    ]
    return table(("schedule", "workflow", "status", "next (UTC)", "last"), rows)


def _last(fire: Mapping[str, Any] | None) -> Text:
    if not fire:
        return Text("")
    return _styled(fire["outcome"]).append(f" {clock(fire['at'])}", "default")


def view(schedule: Mapping[str, Any]) -> RenderableType:
    """One schedule: what it is, how it went, when it fires next."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    grid.add_row("schedule", Text(printable(schedule["name"]), "bold"))
    grid.add_row("workflow", printable(schedule["workflow"]))
    grid.add_row("status", _styled(schedule["status"]))
    grid.add_row("revision", str(schedule["revision"]))
    for key, value in schedule["definition"].items():
        if key not in ("name", "workflow", "paused"):
            text = printable(value) if isinstance(value, str) else value_text(value, full=False)
            grid.add_row(printable(key), text)
    counts = ", ".join(f"{count} {name}" for name, count in schedule["counts"].items())
    grid.add_row("so far", printable(counts) or "nothing")
    if schedule["waiting"]:
        grid.add_row("waiting", f"{schedule['waiting']} ticks")
    return Group(grid, Text(""), next_lines(schedule["next"]))


def next_lines(fires: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Fire times to come."""
    if not fires:
        return Text("It fires no more.")
    rows = [(clock(one["at"]), _local(one["local"])) for one in fires]
    return table(("next (UTC)", "local"), rows)


def _local(iso: str) -> str:
    return datetime.fromisoformat(iso).isoformat(timespec="seconds")


def fire_list(items: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What happened to ticks, newest first."""
    if not items:
        return Text("Nothing yet.")
    rows = [
        (
            clock(item.get("tick")),
            _styled(item["outcome"]).append(
                f" x {item['count']}" if item["count"] > 1 else "", "default"
            ),
            clock(item["at"]),
            printable(item.get("execution") or ""),
            printable(": ".join(text for text in (item.get("code"), item.get("message")) if text)),
        )
        for item in items
    ]
    return table(("tick (UTC)", "outcome", "at (UTC)", "execution", "why"), rows)
