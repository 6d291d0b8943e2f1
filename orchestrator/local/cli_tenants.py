"""`weft tenants limits`: what a tenant may use, and what it uses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from orchestrator.domain.tenant_limits import Limit
from orchestrator.local import cli_egress, cli_grants
from orchestrator.local.cli_faults import DONE, console, print_json, printable, usage
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import emit, table
from orchestrator.local.cli_tenant_docs import Replace, Tenant, TenantDocs, tell_writer

tenants = typer.Typer(
    name="tenants", help="Tenants: what they may use of the platform.", no_args_is_help=True
)
limits = typer.Typer(
    name="limits", help="Limits of a tenant: look at them, set them.", no_args_is_help=True
)
tenants.add_typer(limits)
tenants.add_typer(cli_egress.egress)

KIND = "limits"
DEFAULT = "default"
NONE = "none"
_USED = {
    Limit.BURST: "startsLeft",
    Limit.OPEN: "openExecutions",
    Limit.DEFINITIONS: "storedDefinitions",
    Limit.SCHEDULES: "schedules",
}


@limits.command()
def show(tenant: Tenant, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Show the limits in force, which of them are the tenant's own, and what is used."""
    with TenantDocs(url, KIND) as client:
        found = client.read(tenant)
    _tell(found, as_json=as_json)
    return DONE


def _option(name: str, help: str) -> Any:
    return typer.Option(name, metavar="N|none|default", help=help)


@limits.command("set")
def set_(
    tenant: Tenant,
    starts_per_second: Annotated[
        str | None, _option("--starts-per-second", "Starts per second in the long run.")
    ] = None,
    starts_burst: Annotated[str | None, _option("--starts-burst", "Starts at once.")] = None,
    open_executions: Annotated[
        str | None, _option("--open-executions", "Executions that have not ended.")
    ] = None,
    concurrent_tasks: Annotated[
        str | None, _option("--concurrent-tasks", "Tasks that run at the same time.")
    ] = None,
    stored_definitions: Annotated[
        str | None, _option("--stored-definitions", "Workflows, archived ones too.")
    ] = None,
    payload_bytes: Annotated[
        str | None, _option("--payload-bytes", "JSON of an input, signal, event or output.")
    ] = None,
    schedules: Annotated[str | None, _option("--schedules", "Schedules.")] = None,
    replace: Replace = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Set the limits that are given; the others stay. `none`: no limit. `default`: the platform's.

    Only administrators of the platform may.
    """
    given = {
        Limit.STARTS: starts_per_second,
        Limit.BURST: starts_burst,
        Limit.OPEN: open_executions,
        Limit.TASKS: concurrent_tasks,
        Limit.DEFINITIONS: stored_definitions,
        Limit.PAYLOAD: payload_bytes,
        Limit.SCHEDULES: schedules,
    }
    named = {name: _number(name, text) for name, text in given.items() if text is not None}
    if not named:
        raise usage("Name at least one limit, such as --open-executions 500.")

    def wanted(before: Mapping[str, Any] | None) -> dict[str, Any]:
        known: Mapping[str, Any] = before["limits"] if before else {}
        body = {name: value for name, value in known.items() if name not in named}
        return body | {name.value: value for name, value in named.items() if value != DEFAULT}

    with TenantDocs(url, KIND) as client:
        found = client.change(tenant, wanted, replace=replace)
    _tell(found, as_json=as_json)
    return DONE


def _number(name: Limit, text: str) -> float | str | None:
    if text == DEFAULT:
        return DEFAULT
    if text == NONE:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise usage(f"{name.value}: {text!r} is no number, `none` or `default`.")
    return number


def _tell(found: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        emit(console(), _shown(found))
        tell_writer(found)


def _figure(value: float) -> str:
    """`52,428,800`, `0.5`."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,g}"


def _shown(found: Mapping[str, Any]) -> RenderableType:
    usage_ = found["usage"]
    rows = [
        (
            printable(name),
            "no limit" if value is None else _figure(value),
            _used(name, usage_),
            "own" if name in found["limits"] else "default",
        )
        for name, value in found["effective"].items()
    ]
    return table(("limit", "allowed", "now", "from"), rows)


def _used(name: str, used: Mapping[str, Any]) -> str:
    field = next((field for limit, field in _USED.items() if limit == name), None)
    value = None if field is None else used.get(field)
    if value is None:
        return ""
    return f"{value} left" if name == Limit.BURST else str(value)


def register(app: typer.Typer) -> None:
    """Add the commands about tenants."""
    app.add_typer(tenants)
    cli_grants.register(app)
