"""Definitions over HTTP: publish, list, read, archive."""

from __future__ import annotations

from typing import Final

from orchestrator.domain.authz import Scope
from orchestrator.engine import catalog_reads, publishing
from orchestrator.engine.views import (
    Page,
    PublishResult,
    VersionSummary,
    VersionView,
    WorkflowSummary,
)
from orchestrator.functions import guards, http_params, requests
from orchestrator.functions.http_routes import Answer, Body, Call, Reply, Routes
from orchestrator.functions.requests import JSON_TYPES, YAML_TYPES, Param

ROUTES: Final = Routes("Definitions")

EXAMPLE: Final = {
    "name": "hello",
    "tasks": {"greet": {"type": "transform", "output": "${'Hello ' + input.name}"}},
}

_DRY_RUN: Final = Param(
    name="dryRun",
    description="Only validate; nothing is stored",
    schema={"type": "boolean", "default": False},
    read=http_params.boolean,
    default=False,
)


@ROUTES.add(
    "POST",
    "v1/workflows",
    scope=Scope.WRITE,
    checks=True,
    summary="Publish a definition",
    query=(_DRY_RUN,),
    body=Body(media=JSON_TYPES + YAML_TYPES, schema="WorkflowDefinition", example=EXAMPLE),
    replies={
        200: Reply(
            description="The latest version already has this content, or it was a dry run",
            model=PublishResult,
        ),
        201: Reply(
            description="A new version",
            model=PublishResult,
            headers={"Location": "Address of the new version"},
            example={"name": "hello", "version": 1, "created": True, "dryRun": False},
        ),
    },
    errors=(409, 413, 415, 422, 429),
)
async def publish_workflow(call: Call) -> Answer:
    """JSON or YAML. Every fault of the definition is listed, each with its path, a code and a hint.
    Published versions never change: other content becomes the next version."""
    source = await requests.document(call.req, JSON_TYPES + YAML_TYPES)
    await guards.may_publish(call.principal, source)
    engine = await call.engine()
    result = await publishing.publish(
        engine, call.tenant, source, dry_run=call.query["dryRun"], by=call.principal.subject
    )
    if not result.created:
        return Answer(body=result)
    where = f"/v1/workflows/{result.name}/versions/{result.version}"
    return Answer(body=result, status=201, headers={"location": where})


@ROUTES.add(
    "GET",
    "v1/workflows",
    scope=Scope.READ,
    checks=True,
    summary="List workflows",
    query=http_params.PAGING,
    replies={200: Reply(description="A page", model=Page[WorkflowSummary])},
)
async def list_workflows(call: Call) -> Answer:
    """In the order of their names."""
    items, after = await catalog_reads.workflows(
        await call.engine(), call.tenant, limit=call.query["limit"], after=call.after()
    )
    sight = await call.principal.sight(Scope.READ)
    return call.page([one for one in items if sight.of(one.name)], after, Page[WorkflowSummary])


@ROUTES.add(
    "GET",
    "v1/workflows/{name}",
    scope=Scope.READ,
    summary="Show a workflow",
    replies={200: Reply(description="The workflow", model=WorkflowSummary)},
    errors=(404,),
)
async def get_workflow(call: Call) -> Answer:
    """Its latest version's number and whether it is archived."""
    engine = await call.engine()
    return Answer(body=await catalog_reads.workflow(engine, call.tenant, call.path["name"]))


@ROUTES.add(
    "GET",
    "v1/workflows/{name}/versions",
    scope=Scope.READ,
    summary="List a workflow's versions",
    query=http_params.PAGING,
    replies={200: Reply(description="A page, oldest first", model=Page[VersionSummary])},
    errors=(404,),
)
async def list_versions(call: Call) -> Answer:
    """Every version that was published, with the hash of its content."""
    items, after = await catalog_reads.versions(
        await call.engine(),
        call.tenant,
        call.path["name"],
        limit=call.query["limit"],
        after=call.after(),
    )
    return call.page(items, after, Page[VersionSummary])


@ROUTES.add(
    "GET",
    "v1/workflows/{name}/versions/{n}",
    scope=Scope.READ,
    summary="Show a version with its definition",
    replies={200: Reply(description="The version", model=VersionView)},
    errors=(404,),
)
async def get_version(call: Call) -> Answer:
    """The definition as it was published."""
    view = await catalog_reads.version(
        await call.engine(), call.tenant, call.path["name"], call.path["n"]
    )
    return Answer(body=view)


@ROUTES.add(
    "DELETE",
    "v1/workflows/{name}",
    scope=Scope.WRITE,
    summary="Archive a workflow",
    replies={204: Reply(description="Archived")},
    errors=(404, 409),
)
async def archive_workflow(call: Call) -> Answer:
    """It can no longer be started. Its versions stay readable and what runs goes on."""
    await publishing.archive(
        await call.engine(), call.tenant, call.path["name"], by=call.principal.subject
    )
    return Answer(status=204)
