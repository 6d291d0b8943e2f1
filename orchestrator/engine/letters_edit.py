"""Whether an edited input may take the place of a task's own.

It is checked as far as its shape is known before a worker sees it: what publishing would refuse in
a definition, a retry must not let in by the back door.
"""

from __future__ import annotations

import contextlib
from typing import Any

from pydantic import ValidationError

from orchestrator.domain import jsonvalues
from orchestrator.domain.definition_http import HttpRequest
from orchestrator.domain.errors import ConflictError, ErrorDetail, InvalidError
from orchestrator.domain.expressions import ExpressionError
from orchestrator.domain.jsonschemas import check_value
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import NotJson, child_path
from orchestrator.domain.redaction import MASK
from orchestrator.domain.workflow import TaskType
from orchestrator.engine import attempt
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.confidential import strays
from orchestrator.engine.core import Engine
from orchestrator.engine.letters import spec_of

_CODE = "INPUT_INVALID"


async def check(engine: Engine, aggregate: Aggregate, letter: dict[str, Any], value: Json) -> None:
    """Raises `ConflictError` if the task takes no input, `InvalidError` with every finding."""
    spec = spec_of(aggregate, letter)
    if spec.type in (TaskType.MAP, TaskType.WAIT, TaskType.SIGNAL) or not letter["attempt"]:
        raise ConflictError(
            "this task failed before a worker was given an input; retry it as it is, or skip it",
            code="CANNOT_EDIT",
        )
    faults = _not_json(value)
    template = spec.template
    if not faults and template is not None and template.secrets:
        shown: Json = None
        with contextlib.suppress(ExpressionError):
            shown = await attempt.resolve(engine, aggregate, spec, letter.get("item"))
        faults = [
            ErrorDetail(
                f"$.input{path}",
                f"`{MASK}` stands for a secret and must stay as it was shown; a secret is changed "
                "where it is kept",
                _CODE,
            )
            for path in strays(value, shown)
        ]
    if not faults and spec.type is TaskType.HTTP:
        faults = _request(value)
    single = None if template is None else template.single
    schema = aggregate.workflow.input_schema
    if not faults and single is not None and schema is not None:
        faults = check_value(schema, value, "$.input") if single.source.strip() == "input" else []
    if faults:
        raise InvalidError("the edited input is not valid", code=_CODE, details=faults)


def _not_json(value: Json) -> list[ErrorDetail]:
    try:
        jsonvalues.dumps(value)
    except NotJson as error:
        return [ErrorDetail(f"$.input{error.path.removeprefix('$')}", error.reason, _CODE)]
    return []


def _request(value: Json) -> list[ErrorDetail]:
    """As a definition's `request` is checked."""
    try:
        HttpRequest.model_validate(value)
    except ValidationError as error:
        found: list[ErrorDetail] = []
        for fault in error.errors(include_url=False, include_input=False):
            path = "$.input"
            for part in fault["loc"]:
                path = child_path(path, part)
            found.append(ErrorDetail(path, fault["msg"], _CODE))
        return found
    return []
