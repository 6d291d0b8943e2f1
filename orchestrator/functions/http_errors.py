"""The error tree as HTTP: one table of status codes, one envelope.

Everything that leaves an HTTP trigger passes here, so that a client can rely on the shape
`{"error": {"code", "message", "details": [{"field", "message", "code", "hint"}], "traceId"}}`
for every failure, also for those nobody thought of.
"""

from __future__ import annotations

import logging
import math
import traceback
from typing import Final

import azure.functions as func
import orjson
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from orchestrator.domain import errors
from orchestrator.domain.errors import WeftError
from orchestrator.domain.failure import scrub
from orchestrator.ports import PayloadNotFound, Throttled, TransportError, Unavailable

logger = logging.getLogger("orchestrator.functions")


class MethodNotAllowedError(WeftError):
    """The path exists, but not with this method: 405, `allow` says with which."""

    code = "METHOD_NOT_ALLOWED"

    def __init__(self, message: str, *, allow: tuple[str, ...]) -> None:
        super().__init__(message)
        self.allow = allow


REALM: Final = 'Bearer realm="weft"'
MAX_DETAILS: Final = 200
"""Findings in one answer: a body of a megabyte can have a hundred thousand."""
MAX_TEXT_CHARS: Final = 2000  # of each text in an answer; some quote what was sent

STATUS: Final[dict[type[WeftError], int]] = {
    errors.MalformedError: 400,
    errors.UnauthenticatedError: 401,
    errors.ForbiddenError: 403,
    errors.NotFoundError: 404,
    MethodNotAllowedError: 405,
    errors.ConflictError: 409,
    errors.PreconditionError: 412,
    errors.TooLargeError: 413,
    errors.UnsupportedMediaError: 415,
    errors.InvalidError: 422,
    errors.ThrottledError: 429,
    errors.UnavailableError: 503,
    WeftError: 500,
}
"""A subclass has the status of its nearest ancestor here."""


class ErrorDetailBody(BaseModel):
    """One finding."""

    model_config = ConfigDict(frozen=True, title="ErrorDetail")

    field: str = Field(description="JSON path in the body, or the name of a parameter or header")
    message: str
    code: str = ""
    hint: str = ""


class ErrorBody(BaseModel):
    """What went wrong, and what to do."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, title="Error")

    code: str = Field(description="Stable, UPPER_SNAKE")
    message: str
    details: list[ErrorDetailBody]
    trace_id: str = Field(description="Also in the header x-trace-id; name it when you report")


class ErrorEnvelope(BaseModel):
    """The body of every answer with a status of 400 or more."""

    model_config = ConfigDict(frozen=True)

    error: ErrorBody


def status_of(error: WeftError) -> int:
    """The HTTP status of an error."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def common_headers(trace_id: str) -> dict[str, str]:
    """Headers of every answer, good or bad."""
    return {"x-trace-id": trace_id, "cache-control": "no-store"}


def respond(error: WeftError, trace_id: str) -> func.HttpResponse:
    """The answer for an error meant for a user."""
    headers = common_headers(trace_id)
    if isinstance(error, errors.ThrottledError):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_ms / 1000)))
    if isinstance(error, MethodNotAllowedError):
        headers["allow"] = ", ".join(error.allow)
    if isinstance(error, errors.UnauthenticatedError):
        missing = error.code == errors.UnauthenticatedError.code
        headers["www-authenticate"] = REALM if missing else f'{REALM}, error="invalid_token"'
    if isinstance(error, errors.ForbiddenError) and error.scope:
        reason = f'error="insufficient_scope", scope="{error.scope}"'
        headers["www-authenticate"] = f"{REALM}, {reason}"
    details = [
        _shown(detail.field, detail.message, detail.code, detail.hint)
        for detail in error.details[:MAX_DETAILS]
    ]
    left_out = len(error.details) - len(details)
    if left_out:
        details.append(_shown("$", f"and {left_out} more; mend these first", "MORE_FINDINGS", ""))
    body = {
        "error": {
            "code": error.code,
            "message": _cut(error.message),
            "details": details,
            "traceId": trace_id,
        }
    }
    return func.HttpResponse(
        orjson.dumps(body),
        status_code=status_of(error),
        headers=headers,
        mimetype="application/json",
    )


def _shown(field: str, message: str, code: str, hint: str) -> dict[str, str]:
    return {"field": _cut(field), "message": _cut(message), "code": code, "hint": _cut(hint)}


def _cut(text: str) -> str:
    return scrub(text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…")


def of_port(error: Throttled | Unavailable | TransportError) -> WeftError:
    """What a caller is told when store or broker fail: to come again, never the cause (it may name
    hosts and accounts)."""
    if isinstance(error, Throttled):
        return errors.ThrottledError(
            "the store is throttling; send the same request again",
            retry_after_ms=error.retry_after_ms,
            code="STORE_THROTTLED",
        )
    return errors.UnavailableError(
        "the platform's storage does not answer; send the same request again, with the same "
        "idempotency key if it had one"
    )


def respond_without_payload(
    error: PayloadNotFound, trace_id: str, function: str
) -> func.HttpResponse:
    """The answer if a stored value that is needed is missing or damaged: 503, for it may come back
    from a backup. Logged: nobody else may notice."""
    logger.error(
        "http request needs a payload that cannot be read: %s",
        error,
        extra={"action": "http_payload", "function": function, "traceId": trace_id},
    )
    message = (
        "a stored input or output is missing or damaged in the payload store; until it is restored,"
        " the list of tasks and the history show the rest"
    )
    return respond(errors.UnavailableError(message, code="PAYLOAD_NOT_FOUND"), trace_id)


def respond_unexpected(error: Exception, trace_id: str, function: str) -> func.HttpResponse:
    """The answer for anything else: 500, nothing of the cause shown.

    The stack is logged, the exceptions' texts are not: they may quote the request (pydantic's do),
    and no payload belongs in a log.
    """
    logger.error(
        "http request failed: %s\n%s",
        type(error).__name__,
        stack(error),
        extra={"action": "http_error", "function": function, "traceId": trace_id},
    )
    internal = WeftError(
        "something went wrong on our side; the log has it under this traceId", code="INTERNAL"
    )
    return respond(internal, trace_id)


def stack(error: BaseException) -> str:
    """Frames and types of an exception and its causes, innermost cause first, without texts."""
    parts: list[str] = []
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        parts.append("".join(traceback.format_tb(link.__traceback__)) + type(link).__name__)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return "\n  caused:\n".join(reversed(parts))
