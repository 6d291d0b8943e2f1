"""`weft breakers`: which dependencies are cut off, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.local.cli_client import Client
from orchestrator.local.cli_control import Reason
from orchestrator.local.cli_faults import DONE, console, print_json, printable
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import emit, table
from orchestrator.local.cli_times import clock

breakers = typer.Typer(
    name="breakers",
    help="Circuit breakers: which dependencies are cut off; open or close them.",
    no_args_is_help=True,
)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Host[:port], or an activity's dependency.")
]
_STYLES = {"closed": "green", "halfOpen": "yellow", "open": "red"}


@breakers.command("list")
def list_(url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """List the breakers that have a record; what is not listed is closed."""
    with Client(url) as client:
        page = client.breakers()
    if as_json:
        print_json(page)
    else:
        emit(console(), _listed(page["items"]))
    return DONE


@breakers.command()
def show(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Show one breaker: its status, since when, why."""
    with Client(url) as client:
        found = client.breaker(name)
    if as_json:
        print_json(found)
    else:
        emit(console(), _shown(found))
    return DONE


@breakers.command("open")
def open_(
    name: Name,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="Such as 15m; left out: until it is closed."),
    ] = None,
    reason: Reason = "",
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Let tasks of the dependency wait, without using up attempts."""
    body = {"reason": reason} if for_ is None else {"reason": reason, "for": for_}
    return _set(name, "open", body, url, as_json=as_json)


@breakers.command()
def close(name: Name, reason: Reason = "", url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Let tasks of the dependency through again."""
    return _set(name, "close", {"reason": reason}, url, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(breakers)


def _set(name: str, verb: str, body: Mapping[str, Any], url: str, *, as_json: bool) -> int:
    with Client(url) as client:
        found = client.set_breaker(name, verb, body)
    if as_json:
        print_json(found)
    else:
        text = Text(f"{printable(found['dependency'])}  ").append_text(_status(found))
        emit(console(), text.append(_until(found)))
    return DONE


def _status(found: Mapping[str, Any]) -> Text:
    status = str(found["status"])
    return Text(printable(status), _STYLES.get(status, ""))


def _until(found: Mapping[str, Any]) -> str:
    if found["status"] == "closed":
        return ""
    return f"  until {clock(found['until'])} UTC" if found.get("until") else "  until it is closed"


def _listed(items: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not items:
        return Text("No breaker has a record: all are closed.")
    rows = [
        (
            printable(item["dependency"]),
            _status(item),
            f"{item['failures']} of {item['failures'] + item['successes']}",
            _until(item).strip(),
            printable(", ".join(item["errors"])),
        )
        for item in items
    ]
    return table(("dependency", "status", "failed", "until", "latest errors"), rows)


def _shown(found: Mapping[str, Any]) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    grid.add_row("dependency", Text(printable(found["dependency"]), "bold"))
    grid.add_row("status", _status(found).append(_until(found)))
    outcomes = found["failures"] + found["successes"]
    grid.add_row("failed", f"{found['failures']} of the latest {outcomes}")
    grid.add_row("errors", printable(", ".join(found["errors"])))
    if found.get("openedAt"):
        grid.add_row("opened", f"{clock(found['openedAt'])} UTC")
    if found.get("by"):
        why = f": {found['reason']}" if found.get("reason") else ""
        grid.add_row("operator", printable(f"{found['by']}{why}"))
    return grid
