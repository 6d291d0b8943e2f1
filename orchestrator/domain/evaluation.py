"""The expressions that the orchestrator evaluates (`when`, `items`, `until`, `output`): which data
they need, and what their failure means.

`decide` cannot load anything. So before an expression is evaluated, every task that it refers to is
looked up in the facts; what is missing is reported as needs, and the caller loads exactly that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orchestrator.domain.codec import iso
from orchestrator.domain.draft import Draft
from orchestrator.domain.expressions import Expression, ExpressionError, Scope, Template
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import NotJson, dumps
from orchestrator.domain.status import DEAD_CODES, STATUS_OF_CODE, Code
from orchestrator.domain.topology import MAX_PAYLOAD_BYTES


class Missing(Exception):
    """Data for an expression is not there; `Draft.missing` says which."""


class Refused(Exception):
    """An expression failed, or its value cannot be used."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def evaluate(
    draft: Draft, expression: Expression | Template, field: str, task: int | None = None
) -> Json:
    """The value of `expression`, which stands at `field` of the definition and belongs to `task`
    (None: to the execution). Raises `Missing`, `Refused`."""
    scope = _scope(draft, expression, task)
    try:
        return expression.evaluate(scope)
    except ExpressionError as error:
        raise refused(
            FailureType.EXPRESSION, error.reason, field + error.path, error.source
        ) from None


def refused(kind: str, message: str, field: str, expression: str = "") -> Refused:
    """A `Refused` whose failure is not worth trying again: the same data gives the same."""
    return Refused(
        Failure(type=kind, message=message, retryable=False, field=field, expression=expression)
    )


def source_of(expression: Expression | Template) -> str:
    """The source of an expression, or of the one that a template consists of; else empty."""
    single = expression.single if isinstance(expression, Template) else expression
    return "" if single is None else single.source


def json_text(
    value: Json, not_json: str, field: str, expression: str = "", most: int | None = None
) -> bytes:
    """JSON text of a value that will be stored. Raises `Refused`: type `not_json` if it is no
    JSON, PAYLOAD_TOO_LARGE over `most` bytes (None: over what the platform stores)."""
    most = MAX_PAYLOAD_BYTES if most is None else most
    try:
        text = dumps(value)
    except NotJson as error:
        raise refused(not_json, str(error), field, expression) from None
    if len(text) > most:
        raise refused(
            FailureType.PAYLOAD_TOO_LARGE,
            f"the value has {len(text)} bytes of JSON, at most {most} are stored",
            field,
            expression,
        )
    return text


def _scope(draft: Draft, expression: Expression | Template, task: int | None) -> Scope:
    facts, names = draft.facts, expression.names
    lacking = False
    if "input" in names and not facts.input_loaded:
        draft.missing_input = lacking = True
    known = draft.workflow.index
    if expression.dynamic_tasks:
        positions = _upstream(draft, task)
    else:
        positions = [known[id] for id in expression.tasks if id in known]
    tasks: dict[str, Mapping[str, Json]] = {}
    for position in positions:
        id = draft.workflow.tasks[position].id
        entry = _entry(draft, position, id)
        if entry is None:
            if position in draft.signalled:
                draft.missing_signals.add(draft.signalled[position])
            else:
                draft.missing.add(id)
            lacking = True
        else:
            tasks[id] = entry
    if lacking:
        raise Missing
    execution = facts.execution
    if "execution" in names and draft.fold.started_at is not None:
        execution = {**execution, "startedAt": iso(draft.fold.started_at)}
    return Scope(input=facts.input, tasks=tasks, execution=execution)


def _entry(draft: Draft, task: int, id: str) -> Mapping[str, Json] | None:
    """What expressions see of a task; None if it must be loaded first."""
    code = draft.fold.codes[task]
    status = STATUS_OF_CODE[code].value
    if code == Code.COMPLETED and task in draft.outputs:
        return {"output": draft.outputs[task], "status": status, "error": None}
    if code == Code.COMPLETED and task in draft.signalled:
        signal = draft.signalled[task]  # its task document is not written yet
        if signal not in draft.facts.signals:
            return None
        return {"output": draft.facts.signals[signal], "status": status, "error": None}
    if code in DEAD_CODES and task in draft.failures:
        return {"output": None, "status": status, "error": draft.failures[task].to_doc()}
    if code == Code.COMPLETED or code in DEAD_CODES:
        fact = draft.facts.tasks.get(id)
        return None if fact is None else {**fact, "status": status}
    return {"output": None, "status": status, "error": None}


def _upstream(draft: Draft, task: int | None) -> Iterable[int]:
    """Every task that `task` comes after; for the execution (None), every task. An expression that
    picks tasks at run time must not see others: their state depends on the order of messages."""
    tasks = draft.workflow.tasks
    if task is None:
        return range(len(tasks))
    seen: set[int] = set()
    stack = list(tasks[task].needs)
    while stack:
        position = stack.pop()
        if position not in seen:
            seen.add(position)
            stack.extend(tasks[position].needs)
    return sorted(seen)
