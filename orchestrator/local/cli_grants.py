"""`weft grants`: who may do what in a tenant, beside what tokens say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from orchestrator.domain.authz import ROLES, Scope
from orchestrator.local import cli_input
from orchestrator.local.cli_faults import DONE, console, print_json, printable, usage
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import emit, table
from orchestrator.local.cli_tenant_docs import Replace, Tenant, TenantDocs

grants = typer.Typer(
    name="grants",
    help="Stored grants of a tenant: who may do what, beside what tokens say.",
    no_args_is_help=True,
)

KIND = "grants"


@grants.command("list")
def list_(tenant: Tenant, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """List them, numbered."""
    with TenantDocs(url, KIND) as client:
        found = client.read(tenant)
    _tell(found, as_json=as_json)
    return DONE


@grants.command("set")
def set_(
    tenant: Tenant,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help='JSON, {"grants": […]}; `-` reads stdin.')
    ],
    replace: Replace = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Replace all of them by those of a file, as `list --json` prints them."""
    value = cli_input.json_value("-" if file == "-" else f"@{file}", "FILE")
    entries = value.get("grants") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        raise usage('The file must be an object with a list `grants`: {"grants": []}.')
    with TenantDocs(url, KIND) as client:
        found = client.change(tenant, lambda before: {"grants": entries}, replace=replace)
    _tell(found, as_json=as_json)
    return DONE


@grants.command()
def add(
    tenant: Tenant,
    subject: Annotated[
        list[str] | None, typer.Option(help="Who gets it; `*`: everybody of the tenant.")
    ] = None,
    group: Annotated[list[str] | None, typer.Option(help="Members of this group get it.")] = None,
    role: Annotated[str | None, typer.Option(help=f"One of {', '.join(ROLES)}.")] = None,
    scope: Annotated[list[Scope] | None, typer.Option(help="Instead of a role.")] = None,
    workflow: Annotated[
        list[str] | None, typer.Option(help="Only these; `*` for any characters.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only executions with it.")
    ] = None,
    own: Annotated[bool, typer.Option("--own", help="Only executions they started.")] = False,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="ISO 8601 with an offset.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="ISO 8601 with an offset.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Add one. All that narrows it must hold."""
    entry: dict[str, Any] = {
        "subjects": subject,
        "groups": group,
        "role": role,
        "scopes": [one.value for one in scope or ()],
        "workflows": workflow,
        "tags": cli_input.tags(tag or ()),
        "own": own,
        "notBefore": from_,
        "notAfter": until,
    }
    entry = {name: value for name, value in entry.items() if value}

    def wanted(before: Mapping[str, Any] | None) -> dict[str, Any]:
        return {"grants": [*(before["grants"] if before else ()), entry]}

    with TenantDocs(url, KIND) as client:
        found = client.change(tenant, wanted)
    _tell(found, as_json=as_json)
    return DONE


@grants.command()
def remove(
    tenant: Tenant,
    number: Annotated[
        int, typer.Argument(metavar="NUMBER", min=1, help="As `weft grants list` numbers them.")
    ],
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Remove one. Look at the list first: numbers move."""

    def wanted(before: Mapping[str, Any] | None) -> dict[str, Any]:
        entries = before["grants"] if before else ()
        if number > len(entries):
            raise usage(f"There is no grant {number}: the tenant has {len(entries)}.")
        return {"grants": [*entries[: number - 1], *entries[number:]]}

    with TenantDocs(url, KIND) as client:
        found = client.change(tenant, wanted)
    _tell(found, as_json=as_json)
    return DONE


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(grants)


def _tell(found: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        emit(console(), _listed(found["grants"]))


def _listed(entries: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not entries:
        return Text("No stored grants: only those of tokens hold.")
    rows = [
        (
            str(number),
            printable(", ".join([*entry["subjects"], *(f"group {g}" for g in entry["groups"])])),
            printable(entry["role"] or ", ".join(entry["scopes"])),
            printable(_narrowed(entry)),
        )
        for number, entry in enumerate(entries, 1)
    ]
    return table(("n", "who", "what", "only"), rows)


def _narrowed(entry: Mapping[str, Any]) -> str:
    parts = list(entry["workflows"])
    parts += [f"{name}={value}" for name, value in entry["tags"].items()]
    parts += ["own"] if entry["own"] else []
    parts += [f"from {entry['notBefore']}"] if entry["notBefore"] else []
    parts += [f"until {entry['notAfter']}"] if entry["notAfter"] else []
    return ", ".join(parts)
