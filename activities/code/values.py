"""Values of code workflows as JSON text, and secrets, which are never in it.

A workflow's history keeps all that passes through it, so a secret may only be named there: its
place in an activity's input is told beside the input, and the worker puts the value in. That is no
template: what a user sends in can never become a secret's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from datetime import date
from typing import Any

from pydantic import BaseModel, TypeAdapter

from orchestrator.domain import jsonvalues
from orchestrator.domain.durations import DurationError, parse_duration
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.orchestration_result import MAX_STEP_BYTES, step_too_large
from orchestrator.ports import ActivityFailed

_ANY: TypeAdapter[Any] = TypeAdapter(Any)


@dataclass(frozen=True, slots=True)
class Secret:
    """A tenant's secret, by name. Stands in an activity's input, in a dict or list."""

    name: str


def to_json(value: Any, *, what: str) -> Json:
    """`value` as JSON: models, dataclasses and dates through pydantic; sets are refused, since
    their order differs from one process to the next. Raises `ActivityFailed` OUTPUT_NOT_JSON, not
    retryable."""
    try:
        return jsonvalues.check_json(_plain(value))
    except ValueError as error:  # pydantic's errors too
        message = f"{what} is no JSON: {error}"
        raise ActivityFailed(
            Failure(type=FailureType.OUTPUT_NOT_JSON, message=message, retryable=False)
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel | date) or (is_dataclass(value) and not isinstance(value, type)):
        return _ANY.dump_python(value, mode="json", by_alias=True)
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def to_text(value: Any, *, what: str) -> str:
    """`to_json` as text of at most `MAX_STEP_BYTES`. Raises `ActivityFailed`, also with
    PAYLOAD_TOO_LARGE."""
    text = jsonvalues.dumps(to_json(value, what=what))
    check_size(len(text), what=what)
    return text.decode()


def check_size(size: int, *, what: str) -> None:
    """Raises `ActivityFailed` PAYLOAD_TOO_LARGE, not retryable."""
    if size <= MAX_STEP_BYTES:
        return
    message = step_too_large(what, size)
    raise ActivityFailed(
        Failure(type=FailureType.PAYLOAD_TOO_LARGE, message=message, retryable=False)
    )


def duration_ms(text: str, *, allow_zero: bool = False) -> int:
    """`parse_duration` as Python's own functions fail: raises `ValueError`."""
    try:
        return parse_duration(text, allow_zero=allow_zero)
    except DurationError as error:
        raise ValueError(error.message) from None


def take_secrets(value: Any) -> tuple[Any, list[list[Any]]]:
    """`value` with None for each `Secret`, and where they were: `[[path, name], …]`."""
    found: list[list[Any]] = []

    def walk(one: Any, path: list[str | int]) -> Any:
        if isinstance(one, Secret):
            found.append([path, one.name])
            return None
        if isinstance(one, BaseModel):
            return one
        if isinstance(one, Mapping):
            return {key: walk(inner, [*path, key]) for key, inner in one.items()}
        if isinstance(one, list | tuple):
            return [walk(inner, [*path, index]) for index, inner in enumerate(one)]
        return one

    return walk(value, []), found
