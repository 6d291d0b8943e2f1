"""The error tree. Every error that may reach a user has a stable code and says what to do next.

`functions/http_errors.py` maps the classes to status codes in one table; nothing here knows HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """One finding: `field` is a JSON path such as `$.tasks.pack.needs[0]`."""

    field: str
    message: str
    code: str = ""
    hint: str = ""


class WeftError(Exception):
    """Base of all errors meant for a user.

    Attributes: `code` (stable, UPPER_SNAKE), `message` (what was expected and what to do),
    `details` (every finding, not only the first).
    """

    code: str = "INTERNAL"

    def __init__(
        self, message: str, *, code: str | None = None, details: Sequence[ErrorDetail] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details: tuple[ErrorDetail, ...] = tuple(details)
        if code is not None:
            self.code = code


class MalformedError(WeftError):
    """The request cannot be read at all (not JSON, bad cursor, limit out of range): 400."""

    code = "MALFORMED"


class UnauthenticatedError(WeftError):
    """Nobody knows who asks: no token, or one that proves nothing: 401."""

    code = "TOKEN_MISSING"


class ForbiddenError(WeftError):
    """The caller is known and may not do this: 403. `scope` is what is missing, if it is one."""

    code = "FORBIDDEN"

    def __init__(self, message: str, *, scope: str = "", code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.scope = scope


class NotFoundError(WeftError):
    """No such workflow, version, execution or task for this tenant: 404."""

    code = "NOT_FOUND"


class ConflictError(WeftError):
    """The request contradicts what is stored (idempotency key reused, archived workflow): 409."""

    code = "CONFLICT"


class PreconditionError(WeftError):
    """It has changed since the caller read it (`If-Match`): 412."""

    code = "PRECONDITION_FAILED"


class TooLargeError(WeftError):
    """A body, payload or document is over its limit: 413."""

    code = "TOO_LARGE"


class UnsupportedMediaError(WeftError):
    """The content type is not one that the route reads: 415."""

    code = "UNSUPPORTED_MEDIA_TYPE"


class InvalidError(WeftError):
    """Readable but wrong (definition or input fails validation): 422, with all findings."""

    code = "INVALID"


class ThrottledError(WeftError):
    """Refused at admission or by the store: 429 with `retry_after_ms`."""

    code = "THROTTLED"

    def __init__(
        self,
        message: str,
        *,
        retry_after_ms: int,
        code: str | None = None,
        details: Sequence[ErrorDetail] = (),
    ) -> None:
        super().__init__(message, code=code, details=details)
        self.retry_after_ms = retry_after_ms


class LimitError(ThrottledError):
    """A limit of the tenant is reached: 429. `limit` is its name; nothing was stored."""

    code = "LIMIT_EXCEEDED"

    def __init__(self, limit: str, allowed: float, current: float, *, retry_after_ms: int) -> None:
        seconds = max(1, -(-retry_after_ms // 1000))
        super().__init__(
            f"the tenant's limit {limit} ({allowed:g}) is reached; try again in {seconds} s, or "
            "ask the platform's operators for more",
            retry_after_ms=retry_after_ms,
            details=(ErrorDetail(limit, f"{allowed:g} allowed, now {current:g}", self.code),),
        )
        self.limit = limit


class UnavailableError(WeftError):
    """A dependency does not answer; the same request may succeed later: 503."""

    code = "UNAVAILABLE"
