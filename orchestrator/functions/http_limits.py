"""A tenant's limits over HTTP: look at them and at what is used, replace them."""

from __future__ import annotations

from typing import Final

from orchestrator.domain.authz import Scope
from orchestrator.domain.tenant_limits import LimitsModel
from orchestrator.engine import usage
from orchestrator.engine.usage import LimitsUsed
from orchestrator.functions import etags, requests
from orchestrator.functions.http_routes import Answer, Body, Call, Reply, Routes
from orchestrator.functions.requests import JSON_TYPES

ROUTES: Final = Routes("Tenants")

EXAMPLE: Final = {"startsPerSecond": 20, "startsBurst": 100, "openExecutions": 5_000}


@ROUTES.add(
    "GET",
    "v1/tenants/{tenantId}/limits",
    scope=Scope.OPERATE,
    platform="too",
    summary="Show a tenant's limits",
    replies={
        200: Reply(
            description="The limits, and what is used of them",
            model=LimitsUsed,
            headers=etags.ANSWERED,
        )
    },
    errors=(404,),
)
async def get_limits(call: Call) -> Answer:
    """Those that were written for the tenant, those in force, and what is used now."""
    return etags.answer(await usage.show(await call.engine(), call.tenant))


@ROUTES.add(
    "PUT",
    "v1/tenants/{tenantId}/limits",
    scope=Scope.ADMIN,
    platform="only",
    summary="Replace a tenant's limits",
    headers=(etags.IF_MATCH,),
    body=Body(media=JSON_TYPES, schema=LimitsModel, example=EXAMPLE),
    replies={200: Reply(description="As they are now", model=LimitsUsed, headers=etags.ANSWERED)},
    errors=(404, 412, 413, 415, 422),
)
async def put_limits(call: Call) -> Answer:
    """All of them at once: what is left out has the platform's default, null is no limit. Only
    administrators of the platform may (its own tenant is a setting). They hold within a second,
    everywhere; what has been admitted goes on."""
    if_match = etags.if_match(call.req)
    wanted = await requests.model(call.req, LimitsModel)
    found = await usage.put(
        await call.engine(), call.tenant, wanted, if_match=if_match, by=call.principal.subject
    )
    return etags.answer(found)
