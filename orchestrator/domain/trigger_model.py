"""What a trigger may say: the single values, each by itself. `triggers` checks the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, TypeAlias, cast

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails

from orchestrator.domain.definition_types import CUSTOM, Model, Name
from orchestrator.domain.errors import ErrorDetail
from orchestrator.domain.faults import LIMITS, NAME_HINTS, WRONG_TYPE
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import child_path
from orchestrator.domain.nearest import Nearest

MAX_CHOICES: Final = 50
MAX_TEXT: Final = 2_048

_Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _subject(value: Any) -> Any:
    return {"exact": value} if isinstance(value, str) else value


_Choices: TypeAlias = Annotated[
    list[_Text],
    BeforeValidator(_listed),
    Field(min_length=1, max_length=MAX_CHOICES),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1},
                    "minItems": 1,
                    "maxItems": MAX_CHOICES,
                },
            ]
        }
    ),
]


class SubjectModel(Model):
    """Which subjects: a text is exactly that one."""

    exact: _Text | None = None
    prefix: _Text | None = None
    suffix: _Text | None = None


class MatchModel(Model):
    """Which events. All that is given must hold."""

    source: _Choices | None = None
    type: _Choices | None = None
    subject: (
        Annotated[
            SubjectModel,
            BeforeValidator(_subject),
            WithJsonSchema(
                {
                    "anyOf": [
                        {"type": "string", "minLength": 1},
                        {
                            "type": "object",
                            "properties": {
                                name: {"type": "string", "minLength": 1}
                                for name in ("exact", "prefix", "suffix")
                            },
                            "additionalProperties": False,
                        },
                    ]
                }
            ),
        ]
        | None
    ) = None


class TriggerModel(Model):
    """A trigger as it is sent."""

    name: Name
    description: Annotated[str, Field(max_length=MAX_TEXT)] = ""
    workflow: Name
    match: MatchModel
    filter: Annotated[str, Field(min_length=1)] | None = None
    input: Any = None
    tags: dict[str, str] = Field(default_factory=dict)
    paused: bool = False


_MODELS: Final[dict[str, type[Model]]] = {"match": MatchModel, "subject": SubjectModel}


def translate(error: ValidationError, raw: Json, nearest: Nearest) -> Iterator[ErrorDetail]:
    """Our findings, each with the path of what was written."""
    for found in error.errors(include_url=False, include_input=False):
        yield _detail(found, raw, nearest)


def _detail(found: ErrorDetails, raw: Json, nearest: Nearest) -> ErrorDetail:
    path, model = _place(found["loc"], raw)
    kind = found["type"]
    context: dict[str, Any] = found.get("ctx", {})
    last = str(found["loc"][-1]) if found["loc"] else ""
    if kind == CUSTOM:
        return ErrorDetail(path, context["message"], context["code"], context["hint"])
    if kind == "extra_forbidden":
        known = [field.alias or key for key, field in model.model_fields.items()]
        hint = nearest.field_hint(last, known)
        return ErrorDetail(path, f"`{last[:80]}` is not a field here", "UNKNOWN_FIELD", hint)
    if kind == "missing":
        return ErrorDetail(path, f"`{last}` is missing", "MISSING_FIELD")
    if kind in WRONG_TYPE:
        return ErrorDetail(path, WRONG_TYPE[kind], "WRONG_TYPE")
    code = "BAD_NAME" if kind == "string_pattern_mismatch" else "BAD_VALUE"
    message = LIMITS[kind].format(**context) if kind in LIMITS else found["msg"]
    return ErrorDetail(path, message, code, NAME_HINTS.get(context.get("pattern", ""), ""))


def _place(loc: tuple[int | str, ...], raw: Json) -> tuple[str, type[Model]]:
    """The user's path: a text that stands for a list (or for an exact subject) has no places
    inside."""
    path, value = "$", raw
    model: type[Model] = TriggerModel
    for position, step in enumerate(loc):
        if not isinstance(value, dict | list):
            break
        path = child_path(path, step)
        if position < len(loc) - 1:
            model = _MODELS.get(str(step), model)
        value = _inside(value, step)
    return path, model


def _inside(value: dict[str, Json] | list[Json], step: int | str) -> Json:
    if isinstance(value, dict):
        return cast("Mapping[str | int, Json]", value).get(step)
    return value[step] if isinstance(step, int) and step < len(value) else None
