"""What activities and code workflows return, as JSON of the type that they declare.

Pydantic takes an instance of the declared model as it is: one that was built without validation, or
changed after it, would pass. So models are held against their rules once more. Only the rules of
types and fields: what validators of the author's own say is not asked for a second time, since they
may expect what the first time was given to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError

from activities.registry import Activity
from activities.values import findings, in_words
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import NotJson, check_json, child_path
from orchestrator.ports import ActivityFailed

Path = tuple[int | str, ...]
_OF_VALIDATORS: Final = frozenset({"value_error", "assertion_error"})
_FIELD: Final = re.compile(r"\[field_name='([^']*)'")


class NotAsDeclared(Exception):
    """The value is not of the type; the text has paths and rules, but no values."""


def write_output(activity: Activity, result: Any) -> Json:
    """What the activity returned, as JSON: through its return type if it has one (by alias).

    Raises `ActivityFailed`, not retryable because the work is done and would be done again:
    OUTPUT_INVALID if it is not of the declared type, OUTPUT_NOT_JSON if it is no JSON (with the
    path).
    """
    adapter = activity.signature.output
    try:
        return check_json(result if adapter is None else as_declared(adapter, result))
    except NotAsDeclared as exc:
        kind, reason = FailureType.OUTPUT_INVALID, str(exc)
    except NotJson as exc:
        kind, reason = FailureType.OUTPUT_NOT_JSON, str(exc)
    raise ActivityFailed(
        Failure(
            type=kind,
            message=f"the output of {activity.name} is not valid: {reason}",
            retryable=False,
        )
    )


def as_declared(adapter: TypeAdapter[Any], value: Any) -> Any:
    """`value` as JSON (by alias; floats may still be none of JSON's). Raises `NotAsDeclared`."""
    try:
        checked = adapter.validate_python(value)
        if wrong := [one for path, model in _models(checked, ()) for one in _again(path, model)]:
            raise NotAsDeclared(in_words(wrong))
        # A part of another type would be dumped with a mere warning; it is a wrong output.
        return adapter.dump_python(checked, mode="json", by_alias=True, warnings="error")
    except ValidationError as error:
        raise NotAsDeclared(findings(error)) from None
    except PydanticSerializationError as error:
        # Its text has the values, too.
        fields = dict.fromkeys(_FIELD.findall(str(error)))
        parts = [child_path("$", name) for name in fields] or ["$: a part"]
        raise NotAsDeclared(f"{', '.join(parts)} is not of the type it declares") from None


def _models(value: Any, path: Path) -> Iterator[tuple[Path, BaseModel]]:
    """Every model within, with its place."""
    if isinstance(value, BaseModel):
        yield path, value
        value = _fields(value)
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _models(inner, (*path, key if isinstance(key, int) else str(key)))
    elif isinstance(value, list | tuple | set | frozenset):
        for index, inner in enumerate(value):
            yield from _models(inner, (*path, index))


def _fields(model: BaseModel) -> dict[str, Any]:
    """By their names; what a model keeps beside them (cached properties) is left out."""
    known = type(model).model_fields
    own = {name: given for name, given in model.__dict__.items() if name in known}
    return {**own, **(model.__pydantic_extra__ or {})}


def _again(path: Path, model: BaseModel) -> list[ErrorDetails]:
    given: Any = _fields(model)
    given = given.get("root") if getattr(type(model), "__pydantic_root_model__", False) else given
    try:
        type(model).model_validate(given, by_alias=False, by_name=True)
    except ValidationError as error:
        return [
            {**one, "loc": (*path, *one["loc"])}
            for one in error.errors(include_url=False)
            if one["type"] not in _OF_VALIDATORS
        ]
    except Exception:  # of the author's validators
        return []
    return []
