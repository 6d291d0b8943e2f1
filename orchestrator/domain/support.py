"""What may be written but cannot be run yet: one table, from which later versions delete lines.

Refusing at publish is honest; accepting and ignoring it would not be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.domain.errors import ErrorDetail
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import child_path
from orchestrator.domain.validation import Validated

CODE: Final = "NOT_YET_SUPPORTED"

UNDO_TYPES: Final = frozenset({"activity", "http", "transform"})
"""All that a `compensate` may be."""


def unsupported(validated: Validated) -> list[ErrorDetail]:
    """Everything in a valid definition that this version cannot run; publish refuses it."""
    return list(_find(validated.raw))


def _find(raw: Mapping[str, Json]) -> Iterator[ErrorDetail]:
    tasks = raw["tasks"]
    assert isinstance(tasks, dict)
    for key, task in tasks.items():
        path = child_path("$.tasks", key)
        assert isinstance(task, dict)
        undo = task.get("compensate")
        if isinstance(undo, dict) and (kind := undo.get("type")) not in UNDO_TYPES:
            yield _detail(f"{path}.compensate.type", f"the task type {kind} in `compensate`")


def _detail(path: str, what: str) -> ErrorDetail:
    message = f"{what} is not supported yet"
    return ErrorDetail(path, message, CODE, "leave it out until a later version")
