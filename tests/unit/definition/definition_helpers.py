"""Short ways to write a definition and to see what is wrong with it."""

from __future__ import annotations

import dataclasses
from typing import Any

from orchestrator.domain.compile import compile_workflow
from orchestrator.domain.errors import ErrorDetail, InvalidError
from orchestrator.domain.expressions import Expression, Scope, Template
from orchestrator.domain.parsing import parse
from orchestrator.domain.validation import Validated, validate
from orchestrator.domain.workflow import TaskSpec, Workflow

ACTIVITIES = frozenset({"orders.validate", "orders.pack", "orders.tidy"})


def from_yaml(text: str) -> Any:
    return parse(text.encode(), "yaml")


def check(raw: Any, activities: frozenset[str] | None = ACTIVITIES) -> Validated:
    return validate(raw, activities=activities)


def problems(raw: Any, activities: frozenset[str] | None = ACTIVITIES) -> list[ErrorDetail]:
    """All findings, none if the definition is fine."""
    try:
        validate(raw, activities=activities)
    except InvalidError as error:
        return list(error.details)
    return []


def found(raw: Any, activities: frozenset[str] | None = ACTIVITIES) -> set[tuple[str, str]]:
    """(path, code) of each finding."""
    return {(item.field, item.code) for item in problems(raw, activities)}


def tasks(text: str) -> Any:
    """A definition with these tasks (YAML, a flow or block mapping)."""
    return {"name": "w", "tasks": from_yaml(text)}


def compiled(raw: Any) -> Workflow:
    return compile_workflow(check(raw, None))


def shown(value: Any) -> Any:
    """A workflow as comparable values: programs become their sources, templates what they give."""
    if isinstance(value, Expression):
        return ("expression", value.source)
    if isinstance(value, Template):
        sources = [(path, expression.source) for path, expression in value.expressions]
        return ("template", sources, value.evaluate(Scope()) if value.constant else None)
    if isinstance(value, Workflow | TaskSpec):
        fields = dataclasses.fields(value)
        return {field.name: shown(getattr(value, field.name)) for field in fields}
    if isinstance(value, tuple):
        return [shown(item) for item in value]
    return value
