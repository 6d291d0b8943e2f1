"""The small types of a definition: what a single value may be, and how a wrong one is called.

Each gives both the check (pydantic) and the description for editors (JSON Schema). An error raised
here carries our code, message and hint in its context, so that `faults.py` need not guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from orchestrator.domain.defaults import MAX_ATTEMPT_TIMEOUT_MS
from orchestrator.domain.durations import PATTERN, DurationError, format_duration, parse_duration

NAME_PATTERN: Final = r"^[a-z][a-z0-9-]{0,62}$"
TASK_ID_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_-]{0,62}$"
ACTIVITY_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$"

CUSTOM: Final = "weft"
"""Type of the pydantic errors raised here."""

MAX_SUCCESS_CODES: Final = 100
_RANGE: Final = re.compile(r"([1-5][0-9]{2})-([1-5][0-9]{2})")


class Model(BaseModel):
    """Base of all: camelCase on the wire, nothing unknown, no conversions (`true` is no number,
    `"3"` is no integer)."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        strict=True,
        frozen=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


def fault(code: str, message: str, hint: str = "") -> PydanticCustomError:
    """An error with our own code; `faults.py` reads it back from the context."""
    context = {"code": code, "message": message, "hint": hint}
    return PydanticCustomError(CUSTOM, "{message}", context)


def _duration(*, allow_zero: bool = False, most: int | None = None) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if not isinstance(value, str):
            hint = f'write "{value}s" or "{value}ms"' if type(value) is int and value > 0 else ""
            raise fault("WRONG_TYPE", "must be a duration as text, such as 30s or 1h30m", hint)
        try:
            ms = parse_duration(value, allow_zero=allow_zero)
        except DurationError as error:
            raise fault("BAD_DURATION", error.message) from None
        if most is not None and ms > most:
            raise fault(
                "BAD_DURATION",
                f"{value} is longer than one attempt may take, {format_duration(most)}",
                "use several tasks, or a task type that does not occupy a worker",
            )
        return ms

    return check


def _duration_schema(description: str) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "type": "string",
            "pattern": PATTERN,
            "description": f"{description} Like 500ms, 30s, 5m, 2h, 1d, 1h30m, or PT1H30M.",
            "examples": ["30s", "1h30m", "PT1H30M"],
        }
    )


Duration: TypeAlias = Annotated[
    int, BeforeValidator(_duration()), _duration_schema("A duration, more than zero.")
]
DurationOrZero: TypeAlias = Annotated[
    int,
    BeforeValidator(_duration(allow_zero=True)),
    _duration_schema("A duration, zero or more."),
]
AttemptTimeout: TypeAlias = Annotated[
    int,
    BeforeValidator(_duration(most=MAX_ATTEMPT_TIMEOUT_MS)),
    _duration_schema(
        f"The time one attempt may take, at most {format_duration(MAX_ATTEMPT_TIMEOUT_MS)}."
    ),
]


def _when(value: Any) -> Any:
    if not isinstance(value, (str, bool)):
        raise fault("WRONG_TYPE", "must be true, false or one expression: ${…}")
    return value


When: TypeAlias = Annotated[
    Any,
    BeforeValidator(_when),
    WithJsonSchema(
        {
            "type": ["string", "boolean"],
            "description": "Run only if this is true: one expression, ${…}. Else it is skipped.",
        }
    ),
]


def _schema(value: Any) -> Any:
    if not isinstance(value, (dict, bool)):
        raise fault("WRONG_TYPE", "must be a JSON Schema: an object, true or false")
    return value  # pyright: ignore[reportUnknownVariableType]


JsonSchema: TypeAlias = Annotated[
    Any,
    BeforeValidator(_schema),
    WithJsonSchema(
        {"type": ["object", "boolean"], "description": "A JSON Schema (draft 2020-12)."}
    ),
]


def _items(value: Any) -> Any:
    if isinstance(value, list) or (isinstance(value, str) and "${" in value):
        return value  # pyright: ignore[reportUnknownVariableType]
    raise fault("WRONG_TYPE", "must be a list, or one expression that gives a list: ${…}")


Items: TypeAlias = Annotated[
    Any,
    BeforeValidator(_items),
    WithJsonSchema(
        {"type": ["string", "array"], "description": "A list, or one expression that gives one."}
    ),
]


def _success_code(value: Any) -> Any:
    if type(value) is int and 100 <= value <= 599:
        return value
    if isinstance(value, str) and (found := _RANGE.fullmatch(value)) and found[1] <= found[2]:
        return value
    raise fault("BAD_VALUE", 'must be a status (100 to 599) or a range such as "200-299"')


SuccessCode: TypeAlias = Annotated[
    Any,
    BeforeValidator(_success_code),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 100, "maximum": 599},
                {"type": "string", "pattern": "^[1-5][0-9]{2}-[1-5][0-9]{2}$"},
            ]
        }
    ),
]

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _headers(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _HEADER_NAME.fullmatch(name):
            raise fault("BAD_VALUE", f"{name[:80]!r} is not a header name")
        # Line breaks inside an expression are fine; what it gives is checked when it is known.
        if "${" not in text and any(mark in text for mark in "\r\n\0"):
            raise fault("BAD_VALUE", f"the header {name} holds a line break or NUL")
    return value


HEADERS_CHECK: Final = _headers


def _url(value: str) -> str:
    start = value.split("${", 1)[0]
    if start == value or "://" in start:
        scheme, found, rest = start.partition("://")
        if not found or scheme.lower() not in ("http", "https") or (start == value and not rest):
            raise fault("BAD_URL", "must be an http or https URL", "write https://host/path")
    return value


URL_CHECK: Final = _url

Method: TypeAlias = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Name: TypeAlias = Annotated[str, Field(pattern=NAME_PATTERN)]
ActivityName: TypeAlias = Annotated[str, Field(pattern=ACTIVITY_PATTERN)]
FailureName: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
