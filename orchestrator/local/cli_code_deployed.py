"""`weft code list|publish`: the code workflows that a server has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer
from rich.console import RenderableType
from rich.text import Text

from orchestrator.local.cli_client import Client
from orchestrator.local.cli_faults import DONE, console, print_json, printable
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import emit, table
from orchestrator.local.cli_times import clock

PATH = "/v1/code-workflows"


class CodeClient(Client):
    """A `Client` that also knows code workflows."""

    def deployed(self) -> dict[str, Any]:
        """What is deployed, and what was recorded."""
        return self._call("GET", PATH)

    def record(self) -> dict[str, Any]:
        """Record what is deployed."""
        return self._call("POST", PATH)


def list_(url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """List the code workflows of a server, and their versions."""
    with CodeClient(url) as client:
        return _told(client.deployed(), as_json=as_json)


def publish(url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Record what is deployed now; refused if a version is gone that open executions need."""
    with CodeClient(url) as client:
        return _told(client.record(), as_json=as_json)


def register(group: typer.Typer) -> None:
    """Add the commands of this module."""
    group.command("list")(list_)
    group.command()(publish)


def _told(found: Mapping[str, Any], *, as_json: bool) -> int:
    if as_json:
        print_json(found)
    else:
        emit(console(), _listed(found))
    return DONE


def _listed(found: Mapping[str, Any]) -> RenderableType:
    if not found["items"]:
        return Text("No code workflows. `@code_workflow` makes one of a function.")
    rows = [
        (
            printable(item["name"]),
            str(item["version"]),
            Text("deployed", "green") if item["deployed"] else Text("gone", "red"),
            "yes" if item["published"] else "",
            printable(item["function"] or ""),
        )
        for item in found["items"]
    ]
    when = f"published {clock(found['publishedAt'])} UTC" if found["publishedAt"] else "published"
    return table(("workflow", "version", "status", when, "function"), rows)
