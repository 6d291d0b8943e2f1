"""JSON Schemas that users write: checked once at publish, then used without ever fetching anything.

`jsonschema` follows a remote `$ref` over the network unless told not to; a schema is user input, so
that would be a request to wherever the user likes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing.exceptions import Unresolvable

from orchestrator.domain import cel_patterns
from orchestrator.domain.cel_patterns import BadPattern
from orchestrator.domain.errors import ErrorDetail
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import NotJson, child_path, dumps
from orchestrator.domain.schema_keywords import (
    TooCostly,
    bounded,
    validator,
)
from orchestrator.domain.sensitive import KEYWORD, Marks, of_schema

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
MAX_FINDINGS: Final = 100

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_SAMPLES: Final[tuple[Json, ...]] = (None, True, 0, 0.5, "", [], {}, [{}], {"": {}})
_OF_NAMES: Final = frozenset({"required", "additionalProperties", "dependentRequired"})
"""Keywords whose findings name fields, and show no value."""
_CODE: Final = "BAD_SCHEMA"


def check_schema(schema: Json, path: str) -> list[ErrorDetail]:
    """What is wrong with a schema found at `path`; empty if nothing. Shallow trial runs find
    references that lead nowhere or in circles as far as they meet them."""
    found = list(_references(schema, path))
    if isinstance(schema, dict) and schema.get("$schema", DRAFT) not in (DRAFT, DRAFT + "#"):
        where = child_path(path, "$schema")
        found.append(ErrorDetail(where, f"only draft 2020-12 is read: {DRAFT}", _CODE))
    if found:
        return found
    try:
        meta: Any = Draft202012Validator(Draft202012Validator.META_SCHEMA)
        found = [
            ErrorDetail(_join(path, error), _message(error), _CODE)
            for error in _some(meta.iter_errors(schema))
        ]
        found = found or list(_patterns(schema, path))
        if not found:
            trial = validator(schema)
            with bounded():
                for sample in _SAMPLES:
                    trial.is_valid(sample)
    except TooCostly as error:
        found = [ErrorDetail(path, str(error), _CODE)]
    except RecursionError:
        message = "the schema is nested too deep, or refers to itself without end"
        found = [ErrorDetail(path, message, _CODE)]
    except Unresolvable as error:
        found = [ErrorDetail(path, f"the reference {error.ref!r} leads nowhere", _CODE)]
    return found


def check_value(schema: Any, value: Json, path: str = "$") -> list[ErrorDetail]:
    """How `value` (at `path`) fails `schema`, one finding per fault, at most `MAX_FINDINGS`. None
    shows anything of what is sensitive."""
    marks = of_schema(schema)
    try:
        with bounded():
            return [
                ErrorDetail(_join(path, error), _discreet(error, marks), "INPUT_INVALID")
                for error in _some(validator(schema).iter_errors(value))
            ]
    except (TooCostly, BadPattern) as error:  # the pattern of a schema that older code let in
        return [ErrorDetail(path, str(error), "INPUT_INVALID")]
    except RecursionError:
        message = "the value is nested too deep for its schema"
        return [ErrorDetail(path, message, "INPUT_INVALID")]
    except Unresolvable as error:
        return [ErrorDetail(path, f"the schema's reference {error.ref!r} leads nowhere", _CODE)]


def _some(errors: Iterable[ValidationError]) -> Iterator[ValidationError]:
    for count, error in enumerate(errors):
        if count >= MAX_FINDINGS:
            return
        yield error


def _join(path: str, error: ValidationError) -> str:
    for key in error.absolute_path:
        path = child_path(path, key)
    return path


def _discreet(error: ValidationError, marks: Marks) -> str:
    """Without the value, if any of it is sensitive."""
    for key in error.absolute_path:
        marks = marks.at(key)
    if marks and error.validator not in _OF_NAMES:
        return f"does not satisfy `{error.validator}` (the value is sensitive)"
    return _message(error)


def _message(error: ValidationError) -> str:
    """Without the value itself when it is long: it may be a whole payload."""
    message: str = error.message
    if error.validator == "type":
        wanted: Any = error.validator_value
        kinds = [wanted] if isinstance(wanted, str) else list(wanted)
        message = f"{_shown(error.instance)} is not of type {' or '.join(kinds)}"
    return message if len(message) <= 300 else f"{message[:150]} … {message[-140:]}"


def _shown(value: Any) -> str:
    """As JSON, which is what was sent: `null`, not `None`."""
    try:
        return dumps(value).decode()
    except NotJson:
        return repr(value)


def _patterns(schema: Json, path: str) -> Iterator[ErrorDetail]:
    """Every regular expression that cannot be used, wherever in the schema it stands, and every
    mark of sensitive data that is none."""
    stack: list[tuple[Json, str]] = [(schema, path)]
    while stack:
        value, place = stack.pop()
        if isinstance(value, dict):
            if not isinstance(value.get(KEYWORD, False), bool | dict):
                where = child_path(place, KEYWORD)
                yield ErrorDetail(where, "must be true or false", _CODE)
            pattern = value.get("pattern")
            if isinstance(pattern, str):
                yield from _pattern_fault(pattern, child_path(place, "pattern"))
            patterns = value.get("patternProperties")
            if isinstance(patterns, dict):
                where = child_path(place, "patternProperties")
                for name in patterns:
                    yield from _pattern_fault(name, child_path(where, name))
                if "unevaluatedProperties" in value:
                    message = "patternProperties and unevaluatedProperties cannot stand together"
                    yield ErrorDetail(where, message, _CODE)
            stack.extend((item, child_path(place, key)) for key, item in value.items())
        elif isinstance(value, list):
            stack.extend((item, child_path(place, index)) for index, item in enumerate(value))


def _pattern_fault(pattern: str, path: str) -> Iterator[ErrorDetail]:
    try:
        cel_patterns.found(pattern, "")
    except BadPattern as error:
        yield ErrorDetail(path, str(error), _CODE, hint="no look-around, no back-references")


def _references(schema: Json, path: str) -> Iterator[ErrorDetail]:
    """Every reference that leaves the schema. Also inside `const`, `enum` and unknown keywords:
    a local reference may point there and make a schema of them."""
    stack: list[tuple[Json, str]] = [(schema, path)]
    while stack:
        value, place = stack.pop()
        if isinstance(value, dict):
            for key, item in cast("Mapping[str, Json]", value).items():
                where = child_path(place, key)
                if key in _REFERENCES and isinstance(item, str) and not item.startswith("#"):
                    message = f"{key} may only point into the same schema (#…), not to {item[:80]}"
                    yield ErrorDetail(where, message, _CODE)
                stack.append((item, where))
        elif isinstance(value, list):
            stack.extend((item, child_path(place, index)) for index, item in enumerate(value))
