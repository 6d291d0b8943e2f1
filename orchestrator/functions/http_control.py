"""What operators do to an execution over HTTP: pause, resume, cancel, terminate, replay."""

from __future__ import annotations

from typing import Final, Literal

import azure.functions as func
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.domain.authz import Scope
from orchestrator.engine import control, erase, replay
from orchestrator.engine.control import (
    CANCEL,
    CANCEL_COMPENSATING,
    MAX_REASON_CHARS,
    PAUSE,
    RESUME,
    TERMINATE,
    Action,
)
from orchestrator.engine.views import ExecutionView, StartResult
from orchestrator.functions import requests
from orchestrator.functions.http_executions import KEY, LOCATION
from orchestrator.functions.http_routes import Answer, Body, Call, Reply, Routes
from orchestrator.functions.provider import EngineProvider
from orchestrator.functions.requests import JSON_TYPES

ROUTES: Final = Routes("Control", hub=True)


class ControlRequest(BaseModel):
    """Why. May be left out; it stands in the history and in the audit."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    reason: str = Field("", max_length=MAX_REASON_CHARS)


_BODY: Final = Body(
    media=JSON_TYPES,
    schema=ControlRequest,
    required=False,
    example={"reason": "wrong input, sent again as order A-18"},
)
_ERRORS: Final = (404, 409, 413, 415, 422)


async def _act(call: Call, action: Action) -> Answer:
    return await _do(call, action, (await requests.model(call.req, ControlRequest)).reason)


async def _do(call: Call, action: Action, reason: str) -> Answer:
    view = await control.act(
        await call.engine(),
        call.tenant,
        call.path["id"],
        action,
        by=call.principal.subject,
        reason=reason,
    )
    return Answer(body=view)


@ROUTES.add(
    "POST",
    "v1/executions/{id}/pause",
    scope=Scope.OPERATE,
    summary="Pause an execution",
    body=_BODY,
    replies={200: Reply(description="It stands still", model=ExecutionView)},
    errors=_ERRORS,
)
async def pause_execution(call: Call) -> Answer:
    """Nothing new is started; what runs ends, and its results count. Its own time limit goes on.
    Pausing twice is the same as once. Refused (409 CANNOT_PAUSE) if it has ended, undoes what had
    completed, or waits for a place in its concurrency group: cancel that one, or wait."""
    return await _act(call, PAUSE)


@ROUTES.add(
    "POST",
    "v1/executions/{id}/resume",
    scope=Scope.OPERATE,
    summary="Resume a paused execution",
    body=_BODY,
    replies={200: Reply(description="It goes on", model=ExecutionView)},
    errors=_ERRORS,
)
async def resume_execution(call: Call) -> Answer:
    """Goes on where it was: what was dropped while it stood still is sent again. Resuming what
    runs is a success; an ended execution is refused (409)."""
    return await _act(call, RESUME)


class CancelRequest(ControlRequest):
    """Why, and whether to undo what has completed. Everything may be left out."""

    compensate: bool = Field(
        False, description="First let what runs end, then undo what has completed, last first"
    )


@ROUTES.add(
    "POST",
    "v1/executions/{id}/cancel",
    scope=Scope.OPERATE,
    summary="Cancel an execution",
    body=Body(
        media=JSON_TYPES,
        schema=CancelRequest,
        required=False,
        example={"reason": "customer withdrew", "compensate": True},
    ),
    replies={200: Reply(description="It has ended, or is COMPENSATING", model=ExecutionView)},
    errors=_ERRORS,
)
async def cancel_execution(call: Call) -> Answer:
    """Ends it at once. Running activities are told by their heartbeat; what they still return does
    not count. With `compensate`, what runs ends and counts, then what has completed is undone, and
    only then it is CANCELLED. Cancelling twice is the same as once; a completed, failed or
    compensating one is refused (409)."""
    body = await requests.model(call.req, CancelRequest)
    return await _do(call, CANCEL_COMPENSATING if body.compensate else CANCEL, body.reason)


@ROUTES.add(
    "POST",
    "v1/executions/{id}/terminate",
    scope=Scope.OPERATE,
    summary="Terminate an execution",
    body=_BODY,
    replies={200: Reply(description="It has ended", model=ExecutionView)},
    errors=_ERRORS,
)
async def terminate_execution(call: Call) -> Answer:
    """Ends it at once as CANCELLED, whatever it is doing, also undoing what it had completed;
    `compensation` in the answer says what was left. Terminating twice is the same as once; a
    completed or failed one is refused (409)."""
    return await _act(call, TERMINATE)


class ReplayRequest(BaseModel):
    """From where, on which version, and why. Everything may be left out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)

    from_: str | None = Field(
        None, alias="from", description="The task from which on to run; left out: everything"
    )
    version: Literal["same", "latest"] = "same"
    reason: str = Field("", max_length=MAX_REASON_CHARS)


@ROUTES.add(
    "POST",
    "v1/executions/{id}/replay",
    scope=Scope.OPERATE,
    summary="Replay an execution",
    headers=KEY,
    body=Body(
        media=JSON_TYPES,
        schema=ReplayRequest,
        required=False,
        example={"from": "charge", "version": "latest", "reason": "prices corrected"},
    ),
    replies={
        200: Reply(
            description="The key had been used with the same request: the first answer again",
            model=StartResult,
            headers=LOCATION,
        ),
        202: Reply(description="Accepted, as an execution", model=StartResult, headers=LOCATION),
    },
    errors=(*_ERRORS, 429),
)
async def replay_execution(call: Call) -> Answer:
    """A new execution with the input and tags of an ended one, linked to it. From a task: that one
    and all behind it run, the other results are copied and not run again."""
    key = requests.idempotency_key(call.req)
    body = await requests.model(call.req, ReplayRequest)
    result = await replay.replay(
        await call.engine(),
        call.tenant,
        call.path["id"],
        start_at=body.from_,
        latest=body.version == "latest",
        key=key,
        by=call.principal.subject,
        reason=body.reason,
        traceparent=call.trace.parent,
    )
    return Answer(
        body=result,
        status=202 if result.created else 200,
        headers={"location": f"/v1/executions/{result.id}"},
    )


@ROUTES.add(
    "POST",
    "v1/executions/{id}/erase",
    scope=Scope.ADMIN,
    summary="Erase an execution's data",
    body=Body(
        media=JSON_TYPES,
        schema=ControlRequest,
        required=False,
        example={"reason": "request of the customer, ticket 4711"},
    ),
    replies={200: Reply(description="It is erased", model=ExecutionView)},
    errors=_ERRORS,
)
async def erase_execution(call: Call) -> Answer:
    """Input, outputs, payloads of signals, inputs of dead letters and messages of errors are gone
    for good; statuses, times, types of errors and tags stay. It cannot be replayed or retried any
    more. One that has not ended is refused (409). The same request again finishes what was cut
    short; children are erased by themselves."""
    view = await erase.erase(
        await call.engine(),
        call.tenant,
        call.path["id"],
        by=call.principal.subject,
        reason=(await requests.model(call.req, ControlRequest)).reason,
    )
    return Answer(body=view)


def blueprint(provider: EngineProvider) -> func.Blueprint:
    """The routes of this module."""
    return ROUTES.blueprint(provider)
