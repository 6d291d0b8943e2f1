"""How dead letters look in a terminal. Pure; every text of a user goes through `printable`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.local.cli_attempts import attempts_table
from orchestrator.local.cli_faults import printable
from orchestrator.local.cli_render import failure_lines, table, value_text
from orchestrator.local.cli_times import clock


def _where(letter: Mapping[str, Any]) -> str:
    task = str(letter.get("task") or letter.get("trigger") or "")
    if not task and letter.get("kind") == "notification":
        return "(notification)"
    return task if letter.get("item") is None else f"{task}[{letter['item']}]"


def letter_list(items: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Dead letters, newest first."""
    if not items:
        return Text("No dead letters.")
    rows = [
        (
            printable(item["id"]),
            str(item["status"]),
            printable(item.get("workflow") or ""),
            printable(_where(item)),
            clock(item["createdAt"]),
            Text(printable(_error(item)), "red"),
        )
        for item in items
    ]
    return table(
        ("dead letter", "status", "workflow", "task or trigger", "created (UTC)", "error"), rows
    )


def _error(item: Mapping[str, Any]) -> str:
    error = item.get("error")
    return f"{error['type']}: {error['message']}" if error else str(item["reason"])


def decision(letter: Mapping[str, Any]) -> Text:
    """What was decided, by whom and when: asked again, the answer is the first decision."""
    text = f"{letter['id']}  {letter['status']}"
    if done := letter.get("resolved"):
        text += f" {_by(done)}"
    return Text(printable(text))


def _by(done: Mapping[str, Any]) -> str:
    return f"by {done['by'] or 'somebody'} at {clock(done['at'])} UTC"


def letter_view(letter: Mapping[str, Any], *, full: bool) -> RenderableType:
    """One dead letter: what it is, why, and every attempt."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    grid.add_row("dead letter", Text(printable(letter["id"]), "bold"))
    tolerated = " (tolerated by its map)" if letter.get("tolerated") else ""
    grid.add_row("status", f"{letter['status']}{tolerated}")
    if letter.get("kind") == "notification":
        grid.add_row("of", "a notification (webhook)")
    if letter.get("execution"):
        grid.add_row("execution", printable(letter["execution"]))
    if letter.get("trigger"):
        grid.add_row("trigger", printable(letter["trigger"]))
    if letter.get("workflow"):
        version = f" version {letter['version']}" if letter.get("version") else ""
        grid.add_row("workflow", printable(f"{letter['workflow']}{version}"))
    if letter.get("task"):
        grid.add_row("task", printable(_where(letter)))
    grid.add_row("reason", printable(letter["reason"]))
    grid.add_row("created", f"{clock(letter['createdAt'])} UTC")
    if letter.get("input") is not None:
        grid.add_row("input", value_text(letter["input"], full=full))
    if letter.get("event") is not None:
        grid.add_row("event", value_text(letter["event"], full=full))
    if letter.get("error"):
        grid.add_row("error", Text("\n".join(failure_lines(letter["error"])), "red"))
    if done := letter.get("resolved"):
        why = f": {done['reason']}" if done.get("reason") else ""
        grid.add_row("resolved", printable(f"{done['action']} {_by(done)}{why}"))
    attempts = attempts_table(letter.get("attempts") or ())
    return grid if attempts is None else Group(grid, Text(""), attempts)
