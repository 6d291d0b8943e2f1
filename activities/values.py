"""JSON in: the border between the platform's values and an activity's own types; the way out is
`outputs`.

The input is parsed anew for every attempt, so an activity that changes its input changes nothing
that the engine or a neighbour still holds. Messages list paths and rules but never the values:
inputs hold secrets and personal data, failures are stored and shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from activities.registry import Activity
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import NotJson, child_path, dumps, loads
from orchestrator.ports import ActivityFailed

MAX_FINDINGS: Final = 20

_SILENT: Final = frozenset(get_args(ErrorType)) - {
    # Their texts repeat the input, or hold what the author's validator said about it.
    "assertion_error",
    "bytes_invalid_encoding",
    "get_attribute_error",
    "iteration_error",
    "json_invalid",
    "mapping_type",
    "timezone_offset",
    "union_tag_invalid",
    "url_parsing",
    "url_syntax_violation",
    "uuid_parsing",
    "value_error",
}
"""Kinds of findings of pydantic whose text is built from the rule alone."""


def read_input(activity: Activity, value: Json) -> Any:
    """`value` as the activity's input type. Raises `ActivityFailed` INPUT_INVALID, not retryable,
    with every path that does not fit."""
    adapter = activity.signature.input
    try:
        text = dumps(value)
        return loads(text) if adapter is None else adapter.validate_json(text)
    except ValidationError as exc:
        reason = findings(exc)
    except NotJson as exc:
        reason = str(exc)
    raise ActivityFailed(
        Failure(
            type=FailureType.INPUT_INVALID,
            message=f"the input of {activity.name} is not valid: {reason}",
            retryable=False,
        )
    )


def findings(error: ValidationError) -> str:
    """`path: rule; path: rule; …`, at most 20 of them, without any value of the input."""
    return in_words(error.errors(include_url=False, include_context=False, include_input=False))


def in_words(found: Sequence[ErrorDetails]) -> str:
    """`findings` of several errors at once."""
    shown = [
        f"{_path(one['loc'])}: {one['msg'] if one['type'] in _SILENT else one['type']}"
        for one in found[:MAX_FINDINGS]
    ]
    if len(found) > MAX_FINDINGS:
        shown.append(f"and {len(found) - MAX_FINDINGS} more")
    return "; ".join(shown)


def _path(location: tuple[int | str, ...]) -> str:
    path = "$"
    for step in location:
        path = child_path(path, step)
    return path
