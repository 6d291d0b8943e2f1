"""Stored grants: written by a tenant's administrators, read for each request that needs them.

Container `catalog`, partition (tenantId):

    grants    grants    all of the tenant's grants as JSON text, a revision, who wrote them last

One document, because they are changed together: an ETag then keeps two administrators from undoing
each other's work. A process remembers what it read for `REMEMBERED_MS`: that long a grant that was
taken away may still hold.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from orchestrator.domain import jsonvalues
from orchestrator.domain.authz import Grant, Principal
from orchestrator.domain.errors import PreconditionError, UnavailableError
from orchestrator.domain.grant_model import GrantModel, GrantsModel
from orchestrator.domain.topology import CATALOG, SCHEMA_VERSION
from orchestrator.engine import audit
from orchestrator.engine.core import Engine
from orchestrator.engine.lru import Lru
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views import Instant, View
from orchestrator.ports import Conflict, Document, NotFound, PreconditionFailed

ID: Final = "grants"
REMEMBERED_MS: Final = 1_000
REMEMBERED_TENANTS: Final = 500
CHANGE_ATTEMPTS: Final = 20


class GrantsView(View):
    """A tenant's stored grants."""

    tenant: str
    grants: list[GrantModel]
    revision: int = 0
    updated_at: Instant | None = None
    updated_by: str | None = None


@dataclass(frozen=True, slots=True)
class _Page:
    at: int
    grants: tuple[GrantModel, ...]


class GrantBook:
    """One engine's memory of grants; see `Engine.part`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: Lru[_Page] = Lru(REMEMBERED_TENANTS)
        self._reading: dict[str, asyncio.Task[_Page]] = {}

    async def of(self, principal: Principal, tenant: str) -> list[Grant]:
        """What is stored for `principal` in `tenant`. Raises `Throttled`, `Unavailable`: who may
        do what is then not known, so nothing is done."""
        page = self._known.get(tenant)
        # Not a plain difference: a wall clock that was set back must not keep old grants alive.
        if page is None or not 0 <= self._engine.clock.now() - page.at < REMEMBERED_MS:
            page = await self._read(tenant)
        return [entry.grant(tenant) for entry in page.grants if entry.is_for(principal)]

    def forget(self, tenant: str) -> None:
        """Read again next time."""
        self._known.drop(tenant)

    async def _read(self, tenant: str) -> _Page:
        """One read, shared by all who wait for it."""
        running = self._reading.get(tenant)
        if running is None:
            running = asyncio.create_task(self._load(tenant), name="read-grants")
            self._reading[tenant] = running
            running.add_done_callback(lambda _: self._reading.pop(tenant, None))
        return await asyncio.shield(running)

    async def _load(self, tenant: str) -> _Page:
        at = self._engine.clock.now()
        found = await _find(self._engine, tenant)
        page = _Page(at, () if found is None else tuple(_grants(found.body)))
        self._known.put(tenant, page)
        return page

    async def close(self) -> None:
        """Give up reads that run."""
        running = list(self._reading.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def show(engine: Engine, tenant: str) -> tuple[GrantsView, str]:
    """The grants, and their ETag."""
    found = await _find(engine, tenant)
    return _view(tenant, None if found is None else found.body)


async def put(
    engine: Engine, tenant: str, wanted: GrantsModel, *, if_match: str | None, by: str
) -> tuple[GrantsView, str]:
    """Replace all of them. `if_match`: the ETag that the caller knows, None or `*` for any. Raises
    `PreconditionError`."""
    text = jsonvalues.dumps(wanted.model_dump(mode="json", by_alias=True)["grants"]).decode()
    for _ in range(CHANGE_ATTEMPTS):
        found = await _find(engine, tenant)
        if if_match not in (None, "*", _etag(None if found is None else found.body)):
            raise PreconditionError(
                "the grants have changed since they were read; read them again",
            )
        if found is not None and found.body["grants"] == text:
            return _view(tenant, found.body)
        body = {
            "id": ID,
            "type": ID,
            "tenantId": tenant,
            "v": SCHEMA_VERSION,
            "grants": text,
            "revision": (found.body["revision"] if found else 0) + 1,
            "updatedAt": engine.clock.now(),
            "updatedBy": by,
        }
        try:
            if found is None:
                await patiently(engine, engine.store.create, CATALOG, (tenant,), body)
            else:
                await patiently(
                    engine, engine.store.replace, CATALOG, (tenant,), body, if_match=found.etag
                )
        except (Conflict, PreconditionFailed, NotFound, Unclear):
            continue  # somebody else, or our own write with its answer lost: the next round sees
        engine.part(GrantBook).forget(tenant)
        await audit.record(
            engine, tenant, action="grants.put", execution="", by=by, resource="grants:tenant"
        )
        return _view(tenant, body)
    raise UnavailableError("the grants are being changed by many at once; try again")


async def _find(engine: Engine, tenant: str) -> Document | None:
    found = await patiently(engine, engine.store.read_many, CATALOG, (tenant,), [ID])
    return found.get(ID)


def _grants(body: dict[str, Any]) -> list[GrantModel]:
    """Those that can be read: what newer code wrote grants nothing here."""
    entries: Any = jsonvalues.loads(body["grants"])
    found: list[GrantModel] = []
    for entry in entries:
        try:
            found.append(GrantModel.model_validate(entry))
        except ValidationError:
            continue
    return found


def _etag(body: dict[str, Any] | None) -> str:
    return str(0 if body is None else body["revision"])


def _view(tenant: str, body: dict[str, Any] | None) -> tuple[GrantsView, str]:
    if body is None:
        return GrantsView(tenant=tenant, grants=[]), _etag(None)
    view = GrantsView(
        tenant=tenant,
        grants=_grants(body),
        revision=body["revision"],
        updated_at=body["updatedAt"],
        updated_by=body["updatedBy"],
    )
    return view, _etag(body)
