"""`weft code list|publish`: the code workflows that a server has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from orchestrator.local.cli_client import Client
from orchestrator.local.cli_faults import DONE, console, print_json, printable, usage
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

    def would_lose(self, versions: Mapping[str, list[int]]) -> dict[str, Any]:
        """Whether an app with these versions may take the server's place."""
        return self._call("POST", PATH, params={"dryRun": "true"}, json={"versions": versions})


def list_(url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """List the code workflows of a server, and their versions."""
    with CodeClient(url) as client:
        return _told(client.deployed(), as_json=as_json)


def publish(
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Before a deployment: hold the code that is here against what runs there.",
        ),
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Record what is deployed now; refused if a version is gone that something needs."""
    with CodeClient(url) as client:
        if not dry_run:
            return _told(client.record(), as_json=as_json)
        here = _here()
        found = client.would_lose(here)
    if as_json:
        print_json(found)
    else:
        count = sum(len(versions) for versions in here.values())
        emit(console(), Text(f"may be deployed: nothing needs more than the {count} versions here"))
    return DONE


def _here() -> dict[str, list[int]]:
    """Versions of the code workflows of this machine, by name."""
    from activities.code.registry import default_code_registry
    from activities.errors import RegistrationError
    from activities.registry import discover

    try:
        discover()
    except RegistrationError as error:
        raise usage(str(error)) from error
    registry = default_code_registry()
    return {name: list(registry.versions(name)) for name in sorted(registry.names())}


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
            printable(item["name"] + (" (Weft's own)" if item.get("builtIn") else "")),
            str(item["version"]),
            Text("deployed", "green") if item["deployed"] else Text("gone", "red"),
            "yes" if item["published"] else "",
            printable(item["function"] or ""),
        )
        for item in found["items"]
    ]
    when = f"published {clock(found['publishedAt'])} UTC" if found["publishedAt"] else "published"
    return table(("workflow", "version", "status", when, "function"), rows)
