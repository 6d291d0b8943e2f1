"""`weft archive`: executions that were removed because they ended long ago."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import httpx
import typer
from rich.console import RenderableType
from rich.text import Text

from orchestrator.local.cli_client import SLOW, Client
from orchestrator.local.cli_faults import DONE, console, print_json, printable
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import clock, emit, table

archive = typer.Typer(
    name="archive",
    help="Executions that ended long ago: list, download, restore, remove for good.",
    no_args_is_help=True,
)
Id = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the archive, as `weft archive list` shows it.")
]
Reason = Annotated[str, typer.Option("--reason", help="Why; it stands in the audit.")]


class ArchiveClient(Client):
    """A `Client` that also knows the archive."""

    def archives(self, filters: Mapping[str, str], *, limit: int) -> dict[str, Any]:
        """At most `limit` archives, newest execution first, as one page."""
        return self._collect("/v1/archive", filters, limit)

    def archived(self, id: str) -> bytes:
        """The compressed text."""
        path = f"/v1/archive/{quote(id, safe='')}/content"
        response = self._answer("GET", path, timeout=SLOW)
        if response.is_success:
            return response.content
        raise self._refusal(response, _json(response))

    def restore(self, id: str, reason: str) -> dict[str, Any]:
        """Put the execution back; its view."""
        return self._call(
            "POST",
            f"/v1/archive/{quote(id, safe='')}/restore",
            json={"reason": reason},
            timeout=SLOW,
        )

    def remove_archive(self, id: str) -> None:
        """Remove it for good."""
        self._call("DELETE", f"/v1/archive/{quote(id, safe='')}")


@archive.command("list")
def list_(
    workflow: Annotated[str | None, typer.Option("--workflow", help="Only of this one.")] = None,
    execution: Annotated[str | None, typer.Option("--execution", help="Only this one.")] = None,
    status: Annotated[
        str | None, typer.Option("--status", help="COMPLETED, FAILED or CANCELLED.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 20,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """List archived executions, newest first. All filters given must hold."""
    given = {"workflow": workflow, "execution": execution, "status": status}
    filters = {name: text for name, text in given.items() if text is not None}
    with ArchiveClient(url) as client:
        page = client.archives(filters, limit=limit)
    if as_json:
        print_json(page)
    else:
        emit(console(), _listed(page["items"]))
    return DONE


@archive.command()
def download(
    id: Id,
    to: Annotated[
        Path | None, typer.Option("--output", "-o", help="File; left out: ID.ndjson.gz.")
    ] = None,
    url: Url = DEFAULT_URL,
) -> int:
    """Write an archive to a file: gzip, a line of JSON per document."""
    with ArchiveClient(url) as client:
        data = client.archived(id)
    target = to or Path(f"{id}.ndjson.gz")
    target.write_bytes(data)
    emit(console(), Text(f"{target}  {len(data)} bytes"))
    return DONE


@archive.command()
def restore(id: Id, reason: Reason = "", url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Put an archived execution back as it was."""
    with ArchiveClient(url) as client:
        view = client.restore(id, reason)
    if as_json:
        print_json(view)
    else:
        emit(console(), Text(f"restored: {printable(view['id'])}  {view['status']}"))
    return DONE


@archive.command()
def delete(
    id: Id,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Remove an archive for good, with the payloads it refers to."""
    if not yes:
        typer.confirm(f"Remove {id} for good?", abort=True)
    with ArchiveClient(url) as client:
        client.remove_archive(id)
    emit(console(), Text(f"removed: {printable(id)}"))
    return DONE


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(archive)


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _listed(items: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not items:
        return Text("No archives.")
    rows = [
        (
            printable(item["id"]),
            printable(item["workflow"]),
            item["status"],
            f"{clock(item['endedAt'])} UTC",
            f"{clock(item['archivedAt'])} UTC",
            str(item["bytes"]),
        )
        for item in items
    ]
    return table(("id", "workflow", "status", "ended", "archived", "bytes"), rows)
