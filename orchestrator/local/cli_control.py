"""Commands of operators: pause, resume, cancel."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from orchestrator.local.cli_client import Client
from orchestrator.local.cli_faults import DONE, console, print_json
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Id, Url
from orchestrator.local.cli_render import emit, status_text

Reason = Annotated[
    str, typer.Option("--reason", "-r", help="Why; stands in the history and in the audit.")
]


def pause(id: Id, reason: Reason = "", url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Start nothing new of an execution until it is resumed."""
    return _act("pause", id, reason, url, as_json=as_json)


def resume(id: Id, reason: Reason = "", url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Let a paused execution go on."""
    return _act("resume", id, reason, url, as_json=as_json)


def cancel(id: Id, reason: Reason = "", url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """End an execution now. What still runs does not count any more."""
    return _act("cancel", id, reason, url, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (pause, resume, cancel):
        app.command()(command)


def _act(verb: str, id: str, reason: str, url: str, *, as_json: bool) -> int:
    with Client(url) as client:
        view = client.act(id, verb, reason=reason)
    if as_json:
        print_json(view)
    else:
        emit(console(), Text(f"{view['id']}  ").append_text(status_text(view["status"])))
    return DONE
