"""Code workflows over HTTP: see which there are, and record what was deployed."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.domain.authz import Scope
from orchestrator.domain.errors import ErrorDetail, InvalidError
from orchestrator.engine import code_catalog, code_publish
from orchestrator.engine.views_code import CodeWorkflowsView
from orchestrator.functions import http_params, requests
from orchestrator.functions.http_routes import Answer, Body, Call, Reply, Routes
from orchestrator.functions.requests import JSON_TYPES, Param

ROUTES: Final = Routes("Code workflows", hub=True)
DRY_RUN: Final = Param(
    name="dryRun",
    description="Only check; record nothing",
    schema={"type": "boolean", "default": False},
    read=http_params.boolean,
    default=False,
    example=True,
)


class CodeDeployment(BaseModel):
    """What the app has that is to be deployed. For `dryRun` only."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    versions: dict[str, list[int]] | None = Field(
        None, description="Versions of its code workflows, by name", max_length=10_000
    )


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
    query=(DRY_RUN,),
    body=Body(
        media=JSON_TYPES,
        schema=CodeDeployment,
        required=False,
        example={"versions": {"order": [2, 3]}},
    ),
    replies={200: Reply(description="They are recorded, or may be", model=CodeWorkflowsView)},
    errors=(409, 413, 415, 422),
)
async def publish_code_workflows(call: Call) -> Answer:
    """Call it after a deployment, as an administrator of the platform; and before it with `dryRun`
    and the `versions` of the app that is to be deployed. A version that is gone, or would be, is
    refused while something needs it (409 `CODE_VERSION_IN_USE`, with every version and tenant):
    open executions, running children of code workflows, schedules. The same request again has no
    further effect."""
    given = await requests.model(call.req, CodeDeployment)
    dry_run: bool = call.query["dryRun"]
    if given.versions is not None and not dry_run:
        raise InvalidError(
            "versions are taken with dryRun=true only: what is recorded is what is deployed",
            code="INVALID_BODY",
            details=[ErrorDetail("$.versions", "leave it out, or add ?dryRun=true")],
        )
    view = await code_publish.publish(
        await call.engine(),
        tenant=call.tenant,
        by=call.principal.subject,
        dry_run=dry_run,
        versions=given.versions,
    )
    return Answer(body=view)
