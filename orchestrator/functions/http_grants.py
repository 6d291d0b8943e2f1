"""A tenant's stored grants over HTTP: look at them, replace them."""

from __future__ import annotations

from typing import Final

from orchestrator.domain.authz import Scope
from orchestrator.domain.grant_model import GrantsModel
from orchestrator.engine import grants
from orchestrator.engine.grants import GrantsView
from orchestrator.functions import etags, requests
from orchestrator.functions.http_routes import Answer, Body, Call, Reply, Routes
from orchestrator.functions.requests import JSON_TYPES

ROUTES: Final = Routes("Tenants")

EXAMPLE: Final = {
    "grants": [
        {"groups": ["billing-team"], "role": "operator", "workflows": ["billing-*"]},
        {"subjects": ["eve"], "scopes": ["workflow:operate"], "own": True},
        {"subjects": ["bob"], "role": "viewer", "notAfter": "2027-01-01T00:00:00Z"},
    ]
}


@ROUTES.add(
    "GET",
    "v1/tenants/{tenantId}/grants",
    scope=Scope.ADMIN,
    summary="Show a tenant's grants",
    replies={200: Reply(description="The grants", model=GrantsView, headers=etags.ANSWERED)},
    errors=(404,),
)
async def get_grants(call: Call) -> Answer:
    """Those that are stored here. What tokens carry comes on top."""
    return etags.answer(await grants.show(await call.engine(), call.tenant))


@ROUTES.add(
    "PUT",
    "v1/tenants/{tenantId}/grants",
    scope=Scope.ADMIN,
    summary="Replace a tenant's grants",
    headers=(etags.IF_MATCH,),
    body=Body(media=JSON_TYPES, schema=GrantsModel, example=EXAMPLE),
    replies={200: Reply(description="As they are now", model=GrantsView, headers=etags.ANSWERED)},
    errors=(404, 412, 413, 415, 422),
)
async def put_grants(call: Call) -> Answer:
    """All of them at once; send `If-Match` with the ETag that was read. They hold within a second,
    everywhere."""
    if_match = etags.if_match(call.req)
    wanted = await requests.model(call.req, GrantsModel)
    found = await grants.put(
        await call.engine(), call.tenant, wanted, if_match=if_match, by=call.principal.subject
    )
    return etags.answer(found)
