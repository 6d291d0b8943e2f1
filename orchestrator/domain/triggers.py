"""Event triggers: which events start a workflow, and with which input.

A trigger is compiled when it is stored, and everything that can be known to be wrong is refused
then, all of it at once. What shows only with an event (a key that it lacks, a filter that gives no
boolean) is a `Failure` that says where in the trigger.

Expressions see `event` and nothing else: the attributes that the event has, and `event.data`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import ValidationError

from orchestrator.domain import tags as tag_rules
from orchestrator.domain.cel_budget import budgeted
from orchestrator.domain.cel_values import to_text
from orchestrator.domain.cloudevents import CloudEvent
from orchestrator.domain.errors import ErrorDetail, InvalidError
from orchestrator.domain.expressions import (
    Expression,
    ExpressionError,
    Scope,
    Template,
    TemplateError,
)
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsonschemas import check_value
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import child_path
from orchestrator.domain.nearest import Nearest
from orchestrator.domain.trigger_model import MatchModel, TriggerModel, translate

ROOT: Final = "event"
DEFAULT_INPUT: Final = "${event.data}"
_ATTRIBUTES: Final = ("id", "source", "type", "subject", "specversion", "time")


class TriggerFailed(Exception):
    """The filter or the mapping failed for this event. `reason`: `filterFailed` or
    `mappingFailed`."""

    def __init__(self, reason: str, failure: Failure) -> None:
        super().__init__(failure.message)
        self.reason = reason
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """A compiled trigger. Immutable."""

    name: str
    workflow: str
    paused: bool
    sources: frozenset[str] | None  # None: any
    types: frozenset[str] | None
    exact: str | None  # of the subject
    prefix: str
    suffix: str
    by_subject: bool
    filter: Expression | None
    input: Template
    tags: Mapping[str, Template]

    def meets(self, event: CloudEvent) -> bool:
        """Whether source, type and subject are those looked for. The filter is not asked."""
        if self.sources is not None and event.source not in self.sources:
            return False
        if self.types is not None and event.type not in self.types:
            return False
        if not self.by_subject:
            return True
        subject = event.subject
        if subject is None or (self.exact is not None and subject != self.exact):
            return False
        return subject.startswith(self.prefix) and subject.endswith(self.suffix)

    @property
    def heavy(self) -> bool:
        """Whether its filter or its mapping may take long."""
        parts = (self.filter, self.input, *self.tags.values())
        return any(one is not None and one.heavy for one in parts)

    def passes(self, event: CloudEvent) -> bool:
        """What the filter says. Raises `TriggerFailed`."""
        if self.filter is None:
            return True
        reason = "filterFailed"
        try:
            value = self.filter.evaluate(Scope(event=event.scope))
        except ExpressionError as error:
            raise _failed(reason, error, "$.filter") from None
        if not isinstance(value, bool):
            text = f"the filter must give true or false, not {_kind(value)}"
            raise TriggerFailed(reason, _failure(text, "$.filter", self.filter.source))
        return value

    def mapped(self, event: CloudEvent) -> tuple[Json, dict[str, str]]:
        """Input and tags of the execution. Raises `TriggerFailed`."""
        scope, reason = Scope(event=event.scope), "mappingFailed"
        with budgeted():
            return self._mapped(scope, reason)

    def _mapped(self, scope: Scope, reason: str) -> tuple[Json, dict[str, str]]:
        try:
            value = self.input.evaluate(scope)
        except ExpressionError as error:
            raise _failed(reason, error, "$.input") from None
        labels: dict[str, str] = {}
        for name, template in self.tags.items():
            try:
                labels[name] = to_text(template.evaluate(scope))
            except ExpressionError as error:
                raise _failed(reason, error, child_path("$.tags", name)) from None
        return value, labels


def compile_trigger(raw: Json) -> Trigger:
    """The trigger of a JSON object. Raises `InvalidError` with every finding."""
    if not isinstance(raw, dict):
        raise _invalid([ErrorDetail("$", "a trigger must be an object", "WRONG_TYPE")])
    nearest = Nearest()
    found: list[ErrorDetail] = []
    model: TriggerModel | None = None
    try:
        model = TriggerModel.model_validate(raw)
    except ValidationError as error:
        found += translate(error, raw, nearest)
    if model is not None:
        found += _match_faults(model.match)
    filter = _filter(raw.get("filter"), found, nearest)
    input = _template(raw.get("input", DEFAULT_INPUT), "$.input", found, nearest)
    tags: dict[str, Template] = {}
    given = raw.get("tags")
    for name, text in given.items() if isinstance(given, dict) else ():
        path = child_path("$.tags", name)
        if not tag_rules.is_name(name):
            found.append(ErrorDetail(path, tag_rules.NAME_RULE, "TAG_NAME"))
        template = _template(text, path, found, nearest)
        if template is None:
            continue
        tags[name] = template
        if template.constant and len(str(text)) > tag_rules.MAX_VALUE_CHARS:
            limit = f"at most {tag_rules.MAX_VALUE_CHARS} characters"
            found.append(ErrorDetail(path, limit, "TAG_TOO_LONG"))
    if len(tags) > tag_rules.MAX_TAGS:
        found.append(ErrorDetail("$.tags", f"at most {tag_rules.MAX_TAGS} tags", "TOO_MANY_TAGS"))
    if found or model is None or input is None:
        raise _invalid(found)
    match, subject = model.match, model.match.subject
    return Trigger(
        name=model.name,
        workflow=model.workflow,
        paused=model.paused,
        sources=None if match.source is None else frozenset(match.source),
        types=None if match.type is None else frozenset(match.type),
        exact=None if subject is None else subject.exact,
        prefix="" if subject is None else subject.prefix or "",
        suffix="" if subject is None else subject.suffix or "",
        by_subject=subject is not None,
        filter=filter,
        input=input,
        tags=tags,
    )


def input_faults(raw: Mapping[str, Json], trigger: Trigger, schema: Any) -> list[ErrorDetail]:
    """As far as it shows without an event: how the mapped input cannot fit the workflow's
    `schema` (None: it takes anything)."""
    written = raw.get("input", DEFAULT_INPUT)
    if schema is None:
        return []
    if trigger.input.constant:
        return check_value(schema, trigger.input.evaluate(Scope()), "$.input")
    if not isinstance(written, dict) or not isinstance(schema, dict):
        return []
    required = cast("dict[str, Any]", schema).get("required")
    return [
        ErrorDetail("$.input", f"the workflow's input needs `{name[:80]}`", "INPUT_INVALID")
        for name in (cast("list[Any]", required) if isinstance(required, list) else [])
        if isinstance(name, str) and name not in written
    ]


def _match_faults(match: MatchModel) -> Iterator[ErrorDetail]:
    if match.source is None and match.type is None and match.subject is None:
        hint = "name a source, a type or a subject"
        yield ErrorDetail("$.match", "a trigger for every event there is", "EMPTY_MATCH", hint)
    subject = match.subject
    if subject is None:
        return
    if subject.exact is None and subject.prefix is None and subject.suffix is None:
        hint = "give `prefix`, `suffix` or both, or a text"
        yield ErrorDetail("$.match.subject", "nothing is asked of the subject", "EMPTY_MATCH", hint)
    if subject.exact is not None and (subject.prefix is not None or subject.suffix is not None):
        text = "`exact` leaves nothing for `prefix` and `suffix`"
        yield ErrorDetail("$.match.subject", text, "BAD_VALUE")


def _filter(value: Json, found: list[ErrorDetail], nearest: Nearest) -> Expression | None:
    if not isinstance(value, str) or not value:
        return None  # left out, or reported as a wrong type
    path = "$.filter"
    template = _template(value, path, found, nearest)
    if template is None:
        return None
    expression = template.single
    if expression is None:
        hint = "write ${…} and nothing around it"
        text = "must be exactly one expression"
        found.append(ErrorDetail(path, text, "BAD_EXPRESSION", hint))
        return None
    if kind := _never_bool(expression):
        text = f"the filter must give true or false, it always gives {kind}"
        found.append(ErrorDetail(path, text, "NOT_BOOLEAN"))
    return expression


def _never_bool(expression: Expression) -> str:
    """What the filter gives, if that shows without an event and is no boolean."""
    if any(expression.source == f"{ROOT}.{name}" for name in _ATTRIBUTES):
        return "text"
    if expression.names:
        return ""
    try:
        value = expression.evaluate(Scope())
    except ExpressionError:
        return "an error"
    return "" if isinstance(value, bool) else _kind(value)


def _template(
    value: Json, path: str, found: list[ErrorDetail], nearest: Nearest
) -> Template | None:
    try:
        template = Template.compile(value)
    except TemplateError as error:
        for place, source, reason in error.problems:
            shown = f"`{_short(source)}` does not compile: {reason}" if source else reason
            found.append(ErrorDetail(f"{path}{place}", shown, "BAD_EXPRESSION"))
        return None
    for place, expression in template.expressions:
        for name in sorted(expression.names - {ROOT}):
            hint = nearest.hint(name, [ROOT]) or "write event.data… for what the event says"
            text = f'there is no name "{name[:80]}" here, only {ROOT}'
            found.append(ErrorDetail(f"{path}{place}", text, "UNKNOWN_NAME", hint))
    return template


def _failed(reason: str, error: ExpressionError, field: str) -> TriggerFailed:
    return TriggerFailed(reason, _failure(error.reason, field + error.path, error.source))


def _failure(message: str, field: str, expression: str) -> Failure:
    return Failure(
        type=FailureType.EXPRESSION,
        message=message,
        retryable=False,
        field=field,
        expression=expression,
    ).bounded()


def _kind(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float):
        return "a number"
    return "a list" if isinstance(value, list) else "an object"


def _short(source: str) -> str:
    text = source.strip()
    return text if len(text) <= 120 else text[:120] + "…"


def _invalid(found: list[ErrorDetail]) -> InvalidError:
    first = found[0]
    message = f"{first.field}: {first.message}"
    if len(found) > 1:
        message = f"the trigger has {len(found)} problems, the first: {message}"
    return InvalidError(message, details=found)
