"""Event triggers over HTTP: create, change, look at, pause, try."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orchestrator.domain import cloudevents
from orchestrator.domain.authz import Scope
from orchestrator.domain.published import STRUCTURED
from orchestrator.domain.trigger_model import TriggerModel
from orchestrator.engine import trigger_trial, triggers
from orchestrator.engine.triggers import Stored
from orchestrator.engine.views import Page
from orchestrator.engine.views_events import TriggerTest, TriggerView
from orchestrator.functions import etags, guards, http_params, requests
from orchestrator.functions.http_events import CloudEventBody
from orchestrator.functions.http_routes import Answer, Body, Call, Handler, Reply, Routes
from orchestrator.functions.http_shared import BODY_ERRORS, NO_BODY, NoBody
from orchestrator.functions.requests import JSON_TYPES, YAML_TYPES

ROUTES: Final = Routes("Event triggers")

EXAMPLE: Final = {
    "name": "big-orders",
    "workflow": "order-fulfilment",
    "match": {"type": "order.placed", "subject": {"prefix": "orders/"}},
    "filter": "${event.data.total > 100.0}",
    "input": {"orderId": "${event.data.id}", "lines": "${event.data.lines}"},
}
_BODY: Final = Body(media=JSON_TYPES + YAML_TYPES, schema=TriggerModel, example=EXAMPLE)
_EVENT_TYPES: Final = (*JSON_TYPES, STRUCTURED)


def _answer(stored: Stored) -> Answer:
    headers = etags.header(stored.etag)
    if not stored.created:
        return Answer(body=stored.view, headers=headers)
    headers["location"] = f"/v1/triggers/{stored.view.name}"
    return Answer(body=stored.view, status=201, headers=headers)


@ROUTES.add(
    "POST",
    "v1/triggers",
    scope=Scope.WRITE,
    checks=True,
    summary="Create an event trigger",
    body=_BODY,
    replies={
        200: Reply(description="It was there already", model=TriggerView, headers=etags.ANSWERED),
        201: Reply(
            description="Created",
            model=TriggerView,
            headers={"Location": "Address of the trigger", **etags.ANSWERED},
        ),
    },
    errors=(409, *BODY_ERRORS),
)
async def create_trigger(call: Call) -> Answer:
    """JSON or YAML. Every fault is listed, each with its path and a hint; the workflow must be
    published before. The same content again is a success, other content under the same name is
    refused (409)."""
    raw = await requests.document(call.req, JSON_TYPES + YAML_TYPES)
    await guards.may_start_later(call.principal, raw)
    by = call.principal.subject
    return _answer(await triggers.create(await call.engine(), call.tenant, raw, by=by))


@ROUTES.add(
    "PUT",
    "v1/triggers/{triggerName}",
    scope=Scope.WRITE,
    summary="Create or replace an event trigger",
    headers=(etags.IF_MATCH,),
    body=_BODY,
    replies={
        200: Reply(description="It is as sent", model=TriggerView, headers=etags.ANSWERED),
        201: Reply(description="Created", model=TriggerView, headers=etags.ANSWERED),
    },
    errors=(409, 412, *BODY_ERRORS),
)
async def put_trigger(call: Call) -> Answer:
    """`name` may be left out. `paused` left out: as it was. What it has started goes on."""
    raw = await requests.document(call.req, JSON_TYPES + YAML_TYPES)
    await guards.may_start_later(call.principal, raw)
    stored = await triggers.put(
        await call.engine(),
        call.tenant,
        call.path["triggerName"],
        raw,
        if_match=etags.if_match(call.req),
        by=call.principal.subject,
    )
    return _answer(stored)


@ROUTES.add(
    "GET",
    "v1/triggers",
    scope=Scope.READ,
    checks=True,
    summary="List event triggers",
    query=http_params.PAGING,
    replies={200: Reply(description="A page", model=Page[TriggerView])},
)
async def list_triggers(call: Call) -> Answer:
    """In the order of their names."""
    items, after = await triggers.page(
        await call.engine(), call.tenant, limit=call.query["limit"], after=call.after()
    )
    sight = await call.principal.sight(Scope.READ)
    return call.page([one for one in items if sight.of(one.workflow)], after, Page[TriggerView])


@ROUTES.add(
    "GET",
    "v1/triggers/{triggerName}",
    scope=Scope.READ,
    summary="Show an event trigger",
    replies={200: Reply(description="The trigger", model=TriggerView, headers=etags.ANSWERED)},
    errors=(404,),
)
async def get_trigger(call: Call) -> Answer:
    """As it was written, and whether it is paused."""
    name = call.path["triggerName"]
    return _answer(await triggers.show(await call.engine(), call.tenant, name))


@ROUTES.add(
    "DELETE",
    "v1/triggers/{triggerName}",
    scope=Scope.WRITE,
    summary="Delete an event trigger",
    headers=(etags.IF_MATCH,),
    replies={204: Reply(description="It is gone")},
    errors=(404, 412),
)
async def delete_trigger(call: Call) -> Answer:
    """It starts nothing any more. What it has started goes on."""
    await triggers.delete(
        await call.engine(),
        call.tenant,
        call.path["triggerName"],
        if_match=etags.if_match(call.req),
        by=call.principal.subject,
    )
    return Answer(status=204)


def _switched(path: str, summary: str, done: str) -> Callable[[Handler], Handler]:
    return ROUTES.add(
        "POST",
        path,
        scope=Scope.OPERATE,
        summary=summary,
        headers=(etags.IF_MATCH,),
        body=NO_BODY,
        replies={200: Reply(description=done, model=TriggerView, headers=etags.ANSWERED)},
        errors=(404, 412, *BODY_ERRORS),
    )


async def _switch(call: Call, *, paused: bool) -> Answer:
    await requests.model(call.req, NoBody)
    stored = await triggers.pause(
        await call.engine(),
        call.tenant,
        call.path["triggerName"],
        paused,
        if_match=etags.if_match(call.req),
        by=call.principal.subject,
    )
    return _answer(stored)


@_switched("v1/triggers/{triggerName}/pause", "Pause an event trigger", "Paused")
async def pause_trigger(call: Call) -> Answer:
    """It starts nothing until it is resumed; events that come meanwhile pass it by."""
    return await _switch(call, paused=True)


@_switched("v1/triggers/{triggerName}/resume", "Resume an event trigger", "It starts again")
async def resume_trigger(call: Call) -> Answer:
    """For events from now on."""
    return await _switch(call, paused=False)


@ROUTES.add(
    "POST",
    "v1/triggers/{triggerName}/test",
    scope=Scope.READ,
    summary="Try an event trigger",
    body=Body(media=_EVENT_TYPES, schema=CloudEventBody),
    replies={200: Reply(description="What would happen", model=TriggerTest)},
    errors=(404, *BODY_ERRORS),
)
async def test_trigger(call: Call) -> Answer:
    """Says whether the event matches, and which input it would give. Nothing is started. The event
    is a CloudEvent in the structured form, or in Event Grid's schema."""
    event = cloudevents.either(await requests.document(call.req, _EVENT_TYPES))
    name = call.path["triggerName"]
    return Answer(body=await trigger_trial.trial(await call.engine(), call.tenant, name, event))
