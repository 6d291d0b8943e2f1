"""`weft workflows`: what is published, in which versions; archiving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.local.cli_client import Client, segment
from orchestrator.local.cli_faults import DONE, console, print_json, printable
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import emit, table, value_text
from orchestrator.local.cli_times import clock

workflows = typer.Typer(
    name="workflows",
    help="What is published: list it, look at it, archive it.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the workflow.")]


class WorkflowsClient(Client):
    """A `Client` that also knows what is published."""

    def workflows(self, *, limit: int) -> dict[str, Any]:
        """At most `limit` workflows, by name, as one page."""
        return self._collect("/v1/workflows", {}, limit)

    def workflow(self, name: str) -> dict[str, Any]:
        """One workflow: its latest version, and whether it is archived."""
        return self._call("GET", _workflow(name))

    def versions(self, name: str) -> dict[str, Any]:
        """All its versions, oldest first, as one page."""
        return self._collect(f"{_workflow(name)}/versions", {}, None)

    def version(self, name: str, version: int) -> dict[str, Any]:
        """One version with its definition."""
        return self._call("GET", f"{_workflow(name)}/versions/{version}")

    def archive(self, name: str) -> None:
        """Let it be started no more."""
        self._call("DELETE", _workflow(name))


def _workflow(name: str) -> str:
    return f"/v1/workflows/{segment(name, 'workflow name')}"


@workflows.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 100,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """List workflows by name."""
    with WorkflowsClient(url) as client:
        page = client.workflows(limit=limit)
    if as_json:
        print_json(page)
        return DONE
    out = console()
    emit(out, _listed(page["items"]))
    if page["nextCursor"]:
        emit(out, Text("There may be more; see --limit.", "dim"))
    return DONE


@workflows.command()
def show(
    name: Name,
    version: Annotated[
        int | None, typer.Option(min=1, help="Print the definition of this version.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Show a workflow and its versions; with --version, that version's definition as JSON."""
    with WorkflowsClient(url) as client:
        if version is not None:
            found = client.version(name, version)
            print_json(found if as_json else found["definition"])
            return DONE
        found = client.workflow(name)
        versions = client.versions(name)["items"]
    if as_json:
        print_json({**found, "versions": versions})
    else:
        emit(console(), _shown(found, versions))
    return DONE


@workflows.command()
def archive(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Let a workflow be started no more. What runs goes on; publishing takes it up again."""
    with WorkflowsClient(url) as client:
        client.archive(name)
    if as_json:
        print_json({"name": name, "archived": True})
    else:
        emit(console(), Text(printable(f"archived {name}")))
    return DONE


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(workflows)


def _status(item: Mapping[str, Any]) -> Text:
    if item.get("kind") == "code":
        return Text("code", "green")
    return Text("archived", "yellow") if item["archived"] else Text("active", "green")


def _listed(items: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not items:
        return Text("No workflows. `weft publish FILE` publishes one.")
    rows = [
        (
            printable(item["name"]),
            str(item["latestVersion"]),
            _status(item),
            clock(item["updatedAt"]),
            value_text(item["description"], full=False)[1:-1],
        )
        for item in items
    ]
    return table(("workflow", "version", "status", "changed (UTC)", "description"), rows)


def _shown(found: Mapping[str, Any], versions: Sequence[Mapping[str, Any]]) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    grid.add_row("workflow", Text(printable(found["name"]), "bold"))
    grid.add_row("status", _status(found))
    if found["description"]:
        grid.add_row("description", printable(found["description"]))
    rows = [
        (str(one["version"]), clock(one["publishedAt"]), printable(one["publishedBy"]), one["hash"])
        for one in reversed(versions)
    ]
    return Group(grid, Text(""), table(("version", "published (UTC)", "by", "content"), rows))
