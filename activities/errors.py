"""What an activity may raise to say more than "it failed".

Any exception fails the attempt and is retried as the task's policy says. These let the author
decide instead; without them a refused credit card would be charged again until the attempts end.
"""

from __future__ import annotations

import math
from typing import Final

MAX_RETRY_AFTER_SECONDS: Final = 24 * 3600
"""A dependency that asks for a longer pause gets this one: a task must not vanish for years
because a header held a wrong number."""


class FailureTypes:
    """Failure types that runner and built-in activities add to `orchestrator.domain.failure`."""

    WORKER_SATURATED: Final = "WORKER_SATURATED"  # too many hung threads in this process
    CANCELLED: Final = "CancelledError"  # the activity cancelled itself


class PermanentError(Exception):
    """Trying again cannot help: the task fails at once, whatever its retry policy says.

    `type`: name of the failure as `retryable`/`nonRetryable` and handlers see it; the class name
    unless given.
    """

    retryable = False

    def __init__(self, message: str, *, type: str | None = None) -> None:
        super().__init__(message)
        self.type = type


class RetryableError(Exception):
    """Worth another attempt.

    `retry_after`: seconds that the dependency asked to wait. Zero, negative and not finite values
    are ignored; more than a day is cut to a day. `type` as in `PermanentError`.
    """

    retryable = True

    def __init__(
        self, message: str, *, retry_after: float | None = None, type: str | None = None
    ) -> None:
        super().__init__(message)
        self.type = type
        self.retry_after_ms = _milliseconds(retry_after)


class Cancelled(BaseException):
    """Raised by `Context.raise_if_cancelled`.

    Not an `Exception`, for the reason that `asyncio.CancelledError` is none: a loop with a broad
    `except Exception` would otherwise swallow it and work on for nobody.
    """


class RegistrationError(Exception):
    """An activity cannot be registered (name, signature, duplicate, module that fails to import);
    the message says what to change."""


def _milliseconds(seconds: float | None) -> int | None:
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        return None
    return max(1, round(min(seconds, MAX_RETRY_AFTER_SECONDS) * 1000))
