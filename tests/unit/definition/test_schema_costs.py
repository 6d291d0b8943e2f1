"""A schema and what is held against it are user input: neither may stop the process."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from orchestrator.domain import schema_keywords
from orchestrator.domain.jsonschemas import check_schema, check_value
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.schema_keywords import bounded, validator


def doubling(levels: int) -> dict[str, Any]:
    """2^levels checks in a schema of a few hundred bytes."""
    definitions: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]}
        for n in range(levels)
    }
    definitions[f"a{levels}"] = {"minLength": 2}
    return {"$defs": definitions, "$ref": "#/$defs/a0"}


def test_a_pattern_cannot_backtrack_for_minutes() -> None:
    """Thirty letters took Python's own `re` longer than anybody waits."""
    schema = {"pattern": "^(a+)+$"}
    assert check_schema(schema, "$.input") == []
    [fault] = check_value(schema, "a" * 5_000 + "!", "$.input")
    assert "does not match" in fault.message
    assert check_value(schema, "a" * 5_000) == []


def test_references_that_double_are_refused_at_publish() -> None:
    """Not at the first start."""
    [fault] = check_schema(doubling(40), "$.input")
    assert fault.code == "BAD_SCHEMA"
    assert "takes too long" in fault.message
    assert check_schema(doubling(3), "$.input") == []


def test_a_check_that_costs_too_much_is_a_finding() -> None:
    """Of a definition that was stored before."""
    [fault] = check_value(doubling(40), "xx")
    assert "takes too long" in fault.message


def test_unique_items_do_not_compare_every_pair() -> None:
    """20,000 objects: 200 million comparisons took minutes."""
    items: list[Json] = [{"sku": f"AB-{n}", "at": [n, None]} for n in range(20_000)]
    schema = {"uniqueItems": True}
    assert check_value(schema, items) == []
    [fault] = check_value(schema, [*items, {"at": [7, None], "sku": "AB-7"}])
    assert "non-unique" in fault.message


def test_a_large_usual_input_is_within_the_budget() -> None:
    """About as much as fits into the body of a request."""
    line = {
        "type": "object",
        "required": ["sku", "quantity"],
        "additionalProperties": False,
        "properties": {
            "sku": {"type": "string", "pattern": "^[A-Z0-9][A-Z0-9-]{0,31}$"},
            "quantity": {"type": "integer", "minimum": 1},
        },
    }
    lines: list[Json] = [{"sku": f"AB-{n}", "quantity": 1} for n in range(20_000)]
    assert check_value({"items": line}, lines) == []


MANY: list[Json] = list(range(20_000))
NAMES: dict[str, Json] = {f"k{n}": n for n in range(20_000)}
EMPTY: dict[str, Json] = {name: {} for name in NAMES}
OBJECTS: list[Json] = [{} for _ in range(20_000)]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"allOf": [{"items": {}}] * 200}, MANY),
        ({"allOf": [{"items": True}] * 200}, MANY),
        ({"allOf": [{"contains": {"const": -1}}] * 200}, MANY),
        ({"allOf": [{"propertyNames": {"maxLength": 9}}] * 200}, NAMES),
        ({"allOf": [{"additionalProperties": {}}] * 200}, NAMES),
        ({"unevaluatedItems": {"type": "integer"}}, MANY),
        ({"unevaluatedProperties": False, "properties": EMPTY}, NAMES),
        ({"items": {"oneOf": [{"type": "string"}] * 40}}, MANY),
        ({"items": {"anyOf": [{"type": "string"}] * 40 + [{}]}}, MANY),
        ({"items": {"required": list(NAMES)}}, [NAMES] * 2_000),
        ({"items": {"properties": EMPTY}}, OBJECTS),
        ({"items": {"dependentRequired": {name: ["a"] for name in NAMES}}}, OBJECTS),
        ({"allOf": [{"uniqueItems": True}] * 200}, [[n] for n in range(20_000)]),
        ({"$defs": {"a": {"const": MANY}}, "allOf": [{"$ref": "#/$defs/a"}] * 200}, MANY),
        ({"$defs": {"a": {"enum": [MANY]}}, "allOf": [{"$ref": "#/$defs/a"}] * 200}, MANY),
    ],
)
def test_case_schema_validation_whatever_a_keyword_goes_through_is_counted(
    schema: Any, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these took the event loop for minutes: their elements were no keywords."""
    monkeypatch.setattr(schema_keywords, "BUDGET", 50_000)
    [fault] = check_value(schema, value)
    assert "takes too long" in fault.message


def test_a_value_is_looked_up_in_a_long_list_of_values() -> None:
    """20,000 products, 20,000 lines: 200 million comparisons of objects took minutes."""
    products: list[Json] = [{"sku": n, "at": [n, None]} for n in range(20_000)]
    schema = {"items": {"enum": products}}
    assert check_value(schema, products[::-1]) == []
    [fault] = check_value(schema, [*products[:10], {"sku": 1, "at": [True, None]}])
    assert fault.field == "$[10]"
    assert len(fault.message) < 400


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "unclosed group"),
        ("(?!a)b", "look-around"),
        (r"(a)\1", "backreferences"),
        ("a{1000}{1000}", "too large"),
    ],
)
def test_patterns_without_a_linear_match_are_refused_with_their_path(
    pattern: str, reason: str
) -> None:
    """At publish, also among the names of properties."""
    schema = {"properties": {"x": {"pattern": pattern}}}
    [fault] = check_schema(schema, "$.input")
    assert fault.field == "$.input.properties.x.pattern"
    assert reason in fault.message
    [fault] = check_schema({"patternProperties": {pattern: True}}, "$.input")
    assert reason in fault.message
    # Stored by code that let it in: a finding, not a crash.
    [fault] = check_value(schema, {"x": "b"})
    assert reason in fault.message


def test_pattern_properties_cannot_stand_beside_unevaluated_ones() -> None:
    """The library would match those by its own means."""
    schema = {"patternProperties": {"^x": True}, "unevaluatedProperties": False}
    [fault] = check_schema(schema, "$.input")
    assert "cannot stand together" in fault.message


def test_values_are_shown_as_json() -> None:
    """Nobody who sends JSON knows `None`."""
    for value, shown in ((None, "null"), (False, "false"), ([True], "[true]")):
        [fault] = check_value({"type": ["object", "string"]}, value)
        assert fault.message == f"{shown} is not of type object or string"


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, 1.0, 1.5]), st.text("ab")
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
SCHEMAS: list[Any] = [
    {"uniqueItems": True},
    {"pattern": "^a+b?$"},
    {"patternProperties": {"^a": {"type": "integer"}, "b$": {"type": "string"}}},
    {"properties": {"a": True}, "additionalProperties": False},
    {"patternProperties": {"^a": True}, "additionalProperties": {"type": "boolean"}},
    {"items": {"uniqueItems": True, "contains": {"pattern": "b"}}},
    {"enum": [1, False, "a", None, [], [1, 0], {}, {"a": 0}, {"a": True}]},
    {"items": {"const": 1}},
    {"const": [False]},
    {"const": {"a": 1, "b": [0]}},
    {"unevaluatedItems": {"enum": [1.0, "b"]}, "prefixItems": [{"const": True}]},
]


@given(values, st.sampled_from(SCHEMAS))
def test_our_keywords_find_what_the_librarys_find(value: Json, schema: Any) -> None:
    """Cheaper, not different."""
    theirs = list(Draft202012Validator(schema).iter_errors(value))
    with bounded():
        ours = list(validator(schema).iter_errors(value))
    paths = [sorted(repr(error.absolute_path) for error in found) for found in (ours, theirs)]
    assert paths[0] == paths[1]


def test_a_large_pattern_against_a_large_text_is_cut_off() -> None:
    """Linear in the text, but also in the pattern: with a megabyte it would take minutes."""
    schema: Json = {"pattern": "[ab]*a([ab]{40}){100}[cd]"}
    assert check_schema(schema, "$") == []
    [fault] = check_value(schema, "ab" * 50_000)
    assert "takes too long" in fault.message
