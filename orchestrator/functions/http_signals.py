"""Signals over HTTP: send one to an execution, list what it was sent."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from orchestrator.domain.authz import Scope
from orchestrator.domain.errors import ErrorDetail, InvalidError
from orchestrator.domain.signalling import MAX_SIGNAL_ID_CHARS
from orchestrator.engine import signals
from orchestrator.engine.views import Page
from orchestrator.engine.views_signals import SignalResult, SignalView
from orchestrator.functions import http_params, requests
from orchestrator.functions.http_routes import Answer, Call, Reply, Routes
from orchestrator.functions.http_shared import BODY_ERRORS, KEY, json_body

ROUTES: Final = Routes("Signals", hub=True)


class SignalRequest(BaseModel):
    """A signal. `id` makes it idempotent; the header Idempotency-Key does, too."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str = Field(min_length=1, max_length=63, description="As a signal task names it")
    payload: Any = Field(None, description="Becomes the output of the task; any JSON")
    id: str | None = Field(None, min_length=1, max_length=MAX_SIGNAL_ID_CHARS)

    @field_validator("id")
    @classmethod
    def _printable(cls, value: str | None) -> str | None:
        if value is not None and not value.isprintable():
            raise ValueError("only printable characters are allowed")
        return value


@ROUTES.add(
    "POST",
    "v1/executions/{id}/signals",
    scope=Scope.EXECUTE,
    summary="Send a signal",
    headers=KEY,
    body=json_body(
        SignalRequest,
        {"name": "approved", "payload": {"by": "eve"}, "id": "approval-17"},
        required=True,
    ),
    replies={
        200: Reply(description="The same signal had been sent before", model=SignalResult),
        202: Reply(description="Accepted and stored durably", model=SignalResult),
    },
    errors=(404, 409, *BODY_ERRORS),
)
async def send_signal(call: Call) -> Answer:
    """A task that waits for this name takes it; one that comes early is kept until such a task
    starts. The same id again is the same signal, with other content it is refused (409), as is
    every signal to an ended execution. A name that no task waits for, or a payload that does not
    fit the task's schema, is refused (422)."""
    key = requests.idempotency_key(call.req)
    body = await requests.model(call.req, SignalRequest)
    if key is not None and body.id is not None and key != body.id:
        message = "`id` and Idempotency-Key differ; send one of them"
        raise InvalidError(
            message, code="INVALID_BODY", details=[ErrorDetail("$.id", message, "INVALID_FIELD")]
        )
    result = await signals.send(
        await call.engine(),
        call.tenant,
        call.path["id"],
        body.name,
        body.payload,
        id=key if body.id is None else body.id,
        sent_by=call.principal.subject,
        traceparent=call.trace.parent,
    )
    return Answer(body=result, status=202 if result.created else 200)


@ROUTES.add(
    "GET",
    "v1/executions/{id}/signals",
    scope=Scope.READ,
    summary="List an execution's signals",
    query=http_params.PAGING,
    replies={200: Reply(description="A page, oldest first", model=Page[SignalView])},
    errors=(404,),
)
async def list_signals(call: Call) -> Answer:
    """What was sent, who took it, and what nobody took. Payloads are the outputs of their tasks."""
    items, after = await signals.page(
        await call.engine(),
        call.tenant,
        call.path["id"],
        limit=call.query["limit"],
        after=call.after(),
    )
    return call.page(items, after, Page[SignalView])
