"""`weft events`: send events to a platform, as other systems do."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from orchestrator.domain.published import STRUCTURED
from orchestrator.local import cli_input
from orchestrator.local.cli_client import Client
from orchestrator.local.cli_faults import DONE, FAILED, console, print_json, printable
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import emit

events = typer.Typer(name="events", help="Send events.", no_args_is_help=True)


@events.callback()
def _group() -> None:
    """With one command only, its name would be left out."""


@events.command()
def send(
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="A CloudEvent, or a list of them, JSON.")
    ],
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Send CloudEvents; each trigger that matches starts one execution per event. Sending again
    starts nothing twice. Exit 1 if one is refused or becomes a dead letter."""
    source = cli_input.read_file(file)
    many = source.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    kind = "application/cloudevents-batch+json" if many else STRUCTURED
    with Client(url) as client:
        found = client.send_events(source, content_type=kind)
    if as_json:
        print_json(found)
    else:
        for item in found["items"]:
            emit(console(), _line(item))
    bad = any(item["error"] or item["deadLetters"] for item in found["items"])
    return FAILED if bad else DONE


def _line(item: dict[str, Any]) -> Text:
    if item["error"]:
        return Text("refused: ", "red").append(printable(item["error"]["message"]), "default")
    line = Text(printable(item["id"]), "bold")
    if item["unmatched"]:
        line.append("  no trigger matches", "dim")
    for execution in item["executions"]:
        line.append(f"  execution {printable(execution)}", "default")
    for letter in item["deadLetters"]:
        line.append(f"  dead letter {printable(letter)}", "red")
    return line


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(events)
