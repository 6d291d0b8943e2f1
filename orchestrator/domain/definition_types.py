"""The small types of a definition: what a single value may be, and how a wrong one is called.

Each gives both the check (pydantic) and the description for editors (JSON Schema). An error raised
here carries our code, message and hint in its context, so that `faults.py` need not guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from orchestrator.domain.defaults import MAX_ATTEMPT_TIMEOUT_MS
from orchestrator.domain.durations import PATTERN, DurationError, format_duration, parse_duration
from orchestrator.domain.tolerance import PATTERN as SHARE_PATTERN
from orchestrator.domain.topology import MAX_MAP_ITEMS

NAME_PATTERN: Final = r"^[a-z][a-z0-9-]{0,62}$"
TASK_ID_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_-]{0,62}$"
ACTIVITY_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$"

CUSTOM: Final = "weft"
"""Type of the pydantic errors raised here."""


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


def _tolerated(value: Any) -> Any:
    """A count or a share."""
    if type(value) is int:
        if not 0 <= value <= MAX_MAP_ITEMS:
            raise fault("BAD_TOLERANCE", f"must be between 0 and {MAX_MAP_ITEMS} items")
        return value
    if not isinstance(value, str):
        raise fault("WRONG_TYPE", 'must be a number of items, or a share of them such as "10%"')
    if not re.fullmatch(SHARE_PATTERN, value):
        hint = f'write {value.strip()} without quotes, or "{value.strip()}%"'
        raise fault(
            "BAD_TOLERANCE",
            "must be a share from 0% to 100%, with at most two decimals",
            hint if value.strip().isdecimal() and len(value.strip()) < 3 else "",
        )
    return value


ToleratedFailures: TypeAlias = Annotated[
    Any,
    BeforeValidator(_tolerated),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": MAX_MAP_ITEMS},
                {"type": "string", "pattern": SHARE_PATTERN},
            ],
            "description": "How many items may fail: a count, or a share of all items.",
            "examples": [3, "10%", "0.5%"],
        }
    ),
]


Name: TypeAlias = Annotated[str, Field(pattern=NAME_PATTERN)]
ActivityName: TypeAlias = Annotated[str, Field(pattern=ACTIVITY_PATTERN)]
FailureName: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
SignalName: TypeAlias = Annotated[str, Field(pattern=TASK_ID_PATTERN)]
