"""The `request` of an http task: what the activity would refuse at run time is refused here.

As far, that is, as it can be seen before the expressions have values."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from orchestrator.domain.definition_types import Model, fault
from orchestrator.domain.durations import DurationError, parse_duration

MAX_SUCCESS_CODES: Final = 100

_CODES: Final = re.compile(r"([1-5][0-9]{2})(?:\s*-\s*([1-5][0-9]{2}))?")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LINE_BREAK: Final = re.compile(r"[\r\n\0]")
_ONE_UNIT: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,3})?(?:ms|s|m|h)")

_SCALAR_TYPES: Final = ["string", "number", "boolean", "null"]
_SCALAR_SCHEMA: Final[dict[str, Any]] = {"type": _SCALAR_TYPES}


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _header(value: Any) -> Any:
    if not _is_scalar(value):
        raise fault("WRONG_TYPE", "must be text, a number, true, false or null")
    # Line breaks inside an expression are fine; what it gives is checked when it is known.
    if isinstance(value, str) and "${" not in value and _LINE_BREAK.search(value):
        raise fault("BAD_VALUE", "holds a line break or NUL")
    return value


def _header_names(value: dict[str, Any]) -> dict[str, Any]:
    for name in value:
        if not _HEADER_NAME.fullmatch(name):
            raise fault("BAD_VALUE", f"{name[:80]!r} is not a header name")
    return value


def _listed(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]


def _query(value: Any) -> Any:
    if not all(_is_scalar(item) for item in _listed(value)):
        raise fault("WRONG_TYPE", "must be text, a number, true, false, null or a list of these")
    return value


def _success_code(value: Any) -> Any:
    if type(value) is int and 100 <= value <= 599:
        return value
    if isinstance(value, str):
        found = _CODES.fullmatch(value)
        if "${" in value or (found and found[1] <= (found[2] or found[1])):
            return value
    raise fault("BAD_VALUE", 'must be a status (100 to 599) or a range such as "200-299"')


def _url(value: str) -> str:
    start, found, _ = value.partition("${")
    if not found or "://" in start:
        scheme, separator, rest = start.partition("://")
        if not separator or scheme.lower() not in ("http", "https") or not (rest or found):
            raise fault("BAD_URL", "must be an http or https URL", "write https://host/path")
    return value


def _timeout(value: Any) -> Any:
    if isinstance(value, str) and "${" in value:
        return value
    if not isinstance(value, str):
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return value
        raise fault("WRONG_TYPE", "must be a duration such as 500ms or 30s, or seconds over 0")
    try:
        parse_duration(value)
    except DurationError as error:
        raise fault("BAD_DURATION", error.message) from None
    if not _ONE_UNIT.fullmatch(value):
        raise fault("BAD_DURATION", f"{value}: write it in one unit here, such as 500ms or 90s")
    return value


Header: TypeAlias = Annotated[Any, BeforeValidator(_header), WithJsonSchema(_SCALAR_SCHEMA)]
QueryValue: TypeAlias = Annotated[
    Any,
    BeforeValidator(_query),
    WithJsonSchema({"type": [*_SCALAR_TYPES, "array"], "items": _SCALAR_SCHEMA}),
]
SuccessCode: TypeAlias = Annotated[
    Any,
    BeforeValidator(_success_code),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 100, "maximum": 599},
                {"type": "string", "pattern": r"^[1-5][0-9]{2}(\s*-\s*[1-5][0-9]{2})?$|\$\{"},
            ]
        }
    ),
]
RequestTimeout: TypeAlias = Annotated[
    Any,
    BeforeValidator(_timeout),
    WithJsonSchema(
        {
            "type": ["string", "number"],
            "description": "Of the exchange: a duration in one unit (500ms, 30s), or seconds.",
        }
    ),
]


class HttpRequest(Model):
    """An HTTP request; its texts may hold expressions."""

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    url: Annotated[str, Field(min_length=1), AfterValidator(_url)]
    headers: Annotated[dict[str, Header], AfterValidator(_header_names)] = Field(
        default_factory=dict[str, Any]
    )
    """A null leaves the header out."""
    query: dict[str, QueryValue] = Field(default_factory=dict[str, Any])
    """A list repeats the parameter; a null leaves it out."""
    body: Any = None
    """Sent as JSON; a text with a content type that is not JSON is sent as it is."""
    success_codes: Annotated[
        list[SuccessCode], Field(min_length=1, max_length=MAX_SUCCESS_CODES)
    ] = Field(default_factory=lambda: ["200-299"])
    """Statuses that count as success."""
    timeout: RequestTimeout = None
