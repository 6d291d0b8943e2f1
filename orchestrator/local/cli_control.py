"""Commands of operators: pause, resume, cancel, terminate, retry, replay, erase."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from orchestrator.local.cli_client import Client
from orchestrator.local.cli_faults import DONE, console, print_json, printable
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


def cancel(
    id: Id,
    compensate: Annotated[
        bool,
        typer.Option("--compensate", help="Let what runs end, then undo what had completed."),
    ] = False,
    reason: Reason = "",
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """End an execution: now, and what still runs does not count any more; or undo it."""
    more = {"compensate": True} if compensate else {}
    return _act("cancel", id, reason, url, as_json=as_json, **more)


def terminate(id: Id, reason: Reason = "", url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """End an execution now, whatever it is doing, also undoing what it had completed."""
    return _act("terminate", id, reason, url, as_json=as_json)


def retry(id: Id, reason: Reason = "", url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Retry all that is dead in a failed execution; what had completed is not run again."""
    return _act("retry", id, reason, url, as_json=as_json)


def replay(
    id: Id,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TASK", help="Run from this task on only.")
    ] = None,
    latest: Annotated[
        bool, typer.Option("--latest", help="On the latest version; else on the same.")
    ] = False,
    reason: Reason = "",
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same call again starts nothing new.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Run an ended execution again, as a new one with the same input."""
    request = {"version": "latest" if latest else "same", "reason": reason}
    if from_ is not None:
        request["from"] = from_
    with Client(url) as client:
        result = client.replay(id, request, key=key)
    if as_json:
        print_json(result)
    else:
        emit(console(), Text(printable(f"{result['id']}  replays {id}")))
    return DONE


def erase(id: Id, reason: Reason = "", url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Erase an ended execution's data for good; its structure stays."""
    return _act("erase", id, reason, url, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (pause, resume, cancel, terminate, retry, replay, erase):
        app.command()(command)


def _act(verb: str, id: str, reason: str, url: str, *, as_json: bool, **more: bool) -> int:
    with Client(url) as client:
        view = client.act(id, verb, reason=reason, **more)
    if as_json:
        print_json(view)
    else:
        emit(console(), Text(f"{view['id']}  ").append_text(status_text(view["status"])))
    return DONE
