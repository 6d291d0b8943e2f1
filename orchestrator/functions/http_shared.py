"""What several modules of routes describe and answer alike: starts, reasons, empty bodies."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.engine.control import MAX_REASON_CHARS
from orchestrator.engine.views import StartResult
from orchestrator.functions import requests
from orchestrator.functions.http_routes import Answer, Body, Reply
from orchestrator.functions.requests import JSON_TYPES, Param

BODY_ERRORS: Final = (413, 415, 422)
"""What every route with a body may answer: too large, not JSON, not what the schema says."""

# --- starting executions --------------------------------------------------------------------------

KEY: Final = tuple(
    Param(
        name=name,
        description=text,
        schema={"type": "string", "minLength": 1, "maxLength": requests.MAX_KEY_CHARS},
    )
    for name, text in (
        ("Idempotency-Key", "Repeating a request with its key gives the first answer again"),
        ("X-Idempotency-Key", "The same under its older name"),
    )
)
LOCATION: Final = {"Location": "Address of the execution"}


def start_replies(
    *,
    repeated: str = "The key had been used with the same request: the first answer again",
    accepted: str = "Accepted, as an execution",
    example: Any = None,
) -> dict[int, Reply]:
    """The answers of a route that starts an execution, as `started` gives them."""
    return {
        200: Reply(description=repeated, model=StartResult, headers=LOCATION),
        202: Reply(description=accepted, model=StartResult, headers=LOCATION, example=example),
    }


def started(result: StartResult) -> Answer:
    """202 for a new execution, 200 for one that the same request had started before."""
    return Answer(
        body=result,
        status=202 if result.created else 200,
        headers={"location": f"/v1/executions/{result.id}"},
    )


# --- bodies ---------------------------------------------------------------------------------------


class NoBody(BaseModel):
    """Nothing is needed; an empty object is fine."""

    model_config = ConfigDict(extra="forbid", frozen=True)


NO_BODY: Final = Body(media=JSON_TYPES, schema=NoBody, required=False)


class ControlRequest(BaseModel):
    """Why. May be left out; it stands in the history and in the audit."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    reason: str = Field("", max_length=MAX_REASON_CHARS)


def json_body(schema: type[BaseModel], example: Any, *, required: bool = False) -> Body:
    """A JSON body, with an example for the description."""
    return Body(media=JSON_TYPES, schema=schema, required=required, example=example)
