"""Circuit breakers over HTTP: see them, open and close them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from orchestrator.domain.authz import Scope
from orchestrator.domain.durations import DurationError, parse_duration
from orchestrator.engine import breakers_act
from orchestrator.engine.control import MAX_REASON_CHARS
from orchestrator.engine.views_breakers import BreakerList, BreakerView
from orchestrator.functions import requests
from orchestrator.functions.http_routes import Answer, Call, Reply, Routes
from orchestrator.functions.http_shared import BODY_ERRORS, ControlRequest, json_body

ROUTES: Final = Routes("Circuit breakers")


def _duration(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError("write a duration such as 15m, as text")
    try:
        ms = parse_duration(value)
    except DurationError as error:
        raise ValueError(error.message) from None
    if ms > breakers_act.MAX_FOR_MS:
        raise ValueError("at most 30d; leave it out to open it until somebody closes it")
    return ms


class OpenRequest(BaseModel):
    """Why, and for how long. Everything may be left out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)

    reason: str = Field("", max_length=MAX_REASON_CHARS)
    for_: Annotated[
        int | None,
        BeforeValidator(_duration),
        Field(json_schema_extra={"type": "string", "examples": ["15m"]}),
    ] = Field(None, alias="for", description="Until then; left out: until somebody closes it")


@ROUTES.add(
    "GET",
    "v1/breakers",
    scope=Scope.READ,
    summary="List circuit breakers",
    replies={200: Reply(description="All that have a record, latest first", model=BreakerList)},
)
async def list_breakers(call: Call) -> Answer:
    """Every dependency of the tenant's tasks that failed lately or was opened by hand. What is not
    listed is closed."""
    return Answer(body=await breakers_act.listing(await call.engine(), call.tenant))


@ROUTES.add(
    "GET",
    "v1/breakers/{dependency}",
    scope=Scope.READ,
    summary="Show a circuit breaker",
    replies={200: Reply(description="The breaker", model=BreakerView)},
    errors=(404,),
)
async def get_breaker(call: Call) -> Answer:
    """Its status, what was seen within its window, and since when and until when it is open."""
    dependency = call.path["dependency"]
    return Answer(body=await breakers_act.show(await call.engine(), call.tenant, dependency))


@ROUTES.add(
    "POST",
    "v1/breakers/{dependency}/open",
    scope=Scope.OPERATE,
    summary="Open a circuit breaker",
    body=json_body(OpenRequest, {"reason": "maintenance until noon", "for": "90m"}),
    replies={200: Reply(description="It is open", model=BreakerView)},
    errors=BODY_ERRORS,
)
async def open_breaker(call: Call) -> Answer:
    """Tasks of the dependency wait, without using up attempts, until it is closed or the time is
    over. What runs already is not stopped. The same request again has no further effect."""
    body = await requests.model(call.req, OpenRequest)
    view = await breakers_act.open_(
        await call.engine(),
        call.tenant,
        call.path["dependency"],
        by=call.principal.subject,
        reason=body.reason,
        for_ms=body.for_,
    )
    return Answer(body=view)


@ROUTES.add(
    "POST",
    "v1/breakers/{dependency}/close",
    scope=Scope.OPERATE,
    summary="Close a circuit breaker",
    body=json_body(ControlRequest, {"reason": "the service is back"}),
    replies={200: Reply(description="It is closed", model=BreakerView)},
    errors=BODY_ERRORS,
)
async def close_breaker(call: Call) -> Answer:
    """Tasks go through again, within a minute and a half at most, whoever opened it; failures seen
    before do not count any more. Closing what is closed is a success."""
    body = await requests.model(call.req, ControlRequest)
    view = await breakers_act.close(
        await call.engine(),
        call.tenant,
        call.path["dependency"],
        by=call.principal.subject,
        reason=body.reason,
    )
    return Answer(body=view)
