"""Executions over HTTP: start, list, follow, inspect."""

from __future__ import annotations

from typing import Final

from orchestrator.domain.authz import Resource, Scope
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.topology import MAX_MAP_ITEMS
from orchestrator.engine import catalog, inspect, submit, verify
from orchestrator.engine.inspect import ExecutionFilter
from orchestrator.engine.views import (
    ExecutionSummary,
    ExecutionView,
    Page,
    TaskSummary,
    TaskView,
    VerifyReport,
)
from orchestrator.functions import guards, http_params, listing, requests
from orchestrator.functions.http_routes import Answer, Call, Reply, Routes
from orchestrator.functions.http_shared import (
    BODY_ERRORS,
    KEY,
    json_body,
    start_replies,
    started,
)
from orchestrator.functions.requests import Param
from orchestrator.functions.start_request import StartRequest

ROUTES: Final = Routes("Executions", hub=True)

_TRACEPARENT: Final = Param(
    name="traceparent",
    description="W3C trace context; travels with the execution",
    schema={"type": "string"},
)
_STARTED: Final = {
    "id": "019ad1f0-7f2c-7c11-a6f1-0d8a5ec4f1b2",
    "workflow": "order-fulfilment",
    "version": 3,
    "status": "PENDING",
    "created": True,
    "links": {"self": "/v1/executions/019ad1f0-7f2c-7c11-a6f1-0d8a5ec4f1b2"},
}


@ROUTES.add(
    "POST",
    "v1/workflows/{name}/start",
    scope=Scope.EXECUTE,
    checks=True,
    summary="Start an execution",
    headers=(*KEY, _TRACEPARENT),
    body=json_body(
        StartRequest, {"input": {"orderId": "A-17", "lines": []}, "tags": {"region": "north"}}
    ),
    replies=start_replies(accepted="Accepted and stored durably", example=_STARTED),
    errors=(404, 409, *BODY_ERRORS, 429),
)
async def start_execution(call: Call) -> Answer:
    """Stores an execution and answers at once; follow it at its address. With an Idempotency-Key
    a repeated request starts nothing new, and the key with another body is refused (409)."""
    key = requests.idempotency_key(call.req)
    body = await requests.model(call.req, StartRequest)
    engine = await call.engine()
    name, who = call.path["name"], call.principal
    wish = Resource(tenant=call.tenant, workflow=name, tags=body.tags, owner=who.subject)
    await who.must(Scope.EXECUTE, wish, catalog.unknown(name))
    result = await submit.start(
        engine,
        call.tenant,
        name,
        body.input,
        key=key,
        version=body.version,
        tags=body.tags,
        traceparent=call.trace.parent,
        started_by=who.subject,
        priority=body.priority,
    )
    return started(result)


_FILTERS: Final = (
    http_params.enum_filter("status", "Only executions in this status", ExecutionStatus),
    http_params.text_filter(
        "workflow", "Only executions of this workflow", read=http_params.identifier
    ),
    http_params.text_filter(
        "tag", "Only executions with this tag, as name=value", "region=north", read=http_params.tag
    ),
    http_params.text_filter("owner", "Only executions that this person or program started"),
    http_params.text_filter(
        "parent", "Only executions that this execution started", read=http_params.identifier
    ),
    http_params.text_filter(
        "search",
        "Only executions whose id begins with this, or whose idempotency key is this",
        "019ad1f0",
    ),
    http_params.time_filter("createdAfter", "Only executions created at or after this time"),
    http_params.time_filter("createdBefore", "Only executions created before this time"),
)


@ROUTES.add(
    "GET",
    "v1/executions",
    scope=Scope.READ,
    checks=True,
    summary="List executions",
    query=(*_FILTERS, *http_params.PAGING),
    replies={200: Reply(description="A page, newest first", model=Page[ExecutionSummary])},
)
async def list_executions(call: Call) -> Answer:
    """Newest first. All filters given must hold. A cursor belongs to the filters it came with.
    Lists follow the executions by a moment: what was started or has ended just now may not show
    yet. An execution's own address is always up to date."""
    query = call.query
    wanted = ExecutionFilter(
        status=query["status"],
        workflow=query["workflow"],
        tag=query["tag"],
        owner=query["owner"],
        parent=query["parent"],
        search=query["search"],
        created_after=query["createdAfter"],
        created_before=query["createdBefore"],
    )
    sight = await call.principal.sight(Scope.READ)
    narrowed = listing.narrowed(wanted, sight.narrowing())
    if narrowed is None:
        return call.page([], None, Page[ExecutionSummary])
    items, after = await inspect.executions(
        await call.engine(), call.tenant, narrowed, limit=query["limit"], after=call.after()
    )
    seen = [one for one in items if sight.of(one.workflow, one.tags, one.started_by)]
    return call.page(seen, after, Page[ExecutionSummary])


@ROUTES.add(
    "GET",
    "v1/executions/{id}",
    scope=Scope.READ,
    summary="Show an execution",
    query=(
        Param(
            name="wait",
            description="Answer when it has ended, or after this time (at most 200s)",
            schema={"type": "string", "default": "0s"},
            read=http_params.wait,
            default=0,
            example="30s",
        ),
    ),
    replies={200: Reply(description="The execution as it is now", model=ExecutionView)},
    errors=(404,),
)
async def get_execution(call: Call) -> Answer:
    """With input, output and error. `wait` makes it a long poll."""
    view = await inspect.execution(
        await call.engine(),
        call.tenant,
        call.path["id"],
        wait_ms=call.query["wait"],
        reveal=guards.reveals(call.principal),
    )
    return Answer(body=view)


@ROUTES.add(
    "GET",
    "v1/executions/{id}/tasks",
    scope=Scope.READ,
    summary="List an execution's tasks",
    query=http_params.PAGING,
    replies={200: Reply(description="A page", model=Page[TaskSummary])},
    errors=(404,),
)
async def list_tasks(call: Call) -> Answer:
    """In the order of the definition."""
    items, after = await inspect.tasks(
        await call.engine(),
        call.tenant,
        call.path["id"],
        limit=call.query["limit"],
        after=call.after(int),
    )
    return call.page(items, after, Page[TaskSummary])


@ROUTES.add(
    "GET",
    "v1/executions/{id}/tasks/{taskId}",
    scope=Scope.READ,
    summary="Show a task",
    query=(
        Param(
            name="item",
            description="Of a map: the item with this index, from 0",
            schema={"type": "integer", "minimum": 0, "maximum": MAX_MAP_ITEMS - 1},
            read=http_params.integer(0, MAX_MAP_ITEMS - 1),
        ),
    ),
    replies={200: Reply(description="The task", model=TaskView)},
    errors=(404,),
)
async def get_task(call: Call) -> Answer:
    """With its attempts, the retry policy in force, who works on it now, and its output."""
    view = await inspect.task(
        await call.engine(),
        call.tenant,
        call.path["id"],
        call.path["taskId"],
        item=call.query["item"],
        reveal=guards.reveals(call.principal),
    )
    return Answer(body=view)


@ROUTES.add(
    "GET",
    "v1/executions/{id}/verify",
    scope=Scope.READ,
    summary="Check an execution's history",
    replies={200: Reply(description="What was found", model=VerifyReport)},
    errors=(404,),
)
async def verify_execution(call: Call) -> Answer:
    """Folds the history and compares the result with the stored state."""
    return Answer(body=await verify.verify(await call.engine(), call.tenant, call.path["id"]))
