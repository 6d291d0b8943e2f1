"""Events over HTTP: CloudEvents 1.0 in all three forms, and Event Grid's own webhook deliveries.

What cannot be read is 400, as senders expect: Event Grid tries others again for a day. In a batch
each event stands for itself: the good ones are taken in, the bad ones are named in the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import azure.functions as func
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.domain import cloudevents, cloudevents_binary
from orchestrator.domain.authz import Scope
from orchestrator.domain.cloudevents import SPEC_VERSION, CloudEvent
from orchestrator.domain.errors import ErrorDetail, MalformedError, UnsupportedMediaError, WeftError
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.published import STRUCTURED
from orchestrator.engine import events
from orchestrator.engine.views import View
from orchestrator.engine.views_events import EventFault, EventReceipt, EventsReceipt
from orchestrator.functions import requests
from orchestrator.functions.http_routes import OPEN, Answer, Body, Call, Reply, Routes
from orchestrator.functions.requests import JSON_TYPES, MAX_FINDINGS, Param

ROUTES: Final = Routes("Events")

BATCH: Final = "application/cloudevents-batch+json"
GRID_KIND: Final = "aeg-event-type"
"""Header of Event Grid's deliveries: what kind of delivery it is."""
VALIDATION: Final = "SubscriptionValidation"


class CloudEventBody(BaseModel):
    """A CloudEvent in the structured form. Further members are extension attributes: names of
    lower-case letters and digits, values of text, 32-bit whole numbers or booleans."""

    model_config = ConfigDict(title="CloudEvent", extra="allow", frozen=True)

    specversion: Literal["1.0"]
    id: str = Field(min_length=1, description="Unique within the source")
    source: str = Field(min_length=1, description="Where it happened, a URI reference")
    type: str = Field(min_length=1)
    subject: str | None = Field(None, min_length=1)
    time: str | None = Field(None, json_schema_extra={"format": "date-time"})
    datacontenttype: str | None = None
    dataschema: str | None = None
    data: Any = None
    data_base64: str | None = Field(None, description="Instead of data: bytes")


class ValidationAnswer(View):
    """What Event Grid wants to read before it delivers to an address."""

    validation_response: str


EXAMPLE: Final = {
    "specversion": SPEC_VERSION,
    "id": "A-17",
    "source": "/shop/berlin",
    "type": "order.placed",
    "subject": "orders/17",
    "data": {"id": "A-17", "total": 120.5, "lines": []},
}


@ROUTES.add(
    "POST",
    "v1/events",
    scope=Scope.EXECUTE,
    summary="Send events",
    body=Body(media=(STRUCTURED,), schema=CloudEventBody, example=EXAMPLE),
    replies={
        200: Reply(description="To Event Grid's validation event", model=ValidationAnswer),
        202: Reply(description="What became of each event, durably", model=EventsReceipt),
    },
    errors=(413, 415, 422, 429),
)
async def send_events(call: Call) -> Answer:
    """CloudEvents 1.0: structured (application/cloudevents+json), batched (application/
    cloudevents-batch+json, at most 500 events and 1 MiB) or binary (attributes in `ce-` headers);
    or a delivery of Event Grid in its own schema. Every trigger that matches starts one execution
    per event: sending again, in whole or in part, starts nothing twice. In a batch the good events
    are taken in and the bad ones named; if all are bad, nothing is (400)."""
    found = await _read(call.req)
    if isinstance(found, ValidationAnswer):
        return Answer(body=found)
    good = [event for event in found if isinstance(event, CloudEvent)]
    engine = await call.engine()
    if bad := len(found) - len(good):
        engine.metrics.count("weft_events_total", "invalid", by=bad)
    if bad and not good:
        raise _all_bad([error for error in found if isinstance(error, MalformedError)])
    await events.check_sizes(engine, call.tenant, good)
    taken = iter(await events.receive(engine, call.tenant, good, traceparent=call.trace.parent))
    items = [next(taken) if isinstance(one, CloudEvent) else _refused(one) for one in found]
    return Answer(body=EventsReceipt(accepted=len(good), refused=bad, items=items), status=202)


async def _read(
    req: func.HttpRequest,
) -> Sequence[CloudEvent | MalformedError] | ValidationAnswer:
    """The events of a request, or Event Grid's question. Raises what makes all of it wrong."""
    kind = req.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == BATCH:
        return cloudevents.batch(await requests.items(req, (BATCH,)))
    if kind == STRUCTURED:
        return [cloudevents.structured(await requests.document(req, (STRUCTURED,)))]
    if GRID_KIND in req.headers:
        return _grid(req.headers[GRID_KIND], await requests.items(req, JSON_TYPES))
    names = [name.lower() for name in req.headers]
    if any(name.startswith(cloudevents_binary.HTTP_PREFIX) for name in names):
        if kind.startswith("application/cloudevents"):
            raise _unsupported(kind)
        return [cloudevents_binary.from_http(req.headers.items(), requests.raw_body(req))]
    raise _unsupported(kind)


def _grid(
    kind: str, value: Json | list[Json | WeftError]
) -> Sequence[CloudEvent | MalformedError] | ValidationAnswer:
    found = cloudevents.batch(value if isinstance(value, list) else [value])
    if kind != VALIDATION:
        return found
    event = found[0] if found else None
    data = event.body.get("data") if isinstance(event, CloudEvent) else None
    code = data.get("validationCode") if isinstance(data, dict) else None
    if not isinstance(code, str):
        text = "a validation event has `data.validationCode`"
        raise cloudevents.invalid([ErrorDetail("$[0].data.validationCode", text, "MISSING")])
    return ValidationAnswer(validation_response=code)


def _unsupported(kind: str) -> UnsupportedMediaError:
    named = f"'{requests.shorten(kind)}'" if kind else "without a Content-Type"
    return UnsupportedMediaError(
        f"a body {named} and without `ce-` headers is no CloudEvent that is read here; send "
        f"{STRUCTURED}, {BATCH}, or the headers ce-specversion, ce-id, ce-source and ce-type",
        details=(ErrorDetail("Content-Type", "not one that this route reads"),),
    )


def _refused(error: MalformedError) -> EventReceipt:
    details = [
        {"field": detail.field, "message": detail.message, "code": detail.code}
        for detail in error.details
    ]
    return EventReceipt(error=EventFault(code=error.code, message=error.message, details=details))


def _all_bad(errors: Sequence[MalformedError]) -> MalformedError:
    details = [detail for error in errors for detail in error.details]
    return MalformedError(
        errors[0].message if len(errors) == 1 else f"none of the {len(errors)} events is right",
        code=cloudevents.CODE,
        details=details[:MAX_FINDINGS],
    )


def _header(name: str, text: str) -> Param:
    return Param(name=name, description=text, schema={"type": "string"})


@ROUTES.add(
    "OPTIONS",
    "v1/events",
    scope=OPEN,
    summary="Ask whether events may be sent here",
    headers=(
        _header("WebHook-Request-Origin", "Who will send"),
        _header("WebHook-Request-Rate", "How many a minute"),
    ),
    replies={
        204: Reply(
            description="They may",
            headers={
                "Allow": "POST, OPTIONS",
                "WebHook-Allowed-Origin": "Who asked",
                "WebHook-Allowed-Rate": "What was asked for, or `*`",
            },
        )
    },
)
async def allow_events(call: Call) -> Answer:
    """The handshake of the CloudEvents webhook specification, by which a sender makes sure that
    this address wants events."""
    allowed = {"allow": "POST, OPTIONS"}
    origin = call.req.headers.get("webhook-request-origin", "").strip()
    if origin:
        if not (origin.isprintable() and origin.isascii() and len(origin) <= 255):
            message = "must be a name of at most 255 characters"
            raise MalformedError(
                f"WebHook-Request-Origin {message}",
                code="INVALID_HEADER",
                details=(ErrorDetail("WebHook-Request-Origin", message, "INVALID_HEADER"),),
            )
        rate = call.req.headers.get("webhook-request-rate", "").strip()
        plain = rate.isascii() and rate.isdecimal() and len(rate) <= 9
        allowed["webhook-allowed-origin"] = origin
        allowed["webhook-allowed-rate"] = rate if plain else "*"
    return Answer(status=204, headers=allowed)
