"""Bulk operations that run on their own: submitted here, followed as executions."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import azure.functions as func
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from orchestrator.domain.authz import Scope
from orchestrator.domain.status import ExecutionStatus
from orchestrator.engine import bulk
from orchestrator.engine.bulk import Target
from orchestrator.engine.control import MAX_REASON_CHARS
from orchestrator.functions import http_params, listing, requests
from orchestrator.functions.http_routes import Answer, Call, Routes
from orchestrator.functions.http_shared import (
    BODY_ERRORS,
    KEY,
    json_body,
    start_replies,
    started,
)
from orchestrator.functions.requests import Param

ROUTES: Final = Routes("Bulk operations", hub=True)
MAX_LIMIT: Final = 1_000_000
CONFIG: Final = ConfigDict(
    extra="forbid", strict=True, frozen=True, alias_generator=to_camel, populate_by_name=True
)
ASYNC: Final = "respond-async"
PREFER: Final = Param(
    name="Prefer",
    description=f"`{ASYNC}`: answer at once, and do it as a bulk operation of its own",
    schema={"type": "string"},
    example=ASYNC,
)
ACCEPTED: Final = start_replies(accepted="Accepted; the execution shows how far it is")


def _instant(value: Any) -> Any:
    if value is None:
        return None
    return http_params.instant(value if isinstance(value, str) else "")  # a number is no time


Time = Annotated[
    int | None,
    BeforeValidator(_instant),
    Field(json_schema_extra={"type": "string", "format": "date-time"}),
]


def _status(value: Any) -> Any:
    return None if value is None else http_params.choice(ExecutionStatus)(value)


Status = Annotated[ExecutionStatus | None, BeforeValidator(_status)]


def _tag(value: Any) -> Any:
    if value is not None:
        http_params.tag(value if isinstance(value, str) else "")
    return value


class ExecutionsFilter(BaseModel):
    """Which executions, as in their list; all that is given must hold."""

    model_config = CONFIG

    status: Status = None
    workflow: str | None = None
    tag: Annotated[str | None, BeforeValidator(_tag)] = Field(None, description="name=value")
    owner: str | None = None
    parent: str | None = None
    search: str | None = None
    created_after: Time = None
    created_before: Time = None

    @model_validator(mode="after")
    def _narrow(self) -> ExecutionsFilter:
        if all(value is None for value in self.model_dump().values()):
            raise ValueError("must say which: name a status, or another condition")
        return self


class ExecutionsRequest(BaseModel):
    """What to do, to which, and why."""

    model_config = CONFIG

    action: Literal["cancel", "pause", "resume", "retry", "terminate"]
    filter: ExecutionsFilter
    reason: str = Field("", max_length=MAX_REASON_CHARS)
    compensate: bool = Field(False, description="For cancel: undo what has completed")
    limit: int | None = Field(None, ge=1, le=MAX_LIMIT, description="Left out: all of them")

    @model_validator(mode="after")
    def _compensates(self) -> ExecutionsRequest:
        if self.compensate and self.action != "cancel":
            raise ValueError("`compensate` is for the action cancel; leave it out")
        return self


@ROUTES.add(
    "POST",
    "v1/executions/bulk",
    scope=Scope.OPERATE,
    checks=True,
    summary="Pause, resume, cancel, terminate or retry many executions",
    headers=KEY,
    body=json_body(
        ExecutionsRequest,
        {
            "action": "cancel",
            "filter": {"workflow": "order-fulfilment", "status": "RUNNING"},
            "reason": "wrong prices",
        },
        required=True,
    ),
    replies=ACCEPTED,
    errors=(400, 409, *BODY_ERRORS),
)
async def bulk_executions(call: Call) -> Answer:
    """Does the same to all executions that the filter finds, newest first, as an execution of
    `weft-bulk`: its `orchestration.customStatus` says how far it is, its output what was done and
    what was refused. Without a status in the filter, those are left out that the action has no
    business with. Whether the caller may is asked now, not again for each. Cancelled, it stops
    after the part that it is doing."""
    body = await requests.model(call.req, ExecutionsRequest)
    engine = await call.engine()
    await listing.may_operate(call.principal, body.filter.workflow)
    given = body.model_dump(mode="json", by_alias=True, exclude_none=True)
    if not body.compensate:
        del given["compensate"]
    return await submitted(call, engine, Target.EXECUTIONS, given)


def wanted(req: func.HttpRequest) -> bool:
    """Whether the caller would rather not wait (RFC 7240)."""
    asked = req.headers.get("prefer", "").lower().split(",")
    return ASYNC in (one.partition(";")[0].strip() for one in asked)


async def submitted(call: Call, engine: Any, target: Target, request: dict[str, Any]) -> Answer:
    """Submit it in the caller's name, who may do it. Raises what `bulk.start` raises."""
    result = await bulk.start(
        engine,
        call.tenant,
        target,
        request,
        by=call.principal.subject,
        key=requests.idempotency_key(call.req),
        traceparent=call.trace.parent,
    )
    return started(result)
