"""What an expression may see, and which part of it CEL gets.

CEL converts every value that it is given. An expression such as `tasks.a.output.total > 0` reads
one number, and the output may have megabytes; so only the keys that stand in the expression are
handed over. What is left out cannot be seen by it, so results and errors are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from orchestrator.domain.jsontypes import Json

Tree: TypeAlias = "dict[str, Tree] | None"
"""The keys that are read below a value; None: all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What expressions see. Absent things are None or empty."""

    input: Json = None
    tasks: Mapping[str, Mapping[str, Json]] = field(default_factory=dict[str, Mapping[str, Json]])
    """Task id -> {"output": …, "status": "COMPLETED", "error": {…} | None}."""
    execution: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """{"id", "startedAt", "tags"}."""
    item: Json = None  # inside a map
    index: int | None = None
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Only given by the worker."""
    schedule: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """{"id"}: only in the input of a schedule, as is `tick`."""
    tick: Json = None  # ISO 8601, UTC
    event: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Attributes and data of an event; only in triggers."""


def tree(paths: Iterable[tuple[str, ...]]) -> Tree:
    """The union of the paths: `a.b` and `a.c` give {a: {b: None, c: None}}, `a.b` and `a` give
    {a: None}."""
    root: dict[str, Tree] = {}
    for path in paths:
        if not path:
            return None
        node = root
        for key in path[:-1]:
            below = node.setdefault(key, {})
            if below is None:
                break
            node = below
        else:
            node[path[-1]] = None
    return root


def select(value: object, keys: Tree) -> Any:
    """The part of `value` that `keys` names; whatever is no object is given whole."""
    if not isinstance(value, Mapping):
        return value
    mapping = cast("Mapping[str, Any]", value)
    if keys is None:
        return mapping if isinstance(mapping, dict) else dict(mapping)
    return {key: select(mapping[key], below) for key, below in keys.items() if key in mapping}


def readable(scope: Scope, name: str, keys: Tree) -> Any:
    """What CEL gets for a root name: plain values only, of `keys` only."""
    if name == "tasks" and keys is None:
        return {task: dict(view) for task, view in scope.tasks.items()}
    return select(getattr(scope, name), keys)
