"""Code workflows over HTTP: see which there are, and record what was deployed."""

from __future__ import annotations

from typing import Final

from orchestrator.domain.authz import Scope
from orchestrator.engine import code_catalog
from orchestrator.engine.views_code import CodeWorkflowsView
from orchestrator.functions.http_routes import Answer, Call, Reply, Routes

ROUTES: Final = Routes("Code workflows")


@ROUTES.add(
    "GET",
    "v1/code-workflows",
    scope=Scope.READ,
    summary="List code workflows",
    replies={200: Reply(description="Every version", model=CodeWorkflowsView)},
)
async def list_code_workflows(call: Call) -> Answer:
    """Orchestrations of Durable Functions that are deployed with the app, by name and version, and
    those that were when somebody last published. Start one like any workflow."""
    return Answer(body=await code_catalog.deployed(await call.engine()))


@ROUTES.add(
    "POST",
    "v1/code-workflows",
    scope=Scope.ADMIN,
    platform="only",
    summary="Record which code workflows are deployed",
    replies={200: Reply(description="They are recorded", model=CodeWorkflowsView)},
    errors=(409,),
)
async def publish_code_workflows(call: Call) -> Answer:
    """Call it after a deployment, as an administrator of the platform. A version that was recorded
    and is gone, although executions of it are open, is refused (409 `CODE_VERSION_IN_USE`, with
    every version and tenant): they could not go on. The same request again has no further
    effect."""
    view = await code_catalog.publish(
        await call.engine(), tenant=call.tenant, by=call.principal.subject
    )
    return Answer(body=view)
