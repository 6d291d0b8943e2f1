"""`weft tenants egress`: where a tenant's requests may go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from orchestrator.local.cli_client import Client, segment
from orchestrator.local.cli_faults import DONE, console, print_json, printable, usage
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import emit, table
from orchestrator.local.cli_times import clock

egress = typer.Typer(
    name="egress",
    help="Where a tenant's requests may go: look at the lists, set them.",
    no_args_is_help=True,
)

Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="Name of the tenant.")]
ANY = "any"
NONE = "none"


class EgressClient(Client):
    """A `Client` that also knows where requests may go."""

    def egress(self, tenant: str) -> dict[str, Any]:
        """The lists of a tenant."""
        return self._call("GET", _path(tenant))

    def put_egress(self, tenant: str, body: Mapping[str, Any], revision: int) -> dict[str, Any]:
        """Replace them, if they still have this revision."""
        headers = {"If-Match": f'"{revision}"'}
        return self._call("PUT", _path(tenant), json=dict(body), headers=headers)


def _path(tenant: str) -> str:
    return f"/v1/tenants/{segment(tenant, 'tenant')}/egress"


@egress.command()
def show(tenant: Tenant, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Show which hosts may be called, and which networks that are not public."""
    with EgressClient(url) as client:
        found = client.egress(tenant)
    _tell(found, as_json=as_json)
    return DONE


@egress.command("set")
def set_(
    tenant: Tenant,
    only_hosts: Annotated[
        str | None,
        typer.Option(
            "--only-hosts",
            metavar="HOST,…|any|none",
            help="No others are called; `*.example.com` for all below it.",
        ),
    ] = None,
    networks: Annotated[
        str | None,
        typer.Option(
            "--networks",
            metavar="NETWORK,…|none",
            help="May be reached although they are not public, such as 10.1.0.0/16.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Replace the lists that are given; the other stays. `any`: every public host.

    Only administrators of the platform may.
    """
    if only_hosts is None and networks is None:
        raise usage("Name a list, such as --only-hosts api.example.com or --networks none.")
    with EgressClient(url) as client:
        before = client.egress(tenant)
        hosts = before["onlyHosts"] if only_hosts is None else _hosts(only_hosts)
        body: dict[str, Any] = {} if hosts is None else {"onlyHosts": hosts}
        body["networks"] = before["networks"] if networks is None else _list(networks)
        found = client.put_egress(tenant, body, before["revision"])
    _tell(found, as_json=as_json)
    return DONE


def _hosts(text: str) -> list[str] | None:
    return None if text == ANY else _list(text)


def _list(text: str) -> list[str]:
    return [] if text == NONE else [one.strip() for one in text.split(",") if one.strip()]


def _tell(found: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    hosts = found["onlyHosts"]
    rows = [
        ("onlyHosts", "any" if hosts is None else _shown(hosts)),
        ("networks", _shown(found["networks"])),
    ]
    emit(console(), table(("list", "may be called"), rows))
    if found.get("updatedAt"):
        by = printable(found["updatedBy"])
        emit(console(), Text(f"set by {by} at {clock(found['updatedAt'])} UTC", "dim"))


def _shown(names: list[str]) -> str:
    return ", ".join(printable(name) for name in names) or "none"
