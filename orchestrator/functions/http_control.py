"""What operators do to an execution over HTTP: pause, resume, cancel, terminate, replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

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
from orchestrator.engine.views import ExecutionView
from orchestrator.functions import requests
from orchestrator.functions.http_routes import Answer, Body, Call, Handler, Reply, Routes
from orchestrator.functions.http_shared import (
    BODY_ERRORS,
    KEY,
    ControlRequest,
    json_body,
    start_replies,
    started,
)

ROUTES: Final = Routes("Control", hub=True)


_BODY: Final = json_body(ControlRequest, {"reason": "wrong input, sent again as order A-18"})
_ERRORS: Final = (404, 409, *BODY_ERRORS)


def _control(
    path: str, summary: str, done: str, *, body: Body = _BODY, scope: Scope = Scope.OPERATE
) -> Callable[[Handler], Handler]:
    """The route of a change that answers with the execution as it is then: `done`."""
    return ROUTES.add(
        "POST",
        path,
        scope=scope,
        summary=summary,
        body=body,
        replies={200: Reply(description=done, model=ExecutionView)},
        errors=_ERRORS,
    )


async def _act(call: Call, action: Action, reason: str | None = None) -> Answer:
    if reason is None:
        reason = (await requests.model(call.req, ControlRequest)).reason
    view = await control.act(
        await call.engine(),
        call.tenant,
        call.path["id"],
        action,
        by=call.principal.subject,
        reason=reason,
    )
    return Answer(body=view)


@_control("v1/executions/{id}/pause", "Pause an execution", "It stands still")
async def pause_execution(call: Call) -> Answer:
    """Nothing new is started; what runs ends, and its results count. Its own time limit goes on.
    Pausing twice is the same as once. Refused (409 CANNOT_PAUSE) if it has ended, undoes what had
    completed, or waits for a place in its concurrency group: cancel that one, or wait."""
    return await _act(call, PAUSE)


@_control("v1/executions/{id}/resume", "Resume a paused execution", "It goes on")
async def resume_execution(call: Call) -> Answer:
    """Goes on where it was: what was dropped while it stood still is sent again. Resuming what
    runs is a success; an ended execution is refused (409)."""
    return await _act(call, RESUME)


class CancelRequest(ControlRequest):
    """Why, and whether to undo what has completed. Everything may be left out."""

    compensate: bool = Field(
        False, description="First let what runs end, then undo what has completed, last first"
    )


@_control(
    "v1/executions/{id}/cancel",
    "Cancel an execution",
    "It has ended, or is COMPENSATING",
    body=json_body(CancelRequest, {"reason": "customer withdrew", "compensate": True}),
)
async def cancel_execution(call: Call) -> Answer:
    """Ends it at once. Running activities are told by their heartbeat; what they still return does
    not count. With `compensate`, what runs ends and counts, then what has completed is undone, and
    only then it is CANCELLED. Cancelling twice is the same as once; a completed, failed or
    compensating one is refused (409)."""
    body = await requests.model(call.req, CancelRequest)
    return await _act(call, CANCEL_COMPENSATING if body.compensate else CANCEL, body.reason)


@_control("v1/executions/{id}/terminate", "Terminate an execution", "It has ended")
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
    body=json_body(
        ReplayRequest, {"from": "charge", "version": "latest", "reason": "prices corrected"}
    ),
    replies=start_replies(),
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
    return started(result)


@_control(
    "v1/executions/{id}/erase",
    "Erase an execution's data",
    "It is erased",
    body=json_body(ControlRequest, {"reason": "request of the customer, ticket 4711"}),
    scope=Scope.ADMIN,
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
