"""`weft tenants egress`: where a tenant's requests may go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from orchestrator.local.cli_faults import DONE, console, print_json, printable, usage
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import emit, table
from orchestrator.local.cli_tenant_docs import Replace, Tenant, TenantDocs, tell_writer

egress = typer.Typer(
    name="egress",
    help="Where a tenant's requests may go: look at the lists, set them.",
    no_args_is_help=True,
)

KIND = "egress"
ANY = "any"
NONE = "none"


@egress.command()
def show(tenant: Tenant, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Show which hosts may be called, and which networks that are not public."""
    with TenantDocs(url, KIND) as client:
        found = client.read(tenant)
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
    replace: Replace = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Replace the lists that are given; the other stays. `any`: every public host.

    Only administrators of the platform may.
    """
    if only_hosts is None and networks is None:
        raise usage("Name a list, such as --only-hosts api.example.com or --networks none.")
    if replace and (only_hosts is None or networks is None):
        # What cannot be read may have narrowed: it is not opened by being left out.
        raise usage("With --replace, name both: --only-hosts and --networks.")

    def wanted(before: Mapping[str, Any] | None) -> dict[str, Any]:
        known = before or {}
        hosts = known["onlyHosts"] if only_hosts is None else _hosts(only_hosts)
        body: dict[str, Any] = {} if hosts is None else {"onlyHosts": hosts}
        body["networks"] = known["networks"] if networks is None else _list(networks)
        return body

    with TenantDocs(url, KIND) as client:
        found = client.change(tenant, wanted, replace=replace)
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
    tell_writer(found)


def _shown(names: list[str]) -> str:
    return ", ".join(printable(name) for name in names) or "none"
