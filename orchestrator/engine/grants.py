"""Stored grants: written by a tenant's administrators, read for each request that needs them.

The document `grants` of `tenant_docs`. A process remembers what it read for a second: that long a
grant that was taken away may still hold.
"""

from __future__ import annotations

from typing import Any, Final, cast

from pydantic import ValidationError

from orchestrator.domain import jsonvalues
from orchestrator.domain.authz import Grant, Principal
from orchestrator.domain.grant_model import GrantModel, GrantsModel
from orchestrator.engine import tenant_docs
from orchestrator.engine.core import Engine
from orchestrator.engine.remembered import Remembered
from orchestrator.engine.tenant_docs import Revised

KIND: Final = "grants"


class GrantsView(Revised):
    """A tenant's stored grants."""

    tenant: str
    grants: list[GrantModel]


class GrantBook:
    """One engine's memory of grants; see `Engine.part`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known = Remembered(engine, self._load)
        self.forget = self._known.forget
        self.close = self._known.close

    async def of(self, principal: Principal, tenant: str) -> list[Grant]:
        """What is stored for `principal` in `tenant`. Raises `Throttled`, `Unavailable`,
        `UnavailableError` (damaged): who may
        do what is then not known, so nothing is done."""
        entries = await self._known.of(tenant)
        return [entry.grant(tenant) for entry in entries if entry.is_for(principal)]

    async def _load(self, tenant: str) -> list[GrantModel]:
        found = await tenant_docs.find(self._engine, tenant, KIND)
        if found is None:
            return []
        return tenant_docs.readable(tenant, KIND, lambda: _grants(found.body))


async def show(engine: Engine, tenant: str) -> tuple[GrantsView, str]:
    """The grants, and their ETag. Raises `UnavailableError`: damaged."""
    return await tenant_docs.show(engine, tenant, _GRANTS)


async def put(
    engine: Engine, tenant: str, wanted: GrantsModel, *, if_match: str | None, by: str
) -> tuple[GrantsView, str]:
    """Replace all of them, as `tenant_docs.put` does."""
    entries = wanted.model_dump(mode="json", by_alias=True)["grants"]
    return await tenant_docs.put(engine, tenant, _GRANTS, entries, if_match=if_match, by=by)


def _hash(text: str) -> str:
    """Of the content; of what stands there if it is damaged."""
    try:
        return jsonvalues.body_hash(jsonvalues.loads(text))
    except ValueError:
        return jsonvalues.body_hash(text)


def _grants(body: dict[str, Any]) -> list[GrantModel]:
    """Those that can be read: what newer code wrote grants nothing here."""
    entries: Any = jsonvalues.loads(body["grants"])
    if not isinstance(entries, list):
        raise TypeError("the grants are no list")
    found: list[GrantModel] = []
    for entry in cast("list[Any]", entries):
        try:
            found.append(GrantModel.model_validate(entry))
        except ValidationError:
            continue
    return found


def _view(engine: Engine, tenant: str, body: dict[str, Any] | None) -> GrantsView:
    return GrantsView(
        tenant=tenant,
        grants=[] if body is None else _grants(body),
        **tenant_docs.revised(body),
    )


def _forget(engine: Engine, tenant: str) -> None:
    engine.part(GrantBook).forget(tenant)


_GRANTS: Final = tenant_docs.Kind(name=KIND, view=_view, forget=_forget, audited=_hash)
