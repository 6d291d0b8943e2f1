"""JSON Schema keywords whose cost is bounded: a schema is user input, and so is what it is held
against.

The library's own would stop the process that checks: `pattern` backtracks (`^(a+)+$` against thirty
letters takes minutes), `uniqueItems` compares every pair, `enum` every value, `unevaluatedItems`
every index, and references that each name two others double with every level. Here patterns are
matched in linear time (RE2 syntax, as in expressions), unique and listed items are looked up, and
every keyword that is applied counts against a budget, with what it goes through: the entries of the
keyword itself, the elements of the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend  # pyright: ignore[reportUnknownVariableType]
from referencing import Registry

from orchestrator.domain.cel_patterns import cost, found
from orchestrator.domain.jsontypes import Json

BUDGET: Final = 1_000_000
"""Keywords applied in one check, about two seconds: several times what a body of one megabyte needs
under a usual schema."""
ENTRIES_PER_KEYWORD: Final = 20  # of a keyword's own list or object that is gone through
PAIRS_PER_KEYWORD: Final = 50
NODES_PER_KEYWORD: Final = 2  # values that are made comparable, or compared
ELEMENT_COST: Final = 2  # of holding an element against a schema, even an empty one
BRANCH_COST: Final = 2  # of trying another schema on the same value
PATTERN_COST: Final = 20  # of one match, counted in other keywords
WORK_PER_KEYWORD: Final = 400  # size of the pattern times characters: as long as one keyword
REFERENCE_COST: Final = 10  # of following one reference

_EMPTY: Final[Registry[Any]] = Registry()
_left: ContextVar[list[int]] = ContextVar("schema budget")
_listed: ContextVar[dict[int, tuple[object, Any]]] = ContextVar("schema lists")
"""By identity of a schema's list or value: itself, so that it stays, and what was made of it."""

Keyword = Callable[[Any, Any, Any, Any], Any]


class TooCostly(Exception):
    """The budget of this check is used up."""

    def __init__(self) -> None:
        super().__init__("checking against this schema takes too long; make it simpler")


def validator(schema: Any) -> Any:
    """A validator that fetches nothing. Use it inside `bounded`."""
    # An empty registry: without one, remote references are fetched.
    return _Validator(schema, registry=_EMPTY)


class bounded:
    """`with bounded():` a fresh budget for the checks inside, which raise `TooCostly`."""

    def __enter__(self) -> None:
        self._token = _left.set([BUDGET])
        self._lists = _listed.set({})

    def __exit__(self, *_: object) -> None:
        _left.reset(self._token)
        _listed.reset(self._lists)


def _found(pattern: str, text: str) -> bool:
    _spend(PATTERN_COST + cost(pattern, text) // WORK_PER_KEYWORD)
    return found(pattern, text)


def _spend(cost: int) -> None:
    left = _left.get()
    left[0] -= cost
    if left[0] < 0:
        raise TooCostly


def _counted(name: str, keyword: Keyword) -> Keyword:
    cost = REFERENCE_COST if name in _REFERENCES else 1
    each, pairs, branches = name in _EACH, name in _PAIRS, name in _BRANCHES

    def apply(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        spent = cost
        if isinstance(value, list | dict) and name not in _OWN_LISTS:
            entries = len(cast("list[Any]", value))
            spent += entries * BRANCH_COST if branches else entries // ENTRIES_PER_KEYWORD
        if each and isinstance(instance, list | dict):
            elements = len(cast("list[Any]", instance))
            spent += elements * ELEMENT_COST
            if pairs:
                spent += elements * elements // PAIRS_PER_KEYWORD
        _spend(spent)
        return keyword(validator, value, instance, schema)

    return apply


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _found(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, inner in patterns.items():
        for key, value in cast("dict[str, Json]", instance).items():
            if _found(pattern, key):
                yield from validator.descend(value, inner, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, additional: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    known: Mapping[str, Any] = schema.get("properties", {})
    patterns: Mapping[str, Any] = schema.get("patternProperties", {})
    extra: list[str] = []
    for key in cast("dict[str, Json]", instance):
        if key not in known:
            _spend(1)
            if not any(_found(pattern, key) for pattern in patterns):
                extra.append(key)
    if additional is False and extra:
        names = ", ".join(repr(key) for key in extra)
        verb = "was" if len(extra) == 1 else "were"
        yield ValidationError(f"Additional properties are not allowed ({names} {verb} unexpected)")
    elif isinstance(additional, dict):
        for key in extra:
            yield from validator.descend(instance[key], additional, path=key)


def _enum(validator: Any, listed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    known = _made(listed, lambda: {_identity(one) for one in listed})
    if _identity(instance) not in known:
        yield ValidationError(f"{instance!r} is not one of {listed!r}")


def _const(validator: Any, const: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if _made(const, lambda: _identity(const)) != _identity(instance):
        yield ValidationError(f"{const!r} was expected")


def _made(value: Any, make: Callable[[], Any]) -> Any:
    """`make()`, once in a check for each list or object of the schema."""
    if not isinstance(value, list | dict):
        return make()
    lists = _listed.get()
    found = lists.get(id(cast("object", value)))
    if found is None:
        found = lists[id(cast("object", value))] = (cast("object", value), make())
    return found[1]


def _unique_items(
    validator: Any, unique: bool, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if unique and isinstance(instance, list):
        items = cast("list[Json]", instance)
        if len({_identity(item) for item in items}) < len(items):
            yield ValidationError("a list with the same item twice has non-unique elements")


def _identity(value: Json) -> object:
    """Equal for values that JSON Schema calls equal: 1 is 1.0, and neither is true."""
    if isinstance(value, bool) or value is None:
        return (type(value), value)
    if isinstance(value, list | dict):
        _spend(len(value) // NODES_PER_KEYWORD + 1)
    if isinstance(value, list):
        return ("list", *(_identity(item) for item in value))
    if isinstance(value, dict):
        return frozenset((key, _identity(item)) for key, item in value.items())
    return value


_REFERENCES: Final = ("$ref", "$dynamicRef")
_OWN: Final[dict[str, Keyword]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "enum": _enum,
    "const": _const,
}
_OWN_LISTS: Final = ("enum", "const")
"""What is in them is looked up."""
_PAIRS: Final = ("unevaluatedItems", "unevaluatedProperties")
"""The library looks each element up in a list of those that were evaluated."""
_EACH: Final = (
    *("items", "contains", "propertyNames", "additionalProperties", "uniqueItems"),
    *_PAIRS,
)
_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_KEYWORDS: Final[dict[str, Keyword]] = {
    name: _counted(name, _OWN.get(name, keyword))
    for name, keyword in cast("Mapping[str, Keyword]", Draft202012Validator.VALIDATORS).items()
}
_Validator: Final[Any] = cast("Any", extend)(Draft202012Validator, _KEYWORDS)
