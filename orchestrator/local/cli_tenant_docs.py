"""What is stored for a tenant and replaced as a whole (limits, egress lists, grants): read it,
change it, write it back under the ETag that was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from orchestrator.local.cli_client import Client, segment
from orchestrator.local.cli_faults import console, printable
from orchestrator.local.cli_render import emit
from orchestrator.local.cli_times import clock

Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="Name of the tenant.")]
Replace = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="Replace all of it unread, also what cannot be read because it is damaged.",
    ),
]
UNREAD: Final = "*"


class TenantDocs(Client):
    """A `Client` that also knows one kind of them."""

    def __init__(self, url: str, kind: str) -> None:
        super().__init__(url)
        self._kind = kind

    def read(self, tenant: str) -> dict[str, Any]:
        """As it is."""
        return self._call("GET", self._path(tenant))

    def change(
        self,
        tenant: str,
        wanted: Callable[[Mapping[str, Any] | None], Mapping[str, Any]],
        *,
        replace: bool = False,
    ) -> dict[str, Any]:
        """Write what `wanted` makes of what is there, if nobody was faster; with `replace` it is
        asked with None, and whatever is there goes."""
        before = None if replace else self.read(tenant)
        match = UNREAD if before is None else f'"{before["revision"]}"'
        body = dict(wanted(before))
        return self._call("PUT", self._path(tenant), json=body, headers={"If-Match": match})

    def _path(self, tenant: str) -> str:
        return f"/v1/tenants/{segment(tenant, 'tenant')}/{self._kind}"


def tell_writer(found: Mapping[str, Any]) -> None:
    """Who wrote it last, if it was written."""
    if found.get("updatedAt"):
        by = printable(found["updatedBy"])
        emit(console(), Text(f"set by {by} at {clock(found['updatedAt'])} UTC", "dim"))
