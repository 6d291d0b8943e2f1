"""How much of its limits a tenant uses: for people, never for a decision."""

from __future__ import annotations

import asyncio
from typing import Final

from pydantic import Field

from orchestrator.domain.tenant_limits import LimitsModel
from orchestrator.engine import admission, open_executions, tenant_limits
from orchestrator.engine.core import Engine
from orchestrator.engine.start_tokens import StartTokens
from orchestrator.engine.tenant_limits import LimitBook, LimitsView
from orchestrator.engine.views import View

COUNTED: Final = 1_000_000
"""Nothing is counted beyond this."""


class Usage(View):
    """What is used now."""

    starts_left: int | None = Field(None, description="Starts that are possible now, at once")
    open_executions: int = Field(description="By the read model, which is a moment behind")
    stored_definitions: int
    schedules: int


class LimitsUsed(LimitsView):
    """A tenant's limits, and what it uses of them."""

    usage: Usage


async def show(engine: Engine, tenant: str) -> tuple[LimitsUsed, str]:
    """The limits with the usage, and their ETag. Raises what the store raises."""
    return await _with_usage(engine, tenant, await tenant_limits.show(engine, tenant))


async def put(
    engine: Engine, tenant: str, wanted: LimitsModel, *, if_match: str | None, by: str
) -> tuple[LimitsUsed, str]:
    """Replace the limits. Raises `PreconditionError`, `UnavailableError`, and what the store
    raises."""
    found = await tenant_limits.put(engine, tenant, wanted, if_match=if_match, by=by)
    return await _with_usage(engine, tenant, found)


async def _with_usage(
    engine: Engine, tenant: str, found: tuple[LimitsView, str]
) -> tuple[LimitsUsed, str]:
    limits = await engine.part(LimitBook).of(tenant)
    opened, definitions, schedules, left = await asyncio.gather(
        open_executions.count(engine, tenant, most=COUNTED),
        admission.stored_count(engine, tenant, "workflow", most=COUNTED),
        admission.stored_count(engine, tenant, "schedule", most=COUNTED),
        engine.part(StartTokens).left(tenant, limits),
    )
    usage = Usage(
        starts_left=left,
        open_executions=opened,
        stored_definitions=definitions,
        schedules=schedules,
    )
    return LimitsUsed(**dict(found[0]), usage=usage), found[1]
