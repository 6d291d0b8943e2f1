"""Schedules over HTTP: create, change, look, pause, resume, run now, delete."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

import azure.functions as func

from orchestrator.domain.authz import Scope
from orchestrator.domain.schedule_spec import ScheduleSpec
from orchestrator.engine import schedule_reads, schedules
from orchestrator.engine.views import Page
from orchestrator.engine.views_schedules import FireView, ScheduleSummary, ScheduleView
from orchestrator.functions import etags, guards, http_params, requests
from orchestrator.functions.http_routes import Answer, Body, Call, Handler, Reply, Routes
from orchestrator.functions.http_shared import (
    BODY_ERRORS,
    KEY,
    NO_BODY,
    NoBody,
    start_replies,
    started,
)
from orchestrator.functions.requests import JSON_TYPES, YAML_TYPES

ROUTES: Final = Routes("Schedules")

EXAMPLE: Final = {
    "name": "nightly-report",
    "workflow": "report",
    "cron": "30 2 * * MON-FRI",
    "timeZone": "Europe/Berlin",
    "misfire": "fireOnce",
    "overlap": "skip",
    "input": {"until": "${tick}"},
}


_ERRORS: Final = (404, 409, *BODY_ERRORS)


def _shown(view: ScheduleView, status: int = 200) -> Answer:
    headers = etags.header(str(view.revision))
    if status == 201:
        headers["location"] = view.links["self"]
    return Answer(body=view, status=status, headers=headers)


def _revision(req: func.HttpRequest) -> int | None:
    """The revision that `If-Match` names; None: any. Raises `MalformedError`."""
    given = etags.if_match(req)
    if given in (None, "*"):
        return None
    # What is no number is no revision of ours: it matches none, like an old one.
    return int(given) if re.fullmatch("[0-9]{1,15}", given) else 0


@ROUTES.add(
    "POST",
    "v1/schedules",
    scope=Scope.WRITE,
    checks=True,
    summary="Create a schedule",
    body=Body(media=JSON_TYPES + YAML_TYPES, schema=ScheduleSpec, example=EXAMPLE),
    replies={
        200: Reply(description="It is there already, with the same content", model=ScheduleView),
        201: Reply(
            description="Created",
            model=ScheduleView,
            headers={"Location": "Address of the schedule", **etags.ANSWERED},
        ),
    },
    errors=(409, *BODY_ERRORS, 429),
)
async def create_schedule(call: Call) -> Answer:
    """JSON or YAML. Exactly one of `cron`, `interval` and `at`. Every fault is listed, each with
    its path, a code and a hint. The answer has the next five fire times. Idempotent by name:
    the same content again changes nothing, other content is refused (409)."""
    source = await requests.document(call.req, JSON_TYPES + YAML_TYPES)
    await guards.may_start_later(call.principal, source)
    view, created = await schedules.create(
        await call.engine(), call.tenant, source, by=call.principal.subject
    )
    return _shown(view, 201 if created else 200)


@ROUTES.add(
    "GET",
    "v1/schedules",
    scope=Scope.READ,
    checks=True,
    summary="List schedules",
    query=http_params.PAGING,
    replies={200: Reply(description="A page", model=Page[ScheduleSummary])},
)
async def list_schedules(call: Call) -> Answer:
    """In the order of their names."""
    items, after = await schedule_reads.list_all(
        await call.engine(), call.tenant, limit=call.query["limit"], after=call.after()
    )
    sight = await call.principal.sight(Scope.READ)
    return call.page([one for one in items if sight.of(one.workflow)], after, Page[ScheduleSummary])


@ROUTES.add(
    "GET",
    "v1/schedules/{schedule}",
    scope=Scope.READ,
    summary="Show a schedule",
    replies={200: Reply(description="The schedule", model=ScheduleView, headers=etags.ANSWERED)},
    errors=(404,),
)
async def get_schedule(call: Call) -> Answer:
    """Its definition, the next five fire times (UTC and local), and how its ticks went."""
    return _shown(await schedule_reads.get(await call.engine(), call.tenant, call.path["schedule"]))


@ROUTES.add(
    "PUT",
    "v1/schedules/{schedule}",
    scope=Scope.WRITE,
    summary="Change a schedule",
    headers=(etags.IF_MATCH,),
    body=Body(media=JSON_TYPES + YAML_TYPES, schema=ScheduleSpec, example=EXAMPLE),
    replies={200: Reply(description="As it is now", model=ScheduleView, headers=etags.ANSWERED)},
    errors=(404, 409, 412, *BODY_ERRORS),
)
async def update_schedule(call: Call) -> Answer:
    """Replaces the definition; `name` and `paused` may be left out. What was due before is decided
    by the old one; the new one does not look back."""
    revision = _revision(call.req)
    source = await requests.document(call.req, JSON_TYPES + YAML_TYPES)
    await guards.may_start_later(call.principal, source)
    view = await schedules.update(
        await call.engine(),
        call.tenant,
        call.path["schedule"],
        source,
        revision=revision,
        by=call.principal.subject,
    )
    return _shown(view)


@ROUTES.add(
    "DELETE",
    "v1/schedules/{schedule}",
    scope=Scope.WRITE,
    summary="Delete a schedule",
    replies={204: Reply(description="Deleted")},
    errors=(404,),
)
async def delete_schedule(call: Call) -> Answer:
    """It starts nothing more, and its history is gone. What it started goes on."""
    await schedules.delete(
        await call.engine(), call.tenant, call.path["schedule"], by=call.principal.subject
    )
    return Answer(status=204)


def _switched(path: str, summary: str, done: str) -> Callable[[Handler], Handler]:
    return ROUTES.add(
        "POST",
        path,
        scope=Scope.OPERATE,
        summary=summary,
        body=NO_BODY,
        replies={200: Reply(description=done, model=ScheduleView, headers=etags.ANSWERED)},
        errors=_ERRORS,
    )


async def _switch(call: Call, change: Callable[..., Awaitable[ScheduleView]]) -> Answer:
    await requests.model(call.req, NoBody)
    name, by = call.path["schedule"], call.principal.subject
    return _shown(await change(await call.engine(), call.tenant, name, by=by))


@_switched("v1/schedules/{schedule}/pause", "Pause a schedule", "It stands still")
async def pause_schedule(call: Call) -> Answer:
    """No more ticks until it is resumed. Pausing twice is the same as once."""
    return await _switch(call, schedules.pause)


@_switched("v1/schedules/{schedule}/resume", "Resume a paused schedule", "It goes on")
async def resume_schedule(call: Call) -> Answer:
    """The misfire policy decides about the ticks of the pause: `skip` starts none of them."""
    return await _switch(call, schedules.resume)


@ROUTES.add(
    "POST",
    "v1/schedules/{schedule}/run",
    scope=Scope.EXECUTE,
    summary="Run a schedule now",
    headers=KEY,
    body=NO_BODY,
    replies=start_replies(repeated="The key had been used before: the first answer again"),
    errors=(*_ERRORS, 429),
)
async def run_schedule(call: Call) -> Answer:
    """Starts an execution beside the ticks, also of a paused schedule; the overlap rule does not
    look at it."""
    key = requests.idempotency_key(call.req)
    await requests.model(call.req, NoBody)
    result = await schedules.run(
        await call.engine(),
        call.tenant,
        call.path["schedule"],
        key=key,
        by=call.principal.subject,
        traceparent=call.trace.parent,
    )
    return started(result)


@ROUTES.add(
    "GET",
    "v1/schedules/{schedule}/history",
    scope=Scope.READ,
    summary="What happened to the last ticks",
    query=http_params.PAGING,
    replies={200: Reply(description="A page, newest first", model=Page[FireView])},
    errors=(404,),
)
async def list_fires(call: Call) -> Answer:
    """The last 50: started with the execution's id, or why not."""
    items, after = await schedule_reads.history(
        await call.engine(),
        call.tenant,
        call.path["schedule"],
        limit=call.query["limit"],
        after=call.after(int),
    )
    return call.page(items, after, Page[FireView])
