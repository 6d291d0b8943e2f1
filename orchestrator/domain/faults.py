"""Pydantic's findings in our words: stable codes, JSON paths of what the user wrote, and hints.

Pydantic names a place by the models it went through (`tasks, a, activity, needs, 0`: the third is
the chosen type, not a key). The walk here follows the models, so that the path is the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.domain import definition as models
from orchestrator.domain.definition_concurrency import Concurrency
from orchestrator.domain.definition_http import HttpRequest
from orchestrator.domain.definition_types import CUSTOM, NAME_PATTERN, Model
from orchestrator.domain.errors import ErrorDetail
from orchestrator.domain.jsonvalues import child_path
from orchestrator.domain.nearest import Nearest


def _by_type(union: Any) -> dict[str, type[Model]]:
    members: tuple[type[Model], ...] = get_args(get_args(union)[0])
    return {get_args(m.model_fields["type"].annotation)[0]: m for m in members}


TASK_MODELS: Final = _by_type(models.Task)
DO_MODELS: Final = _by_type(models.Do)

_CHILDREN: Final[dict[str, type[Model]]] = {
    "defaults": models.Defaults,
    "retry": models.Retry,
    "request": HttpRequest,
    "event": models.Event,
    "concurrency": Concurrency,
}
_DEADLINE_HINTS: Final = {
    "do": "put it on the map: there it counts for all items together",
    "compensate": "a compensation has none; bound its attempts by `timeout` and `retry`",
}
_WAITS: Final = (models.WaitTask, models.WaitDo)
_NOT_IN_DO_NAMES: Final = frozenset(
    field.alias or name for name, field in models.TaskCommon.model_fields.items()
)

WRONG_TYPE: Final[dict[str, str]] = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_attributes_type": "must be an object",
}
NAME_HINTS: Final = {
    NAME_PATTERN: "lower-case letters, digits and hyphens, a letter first, at most 63",
}
LIMITS: Final[dict[str, str]] = {
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "string_unicode": "must be text that UTF-8 can hold",
}


def translate(
    error: ValidationError,
    task_paths: Mapping[str, str],
    nearest: Nearest,
    root: type[Model] = models.Definition,
) -> list[ErrorDetail]:
    """Our findings for a failed `Definition` (or another `root`); `task_paths` gives each task's
    place."""
    return [
        _detail(found, task_paths, nearest, root)
        for found in error.errors(include_url=False, include_input=True)
    ]


def _detail(
    found: ErrorDetails, task_paths: Mapping[str, str], nearest: Nearest, root: type[Model]
) -> ErrorDetail:
    path, model, inside = _place(found["loc"], task_paths, root)
    kind = found["type"]
    context: dict[str, Any] = found.get("ctx", {})
    last = str(found["loc"][-1]) if found["loc"] else ""
    if kind == CUSTOM:
        return ErrorDetail(path, context["message"], context["code"], context["hint"])
    if kind == "extra_forbidden":
        return _unknown_field(path, last, model, inside, nearest)
    if kind == "missing":
        return ErrorDetail(path, f"`{last}` is missing", "MISSING_FIELD")
    if kind == "union_tag_not_found":
        return ErrorDetail(
            f"{path}.type", "`type` is missing", "MISSING_FIELD", f"one of {_one_of(TASK_MODELS)}"
        )
    if kind == "union_tag_invalid":
        return _unknown_type(path, str(context.get("tag", "")), inside, nearest)
    if kind == "literal_error":
        hint = nearest.hint(found["input"], _quoted(context)) if _is_text(found["input"]) else ""
        message = f"must be one of {context.get('expected', '')}"
        return ErrorDetail(path, message, "BAD_VALUE", hint)
    if kind in WRONG_TYPE:
        hint = _list_hint(found["input"]) if kind == "list_type" else ""
        return ErrorDetail(path, WRONG_TYPE[kind], "WRONG_TYPE", hint)
    if kind == "too_short" and model is models.Definition:
        return ErrorDetail(path, "a workflow needs at least one task", "NO_TASKS")
    code = "BAD_NAME" if kind == "string_pattern_mismatch" else "BAD_VALUE"
    message = LIMITS[kind].format(**context) if kind in LIMITS else found["msg"]
    return ErrorDetail(path, message, code, NAME_HINTS.get(context.get("pattern", ""), ""))


def _place(
    loc: tuple[int | str, ...], task_paths: Mapping[str, str], root: type[Model]
) -> tuple[str, type[Model] | None, str]:
    """The user's path of `loc`; the model that holds its last step; the nearest `do` or
    `compensate` around it."""
    path = "$"
    model: type[Model] | None = root
    inside = ""
    steps = list(loc)
    position = 0
    while position < len(steps):
        step = steps[position]
        position += 1
        last = position == len(steps)
        if model is models.Definition and step == "tasks" and not last:
            path = task_paths.get(str(steps[position]), f"$.tasks[{steps[position]!r}]")
            position, model = _enter(steps, position + 1, TASK_MODELS)
            continue
        path = child_path(path, step)
        if step in ("do", "compensate") and model in _WITH_DO:
            inside = str(step)
            position, model = _enter(steps, position, DO_MODELS)
        elif not last:
            # The last step stays in the model that lacks or holds it.
            model = _CHILDREN.get(str(step)) if model is not None else None
    return path, model, inside


_WITH_DO: Final = frozenset(TASK_MODELS.values())


def _enter(
    steps: list[int | str], position: int, by_type: dict[str, type[Model]]
) -> tuple[int, type[Model] | None]:
    """Step over the chosen type, if the place is inside one."""
    if position < len(steps):
        return position + 1, by_type.get(str(steps[position]))
    return position, None


def _unknown_field(
    path: str, name: str, model: type[Model] | None, inside: str, nearest: Nearest
) -> ErrorDetail:
    if inside and model in DO_MODELS.values() and name in _NOT_IN_DO_NAMES:
        hint = f"it belongs to the task around `{inside}`"
        if name == "deadline":
            hint = _DEADLINE_HINTS[inside]
    elif name == "heartbeatTimeout":
        hint = "only activities report heartbeats"
        if model is models.MapTask:
            hint = "put it in the activity of its `do`"
    elif model in _WAITS and name in models.Attempted.model_fields:
        hint = "a wait has no attempts: it takes as long as it says"
    else:
        known = [field.alias or key for key, field in model.model_fields.items()] if model else []
        hint = nearest.field_hint(name, known) if known else ""
    return ErrorDetail(path, f"`{name[:80]}` is not a field here", "UNKNOWN_FIELD", hint)


def _unknown_type(path: str, tag: str, inside: str, nearest: Nearest) -> ErrorDetail:
    field = f"{path}.type"
    if inside and tag == "map":
        if inside == "do":
            message = "a map cannot be inside a map"
            hint = "let `do` be a workflow, or map over a list that is already flat"
            return ErrorDetail(field, message, "MAP_IN_MAP", hint)
        return ErrorDetail(field, f"a map cannot be in `{inside}`", "BAD_VALUE")
    known = DO_MODELS if inside else TASK_MODELS
    message = f'there is no task type "{tag[:80]}", only {_one_of(known)}'
    return ErrorDetail(field, message, "UNKNOWN_TYPE", nearest.hint(tag, list(known)))


def _one_of(known: Mapping[str, object]) -> str:
    return ", ".join(known)


def _quoted(context: dict[str, Any]) -> list[str]:
    """The names in pydantic's "'a', 'b' or 'c'"."""
    return str(context.get("expected", "")).split("'")[1::2]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _list_hint(value: object) -> str:
    return f"write [{value}]" if isinstance(value, str) and len(value) <= 64 else ""
