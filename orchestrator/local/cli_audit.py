"""`weft audit`: who changed what, and whether the record of it is whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from orchestrator.local.cli_client import SLOW, Client
from orchestrator.local.cli_faults import DONE, FAILED, console, print_json, printable
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import clock, emit, table

audit = typer.Typer(
    name="audit",
    help="Who changed what, when and why; and whether that record is whole.",
    no_args_is_help=True,
)
PART = 5_000
"""Records that one request checks."""


class AuditClient(Client):
    """A `Client` that also knows the audit."""

    def audit(self, filters: Mapping[str, str], *, limit: int) -> dict[str, Any]:
        """At most `limit` records, newest first, as one page."""
        return self._collect("/v1/audit", filters, limit)

    def verify_audit(self, start: int, known: str | None) -> dict[str, Any]:
        """What one part of the chain shows, an `AuditCheck`."""
        params = {"from": str(start), "limit": str(PART)}
        if known is not None:
            params["known"] = known
        return self._call("GET", "/v1/audit/verify", params=params, timeout=SLOW)


@audit.command("list")
def list_(
    action: Annotated[
        str | None, typer.Option("--action", help="Such as workflow.publish or cancel.")
    ] = None,
    resource: Annotated[
        str | None, typer.Option("--resource", help="As kind:name, such as schedule:nightly.")
    ] = None,
    execution: Annotated[
        str | None, typer.Option("--execution", help="Id of the execution concerned.")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="Person or program.")] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="ISO 8601 with an offset.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="ISO 8601 with an offset.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 20,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """List the records, newest first. All filters given must hold."""
    given = {
        "action": action,
        "resource": resource,
        "execution": execution,
        "by": by,
        "from": since,
        "to": until,
    }
    filters = {name: text for name, text in given.items() if text is not None}
    with AuditClient(url) as client:
        page = client.audit(filters, limit=limit)
    if as_json:
        print_json(page)
    else:
        emit(console(), _listed(page["items"]))
    return DONE


@audit.command()
def verify(
    known: Annotated[
        str | None,
        typer.Option("--known", metavar="N:HASH", help="As an earlier check printed it."),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Follow the chain from its first record to its head; exit code 1 if it is broken.

    Keep the number and the hash that it prints somewhere else: whoever could rewrite all of the
    audit cannot rewrite that.
    """
    checked, first, start = 0, None, 1
    with AuditClient(url) as client:
        while True:
            part = client.verify_audit(start, known)
            checked += part["checked"]
            first = part["first"] if first is None else first
            if part["next"] is None:
                break
            start = part["next"]
    whole = {**part, "checked": checked, "first": first}
    if as_json:
        print_json(whole)
    else:
        emit(console(), _verified(whole))
    return DONE if whole["ok"] else FAILED


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(audit)


def _listed(items: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not items:
        return Text("No records.")
    rows = [
        (
            str(item["n"]),
            f"{clock(item['at'])} UTC",
            printable(item["by"]),
            printable(item["action"]),
            printable(item["resource"]),
            printable(item["reason"]),
        )
        for item in items
    ]
    return table(("n", "at", "by", "action", "resource", "reason"), rows)


def _verified(found: Mapping[str, Any]) -> RenderableType:
    finding = found["finding"]
    if finding is not None:
        said = f"broken at record {finding['n']}  {finding['fault']}: {finding['message']}"
        return Text(printable(said), "bold red")
    if found["first"] is None:
        return Text("whole: no records")
    begins = "" if found["first"] == 1 else f" (those before {found['first']} have expired)"
    text = f"whole: {found['checked']} records{begins}\n{found['head']}:{found['headHash']}"
    return Text(printable(text))
