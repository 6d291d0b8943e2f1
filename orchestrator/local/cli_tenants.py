"""`weft tenants limits`: what a tenant may use, and what it uses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from orchestrator.domain.tenant_limits import Limit
from orchestrator.local import cli_egress, cli_grants
from orchestrator.local.cli_client import Client, segment
from orchestrator.local.cli_faults import DONE, console, print_json, printable, usage
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import emit, table
from orchestrator.local.cli_times import clock

tenants = typer.Typer(
    name="tenants", help="Tenants: what they may use of the platform.", no_args_is_help=True
)
limits = typer.Typer(
    name="limits", help="Limits of a tenant: look at them, set them.", no_args_is_help=True
)
tenants.add_typer(limits)
tenants.add_typer(cli_egress.egress)

Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="Name of the tenant.")]
DEFAULT = "default"
NONE = "none"
_USED = {
    Limit.BURST: "startsLeft",
    Limit.OPEN: "openExecutions",
    Limit.DEFINITIONS: "storedDefinitions",
    Limit.SCHEDULES: "schedules",
}


class LimitsClient(Client):
    """A `Client` that also knows limits."""

    def limits(self, tenant: str) -> dict[str, Any]:
        """The limits of a tenant."""
        return self._call("GET", _path(tenant))

    def put_limits(self, tenant: str, body: Mapping[str, Any], revision: int) -> dict[str, Any]:
        """Replace them, if they still have this revision."""
        headers = {"If-Match": f'"{revision}"'}
        return self._call("PUT", _path(tenant), json=dict(body), headers=headers)


def _path(tenant: str) -> str:
    return f"/v1/tenants/{segment(tenant, 'tenant')}/limits"


@limits.command()
def show(tenant: Tenant, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Show the limits in force, which of them are the tenant's own, and what is used."""
    with LimitsClient(url) as client:
        found = client.limits(tenant)
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
    wanted = {name: _number(name, text) for name, text in given.items() if text is not None}
    if not wanted:
        raise usage("Name at least one limit, such as --open-executions 500.")
    with LimitsClient(url) as client:
        before = client.limits(tenant)
        body = {name: value for name, value in before["limits"].items() if name not in wanted}
        body |= {name.value: value for name, value in wanted.items() if value != DEFAULT}
        found = client.put_limits(tenant, body, before["revision"])
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
        for part in _shown(found):
            emit(console(), part)


def _figure(value: float) -> str:
    """`52,428,800`, `0.5`."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,g}"


def _shown(found: Mapping[str, Any]) -> list[RenderableType]:
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
    parts: list[RenderableType] = [table(("limit", "allowed", "now", "from"), rows)]
    if found.get("updatedAt"):
        by = printable(found["updatedBy"])
        parts.append(Text(f"set by {by} at {clock(found['updatedAt'])} UTC", "dim"))
    return parts


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
