"""A tenant's limits: what was written for it, over the platform's defaults.

The document `limits` of `tenant_docs`. A process remembers what it read for a second. Trouble in
reading it refuses nobody: the limits that were known last hold, or else the defaults. What a
limit protects is the platform's health, and an admission that waits for a sick store would be an
outage of its own; the store's own refusals stay what they are.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from pydantic import Field

from orchestrator.domain import jsonvalues, tenant_limits
from orchestrator.domain.tenant_limits import LimitsModel, TenantLimits
from orchestrator.domain.topology import CATALOG
from orchestrator.engine import tenant_docs
from orchestrator.engine.core import Engine
from orchestrator.engine.remembered import Remembered
from orchestrator.engine.tenant_docs import Revised
from orchestrator.ports import StoreError

log = logging.getLogger(__name__)

KIND: Final = "limits"


class LimitsView(Revised):
    """A tenant's limits."""

    tenant: str
    limits: dict[str, float | None] = Field(description="Written for this tenant; PUT replaces")
    effective: dict[str, float | None] = Field(
        description="In force: with the platform's defaults; null: no limit"
    )


class LimitBook:
    """One engine's memory of limits; see `Engine.part`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known = Remembered(engine, self._load)
        self.forget = self._known.forget
        self.close = self._known.close

    async def of(self, tenant: str) -> TenantLimits:
        """The limits in force, at most a second old. Never raises."""
        return await self._known.of(tenant)

    async def _load(self, tenant: str) -> TenantLimits:
        engine = self._engine
        try:
            # Not patiently: whoever is being admitted must not wait for a number.
            async with asyncio.timeout(engine.tunables.fast_path_ms / 1000):
                found = (await engine.store.read_many(CATALOG, (tenant,), [KIND])).get(KIND)
            return in_force(engine, None if found is None else found.body)
        except (StoreError, TimeoutError, KeyError, ValueError, TypeError) as error:
            engine.metrics.count("weft_limits_trouble_total")
            log.warning(
                "limits not read, those known last hold: %s",
                type(error).__name__,
                extra={"action": "limits.not_read", "tenant": tenant},
            )
            known = self._known.last(tenant)
            return engine.tunables.limits if known is None else known


async def show(engine: Engine, tenant: str) -> tuple[LimitsView, str]:
    """The limits, and their ETag. Raises `UnavailableError`: damaged."""
    return await tenant_docs.show(engine, tenant, _LIMITS)


async def put(
    engine: Engine, tenant: str, wanted: LimitsModel, *, if_match: str | None, by: str
) -> tuple[LimitsView, str]:
    """Replace all of them, as `tenant_docs.put` does."""
    return await tenant_docs.put(engine, tenant, _LIMITS, wanted.stored(), if_match=if_match, by=by)


def in_force(engine: Engine, body: dict[str, Any] | None) -> TenantLimits:
    """The limits of a document (None: there is none) over the platform's defaults."""
    return _read(body).over(engine.tunables.limits)


def _read(body: dict[str, Any] | None) -> LimitsModel:
    return LimitsModel.model_validate({}) if body is None else tenant_limits.read(_content(body))


def _content(body: dict[str, Any]) -> dict[str, Any]:
    found: Any = jsonvalues.loads(body[KIND])
    return found


def _view(engine: Engine, tenant: str, body: dict[str, Any] | None) -> LimitsView:
    return LimitsView(
        tenant=tenant,
        limits=_read(body).stored(),
        effective=in_force(engine, body).shown(),
        **tenant_docs.revised(body),
    )


def _forget(engine: Engine, tenant: str) -> None:
    engine.part(LimitBook).forget(tenant)


_LIMITS: Final = tenant_docs.Kind(name=KIND, view=_view, forget=_forget)
