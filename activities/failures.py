"""Exceptions become failures here, once, whatever an activity throws.

A worker must survive `sys.exit()`, an exception whose text cannot be made, a chain that loops and
an error text of megabytes: each ends as a bounded `Failure` that can be stored.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import Final

from activities.errors import FailureTypes, PermanentError, RetryableError
from orchestrator.domain import redaction
from orchestrator.domain.failure import MAX_CAUSES, Failure, FailureType
from orchestrator.ports import ActivityFailed

MAX_FRAMES: Final = 12  # of a logged traceback, the innermost


def failure_of(error: BaseException) -> Failure:
    """The failure that `error` means, bounded to 16 KiB with its chain of causes."""
    if isinstance(error, ActivityFailed):
        return redaction.current().failure(error.failure).bounded()
    # Before it is cut: what is left of a secret there would not be found.
    return redaction.current().failure(_one(error, _causes(error))).bounded()


def frames_of(error: BaseException) -> list[str]:
    """`file:line function` of the innermost frames, outermost first: where it happened, without
    source text, values or the error's message."""
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def _one(error: BaseException, causes: tuple[Failure, ...] = ()) -> Failure:
    kind, retry_after_ms = type(error).__name__, None
    message = _text(error)
    if isinstance(error, PermanentError | RetryableError):
        kind = error.type or kind
        if isinstance(error, RetryableError):
            retry_after_ms = error.retry_after_ms
    elif isinstance(error, SystemExit | KeyboardInterrupt):
        message = f"the activity tried to end the process ({kind}: {message})"
        kind = FailureType.EXITED
    elif isinstance(error, asyncio.CancelledError):
        kind = FailureTypes.CANCELLED
        message = "the activity was cancelled from within, not by Weft"
    return Failure(
        type=kind,
        message=message,
        retryable=not isinstance(error, PermanentError),
        retry_after_ms=retry_after_ms,
        causes=causes,
    )


def _causes(error: BaseException) -> tuple[Failure, ...]:
    """The chain below `error` as Python would print it, and the members of exception groups, each
    once (a chain may loop), at most `MAX_CAUSES`."""
    seen = {id(error)}
    found: list[Failure] = []
    waiting = _below(error)
    while waiting and len(found) < MAX_CAUSES:
        cause = waiting.pop(0)
        if id(cause) not in seen:
            seen.add(id(cause))
            found.append(cause.failure if isinstance(cause, ActivityFailed) else _one(cause))
            waiting = _below(cause) + waiting
    return tuple(found)


def _below(error: BaseException) -> list[BaseException]:
    below: list[BaseException] = []
    if isinstance(error, BaseExceptionGroup):
        below.extend(error.exceptions[:MAX_CAUSES])
    if error.__cause__ is not None:
        below.append(error.__cause__)
    elif error.__context__ is not None and not error.__suppress_context__:
        below.append(error.__context__)
    return below


def _text(error: BaseException) -> str:
    """`str(error)`, which is code of the activity's author and may itself raise anything."""
    try:
        return str(error) or repr(error)
    except BaseException as exc:
        return f"(no text: making it raised {type(exc).__name__})"
