"""ETags over HTTP: `ETag` in answers, `If-Match` in requests."""

from __future__ import annotations

import re
from typing import Final

import azure.functions as func
from pydantic import BaseModel

from orchestrator.domain.errors import ErrorDetail, MalformedError
from orchestrator.functions.http_routes import Answer
from orchestrator.functions.requests import Param

IF_MATCH: Final = Param(
    name="If-Match",
    description="Only if this is still its ETag (else 412)",
    schema={"type": "string"},
)
ANSWERED: Final = {"ETag": "Changes with every change; for If-Match"}

_FORM: Final = re.compile(r'"([!#-~]{1,128})"')


def header(etag: str) -> dict[str, str]:
    """The answer's header."""
    return {"etag": f'"{etag}"'}


def answer(found: tuple[BaseModel, str]) -> Answer:
    """What is shown, under its ETag."""
    view, etag = found
    return Answer(body=view, headers=header(etag))


def if_match(req: func.HttpRequest) -> str | None:
    """The ETag that the caller knows, `*` for any, None if it does not care. Raises
    `MalformedError`."""
    given = req.headers.get("if-match", "").strip()
    if not given or given == "*":
        return given or None
    match = _FORM.fullmatch(given)
    if match is None:
        message = "If-Match must be one ETag as it was answered, in quotes, or *"
        raise MalformedError(
            message,
            code="INVALID_HEADER",
            details=(ErrorDetail("If-Match", message, code="INVALID_HEADER"),),
        )
    return match[1]
