"""Where a tenant's requests may go, over HTTP: look at the lists, replace them."""

from __future__ import annotations

from typing import Final

from orchestrator.domain.authz import Scope
from orchestrator.domain.egress import EgressModel
from orchestrator.engine import egress
from orchestrator.engine.egress import EgressView
from orchestrator.functions import etags, requests
from orchestrator.functions.http_routes import Answer, Body, Call, Reply, Routes
from orchestrator.functions.requests import JSON_TYPES

ROUTES: Final = Routes("Tenants")

EXAMPLE: Final = {"onlyHosts": ["api.example.com", "*.example.org"], "networks": ["10.1.0.0/16"]}


@ROUTES.add(
    "GET",
    "v1/tenants/{tenantId}/egress",
    scope=Scope.OPERATE,
    platform="too",
    summary="Show where a tenant's requests may go",
    replies={200: Reply(description="Both lists", model=EgressView, headers=etags.ANSWERED)},
    errors=(404,),
)
async def get_egress(call: Call) -> Answer:
    """What `http` tasks and webhooks of the tenant may call, and which networks that are not public
    they may reach beside those of the platform's settings."""
    return etags.answer(await egress.show(await call.engine(), call.tenant))


@ROUTES.add(
    "PUT",
    "v1/tenants/{tenantId}/egress",
    scope=Scope.ADMIN,
    platform="only",
    summary="Replace where a tenant's requests may go",
    headers=(etags.IF_MATCH,),
    body=Body(media=JSON_TYPES, schema=EgressModel, example=EXAMPLE),
    replies={200: Reply(description="As they are now", model=EgressView, headers=etags.ANSWERED)},
    errors=(404, 412, 413, 415, 422),
)
async def put_egress(call: Call) -> Answer:
    """Both lists at once; send `If-Match` with the ETag that was read. Only administrators of the
    platform may. They hold within a second, everywhere."""
    if_match = etags.if_match(call.req)
    wanted = await requests.model(call.req, EgressModel)
    found = await egress.put(
        await call.engine(), call.tenant, wanted, if_match=if_match, by=call.principal.subject
    )
    return etags.answer(found)
