"""`weft signal` and `weft signals`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from orchestrator.domain.jsontypes import Json
from orchestrator.local.cli_client import Client
from orchestrator.local.cli_faults import DONE, console, print_json, printable
from orchestrator.local.cli_input import json_value
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Id, Url
from orchestrator.local.cli_render import emit, table
from orchestrator.local.cli_times import clock


def signal(
    id: Id,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the signal, as a task waits for it.")
    ],
    payload: Annotated[
        str | None,
        typer.Option("--payload", "-p", metavar="JSON|@FILE|-", help="Becomes the task's output."),
    ] = None,
    signal_id: Annotated[
        str | None, typer.Option("--id", help="The same id again is the same signal.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Send a signal to an execution, such as an approval."""
    request: dict[str, Json] = {"name": name}
    if payload is not None:
        request["payload"] = json_value(payload, "--payload")
    if signal_id is not None:
        request["id"] = signal_id
    with Client(url) as client:
        result = client.signal(id, request)
    if as_json:
        print_json(result)
    else:
        said = "accepted" if result["created"] else "was sent before"
        emit(console(), Text(printable(f"{result['name']} {result['id']}  {said}")))
    return DONE


def signals(id: Id, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """List the signals that an execution was sent, and which task took which."""
    with Client(url) as client:
        found = client.signals(id)
    if as_json:
        print_json(found)
    elif not found["items"]:
        emit(console(), Text("No signals."))
    else:
        rows = [
            (
                printable(one["name"]),
                printable(one["id"]),
                f"{clock(one['receivedAt'])} UTC",
                one["status"],
                _taker(one),
            )
            for one in found["items"]
        ]
        emit(console(), table(("name", "id", "received", "status", "task"), rows))
    return DONE


def _taker(signal: Mapping[str, Any]) -> str:
    """`task`, or `task[item]` for a map."""
    task, item = signal["task"] or "", signal.get("item")
    return printable(task if item is None else f"{task}[{item}]")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (signal, signals):
        app.command()(command)
