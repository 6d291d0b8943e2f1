"""`weft deadletters`: what failed for good, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.local.cli_client import Client
from orchestrator.local.cli_faults import DONE, console, print_json, printable
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import clock, emit, failure_lines, table, value_text

letters = typer.Typer(
    name="deadletters",
    help="What failed for good: list it, look at it, decide about it.",
    no_args_is_help=True,
)

Letter = Annotated[str, typer.Argument(metavar="ID", help="Id of the dead letter.")]


@letters.command("list")
def list_(
    status: Annotated[
        str, typer.Option(help="OPEN, RETRIED, SKIPPED, FAILED, DISCARDED or ALL.")
    ] = "OPEN",
    workflow: Annotated[str | None, typer.Option(help="Only of this workflow.")] = None,
    execution: Annotated[str | None, typer.Option(help="Only of this execution.")] = None,
    task: Annotated[str | None, typer.Option(help="Only of this task.")] = None,
    error: Annotated[str | None, typer.Option(help="Only with this type of error.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 20,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """List dead letters, newest first; the open ones unless --status says otherwise."""
    given = filters(status, workflow, execution, task, error)
    with Client(url) as client:
        page = client.dead_letters(given, limit=limit)
    if as_json:
        print_json(page)
        return DONE
    out = console()
    emit(out, _list(page["items"]))
    if page["nextCursor"]:
        emit(out, Text(f"There are more than {limit}; --limit shows more.", "dim"))
    return DONE


@letters.command()
def show(
    id: Letter,
    full: Annotated[bool, typer.Option("--full", help="Do not abbreviate the input.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Show a dead letter: errors, attempts, input."""
    with Client(url) as client:
        letter = client.dead_letter(id)
    if as_json:
        print_json(letter)
    else:
        emit(console(), _view(letter, full=full))
    return DONE


def filters(
    status: str, workflow: str | None, execution: str | None, task: str | None, error: str | None
) -> dict[str, str]:
    """Query parameters; what is left out filters nothing."""
    given = {
        "status": None if status.upper() == "ALL" else status.upper(),
        "workflow": workflow,
        "execution": execution,
        "task": task,
        "errorType": error,
    }
    return {name: value for name, value in given.items() if value is not None}


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(letters)


def _where(letter: Mapping[str, Any]) -> str:
    task = str(letter.get("task") or "")
    return task if letter.get("item") is None else f"{task}[{letter['item']}]"


def _list(items: Sequence[Mapping[str, Any]]) -> RenderableType:
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
    return table(("dead letter", "status", "workflow", "task", "created (UTC)", "error"), rows)


def _error(item: Mapping[str, Any]) -> str:
    error = item.get("error")
    return f"{error['type']}: {error['message']}" if error else str(item["reason"])


def _view(letter: Mapping[str, Any], *, full: bool) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    grid.add_row("dead letter", Text(printable(letter["id"]), "bold"))
    grid.add_row("status", str(letter["status"]))
    grid.add_row("execution", printable(letter["execution"]))
    if letter.get("workflow"):
        grid.add_row("workflow", printable(f"{letter['workflow']} version {letter['version']}"))
    grid.add_row("task", printable(_where(letter)))
    grid.add_row("reason", printable(letter["reason"]))
    grid.add_row("created", f"{clock(letter['createdAt'])} UTC")
    if letter.get("input") is not None:
        grid.add_row("input", value_text(letter["input"], full=full))
    if letter.get("error"):
        grid.add_row("error", Text("\n".join(failure_lines(letter["error"])), "red"))
    if done := letter.get("resolved"):
        why = f": {done['reason']}" if done.get("reason") else ""
        text = f"{done['action']} by {done['by'] or 'somebody'} at {clock(done['at'])} UTC{why}"
        grid.add_row("resolved", printable(text))
    rows = [
        (
            str(entry["attempt"]),
            clock(entry["startedAt"]),
            printable(entry["worker"]),
            Text(printable("; ".join(failure_lines(entry["error"])) if entry["error"] else "")),
        )
        for entry in letter.get("attempts") or ()
    ]
    if not rows:
        return grid
    return Group(grid, Text(""), table(("attempt", "started (UTC)", "worker", "error"), rows))
