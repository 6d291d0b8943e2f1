"""When a `wait` is over: the one place that reads `duration` and `until`, for waits by themselves
(the orchestrator's) and inside maps (a worker's)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from orchestrator.domain.evaluation import refused, source_of
from orchestrator.domain.failure import FailureType
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.workflow import TaskSpec

MAX_WAIT_DAYS: Final = 3650  # a wait further ahead is taken for a mistake (seconds for ms, …)
_MAX_WAIT_MS: Final = MAX_WAIT_DAYS * 24 * 3600 * 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def due_time(spec: TaskSpec, until: Json, field: str, now: int) -> int:
    """When the wait `spec` that begins at `now` is over (epoch ms). `until`: the value of its
    `until`, if it has one; `field`: where it stands in the definition, such as `$.tasks.w`. Raises
    `Refused` for what is no time, and for one that is too far ahead."""
    if spec.until is None:
        due_at = now + (spec.duration_ms or 0)
    else:
        due_at = _time(until, f"{field}.until", source_of(spec.until))
    if due_at - now > _MAX_WAIT_MS:
        field += ".duration" if spec.until is None else ".until"
        raise refused(
            FailureType.WAIT_INVALID, f"the wait is longer than {MAX_WAIT_DAYS} days", field
        )
    return due_at


def _time(value: Json, field: str, source: str) -> int:
    """An ISO 8601 time, epoch milliseconds, rounded up: never fire before it."""
    if not isinstance(value, str):
        message = f"`until` must give an ISO 8601 time as text, not {kind_of(value)}"
        raise refused(FailureType.WAIT_INVALID, message, field, source)
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        message = "`until` is not an ISO 8601 time"
        raise refused(FailureType.WAIT_INVALID, message, field, source) from None
    if time.utcoffset() is None:
        message = "`until` has no offset: write Z or +01:00 at the end"
        raise refused(FailureType.WAIT_INVALID, message, field, source)
    return -((_EPOCH - time) // _MILLISECOND)


_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}


def kind_of(value: object) -> str:
    """What a JSON value is called in a message."""
    return _KINDS.get(type(value), "something else")
