"""The parameters that several routes share, and the readers that check them.

One declaration serves the check and the API description, so the two cannot drift apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from orchestrator.domain import tags
from orchestrator.domain.dependencies import MAX_NAME_CHARS, NAME_RULE, is_name
from orchestrator.domain.durations import DurationError, parse_duration
from orchestrator.functions.requests import Param

MAX_WAIT_MS: Final = 200_000  # Azure ends an HTTP answer at 230 s; this leaves time to answer
MAX_LIMIT: Final = 200
DEFAULT_LIMIT: Final = 50
MAX_ID_CHARS: Final = 255
_INT64: Final = 2**63 - 1


def integer(low: int, high: int) -> Callable[[str], int]:
    """Reader of a whole number from `low` to `high`, in plain digits."""

    def read(text: str) -> int:
        # Not int(): it also takes '+1', '1_000', ' 1' and digits of other scripts.
        if not re.fullmatch(r"0|[1-9][0-9]{0,18}", text, re.ASCII) or not low <= int(text) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(text)

    return read


def boolean(text: str) -> bool:
    """Reader of `true` or `false`."""
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def choice(kind: Iterable[StrEnum]) -> Callable[[str], StrEnum]:
    """Reader of one of an enumeration's values, or of some of them."""
    known = {member.value: member for member in kind}

    def read(text: str) -> StrEnum:
        try:
            return known[text]
        except (KeyError, TypeError):  # a body may hold anything there
            raise ValueError(f"must be one of {', '.join(known)}") from None

    return read


def instant(text: str) -> int:
    """Reader of an ISO 8601 time with an offset; epoch milliseconds."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(
            "must be an ISO 8601 time with an offset, such as 2026-11-30T12:00:00Z "
            "(in a query a + is written %2B)"
        )
    # In whole milliseconds, without a detour through a float.
    span = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (span.days * 86_400 + span.seconds) * 1000 + span.microseconds // 1000


def wait(text: str) -> int:
    """Reader of a duration of at most 200 s; milliseconds."""
    try:
        ms = parse_duration(text, allow_zero=True)
    except DurationError as error:
        raise ValueError(error.message) from None
    if ms > MAX_WAIT_MS:
        raise ValueError(f"must be at most {MAX_WAIT_MS // 1000}s; ask again for more")
    return ms


def tag(text: str) -> tuple[str, str]:
    """Reader of `name=value`; the value may have further equals signs, or be empty."""
    name, equals, value = text.partition("=")
    if not (equals and tags.is_name(name)):
        raise ValueError(f"must be name=value, the name of {tags.NAME_RULE}")
    if len(value) > tags.MAX_VALUE_CHARS:
        raise ValueError(f"a tag's value has at most {tags.MAX_VALUE_CHARS} characters")
    return name, value


def line(text: str) -> str:
    """Reader of a text on one line, such as a person's name or an idempotency key."""
    if not 0 < len(text) <= MAX_ID_CHARS or not text.isprintable():
        raise ValueError(f"must have 1 to {MAX_ID_CHARS} printable characters")
    return text


def identifier(text: str) -> str:
    """Reader of a name or id in a path. Whether it exists is not asked here.

    Hosts differ in what they decode (`%2F` stays as it is on Azure), so a percent sign is refused
    along with what it might stand for: no id has one.
    """
    if not text or len(text) > MAX_ID_CHARS:
        raise ValueError(f"must have 1 to {MAX_ID_CHARS} characters")
    if not text.isprintable() or re.search(r"[/\\?#%]", text):
        raise ValueError("must not contain control characters or any of / \\ ? # %")
    return text


def dependency(text: str) -> str:
    """Reader of the name of a dependency, in lower case."""
    if not is_name(text):
        raise ValueError(f"must have {NAME_RULE}")
    return text.lower()


def text_filter(
    name: str, description: str, example: str | None = None, *, read: Callable[[str], Any] = line
) -> Param:
    """A filter of a list by a text that must be met whole."""
    return Param(
        name=name, description=description, schema={"type": "string"}, read=read, example=example
    )


def enum_filter(name: str, description: str, kind: Iterable[StrEnum]) -> Param:
    """A filter of a list by one of these values."""
    members = list(kind)
    schema = {"type": "string", "enum": [member.value for member in members]}
    return Param(name=name, description=description, schema=schema, read=choice(members))


def time_filter(name: str, description: str) -> Param:
    """A filter of a list by time."""
    schema = {"type": "string", "format": "date-time"}
    return Param(name=name, description=description, schema=schema, read=instant)


def _id(
    name: str,
    description: str,
    *,
    example: str | None = None,
    longest: int = MAX_ID_CHARS,
    read: Callable[[str], str] = identifier,
) -> Param:
    """A name or id in a path."""
    return Param(
        name=name,
        description=description,
        schema={"type": "string", "minLength": 1, "maxLength": longest},
        read=read,
        example=example,
    )


NAME: Final = _id("name", "Name of the workflow", example="order-fulfilment")
NUMBER: Final = Param(
    name="n",
    description="Version number",
    schema={"type": "integer", "minimum": 1},
    read=integer(1, _INT64),
    example=1,
)
EXECUTION: Final = _id("id", "Id of the execution")
TASK: Final = _id("taskId", "Id of the task in the definition", example="charge")
LETTER: Final = _id("letterId", "Id of the dead letter")
SCHEDULE: Final = _id("schedule", "Name of the schedule", example="nightly-report")
DEPENDENCY: Final = _id(
    "dependency",
    "Host (and port, if it is not the scheme's own), or an activity's `dependency`",
    example="pay.example",
    longest=MAX_NAME_CHARS,
    read=dependency,
)
TRIGGER: Final = _id("triggerName", "Name of the event trigger", example="big-orders")
TENANT: Final = _id("tenantId", "Name of the tenant", example="acme", longest=MAX_NAME_CHARS)
ARCHIVE: Final = _id("archiveId", "Id of the archive: of the execution, and when it ended")
PATH: Final[dict[str, Param]] = {
    param.name: param
    for param in (
        NAME,
        NUMBER,
        EXECUTION,
        TASK,
        LETTER,
        SCHEDULE,
        DEPENDENCY,
        TRIGGER,
        TENANT,
        ARCHIVE,
    )
}

LIMIT: Final = Param(
    name="limit",
    description="How many items at most",
    schema={"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    read=integer(1, MAX_LIMIT),
    default=DEFAULT_LIMIT,
)
CURSOR: Final = Param(
    name="cursor",
    description="`nextCursor` of the previous page, with the same filters",
    schema={"type": "string"},
)
PAGING: Final = (LIMIT, CURSOR)
