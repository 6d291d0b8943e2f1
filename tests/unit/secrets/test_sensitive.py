"""What a schema marks is taken out of a value, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.domain.compile import load_workflow
from orchestrator.domain.jsonschemas import check_schema, check_value
from orchestrator.domain.redaction import MASK
from orchestrator.domain.sensitive import masked, of_schema, texts
from orchestrator.domain.sensitive_flow import Flow

S: dict[str, Any] = {"type": "string", "x-sensitive": True}
DEFS = {"$defs": {"s": S, "a": {"$anchor": "here", **S}}}


def props(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    "schema",
    [
        props(a=S),
        {"properties": {"a": {"$ref": "#/$defs/s"}}, **DEFS},
        {"properties": {"a": {"$ref": "#here"}}, **DEFS},
        {"properties": {"a": {"$ref": "#/$defs/nowhere"}}, **DEFS},
        {"allOf": [{}, {"anyOf": [props(b={}), props(a=S)]}]},
        {"oneOf": [props(a={"type": "integer"}), props(a=S)]},
        {"if": props(b={"const": 1}), "then": props(a=S)},
        {"if": True, "else": props(a=S)},
        {"dependentSchemas": {"b": props(a=S)}},
        {"patternProperties": {"^a$": S}},
        {
            "properties": {"b": {}, "c": {}},
            "additionalProperties": S,
            "patternProperties": {"b": {}},
        },
        {"$ref": "#/$defs/o", "$defs": {"o": props(a=S)}},
        {"not": props(a=S)},
    ],
)
def test_a_mark_is_found_however_the_schema_leads_to_it(schema: dict[str, Any]) -> None:
    value = {"a": "x"}
    assert masked(of_schema(schema), value) == {"a": MASK}


def test_marks_at_any_depth_cover_what_is_below_and_nothing_beside() -> None:
    schema = {
        "properties": {
            "list": {"prefixItems": [{}, S], "items": props(n=S)},
            "whole": {"x-sensitive": True, "type": "object"},
            "no": {"type": "string", "x-sensitive": False},
            "tree": {"$ref": "#/$defs/node"},
            "map": {"properties": {"a": {}}, "additionalProperties": S},
        },
        "$defs": {"node": props(key=S, next={"$ref": "#/$defs/node"})},
    }
    value = {
        "list": ["a", "b", {"n": 1, "m": 2}, 3],
        "whole": {"a": [1]},
        "no": "shown",
        "tree": {"key": "k", "next": {"key": None, "next": {"key": "k", "other": 1}}},
        "else": [S],
        "map": {"a": "x", "b": "y"},
    }
    assert masked(of_schema(schema), value) == {
        "list": ["a", MASK, {"n": MASK, "m": 2}, 3],
        "whole": MASK,
        "no": "shown",
        "tree": {"key": MASK, "next": {"key": None, "next": {"key": MASK, "other": 1}}},
        "else": [S],
        "map": {"a": "x", "b": MASK},
    }
    assert sorted(texts(of_schema(schema), value)) == ["b", "k", "k", "y"]


def test_a_schema_without_marks_costs_and_changes_nothing() -> None:
    value = {"a": [1]}
    for schema in (None, True, {}, props(a={"$ref": "#/$defs/loop"}), {"$ref": "#"}):
        assert masked(of_schema(schema), value) is value


def test_the_whole_may_be_sensitive() -> None:
    assert masked(of_schema(S), {"a": 1}) == MASK
    assert masked(of_schema(S), None) is None


schemas: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([{}, {"type": "string"}, S]),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda given: {"properties": given}
        ),
        inner.map(lambda one: {"items": one}),
        st.lists(inner, min_size=1, max_size=2).map(lambda given: {"allOf": given}),
    ),
    max_leaves=8,
)
values: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(["v", 1, True]),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abcd"), inner, max_size=3), st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)


def reference(schemas: list[Any], value: Any) -> Any:
    """The same by the plain reading of the three keywords."""
    flat: list[Any] = []
    waiting = list(schemas)
    while waiting:
        flat.append(waiting.pop())
        waiting += flat[-1].get("allOf", [])
    if any(one.get("x-sensitive") for one in flat):
        return MASK
    if isinstance(value, dict):
        return {
            key: reference(
                [one["properties"][key] for one in flat if key in one.get("properties", {})], item
            )
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [reference([one["items"] for one in flat if "items" in one], i) for i in value]
    return value


@settings(max_examples=150, deadline=None)
@given(schemas, values)
def test_masking_is_what_the_keywords_say(schema: Any, value: Any) -> None:
    assert masked(of_schema(schema), value) == reference([schema], value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (props(a={**S, "pattern": "^x$"}), {"a": "hunter2"}),
        (props(a={**S, "type": "integer"}), {"a": "hunter2"}),
        ({**props(a=S), "maxProperties": 1}, {"a": "hunter2", "b": 1}),
        ({**props(a=S), "type": "string"}, {"a": "hunter2"}),
        (props(a={"x-sensitive": True, "enum": ["a"]}), {"a": "hunter2"}),
    ],
)
def test_no_finding_shows_a_sensitive_value(schema: Any, value: Any) -> None:
    found = check_value(schema, value)
    assert found
    assert "hunter2" not in str(found)


# --- through a workflow ---------------------------------------------------------------------------

INPUT = props(name={"type": "string"}, ssn=S, cards={"type": "array", "items": props(no=S, x={})})
FLOW: dict[str, Any] = {
    "name": "flow",
    "input": INPUT,
    "tasks": {
        "last": {
            "type": "transform",
            "needs": ["copy", "each", "asked"],
            "output": {
                "a": "${tasks.copy.output.who.ssn}",
                "b": "${tasks.copy.output.who.name}",
                "c": "${tasks.each.output}",
                "d": "${tasks.asked.output}",
                "e": "${size(tasks.copy.output.who)}",
            },
        },
        "copy": {
            "type": "transform",
            "output": {
                "who": "${input}",
                "text": "hello ${input.ssn}",
                "plain": "hello ${input.name}",
                "made": "${input.ssn + '!'}",
                "list": ["${input.cards.map(c, c.no)}", "${input.name}", 7],
            },
        },
        "each": {
            "type": "map",
            "items": "${input.cards}",
            "do": {"type": "transform", "output": {"n": "${item.no}", "x": "${item.x}"}},
        },
        "asked": {
            "type": "http",
            "request": {"method": "GET", "url": "https://a.example/${input.ssn}"},
            "outputSchema": props(body=props(score={"x-sensitive": True})),
        },
        "told": {"type": "signal", "signal": "s", "schema": props(pin=S)},
    },
    "output": {"all": "${tasks.last.output}", "pin": "${tasks.told.output}"},
}


def test_marks_follow_the_names_in_expressions() -> None:
    flow = Flow(load_workflow(FLOW))
    assert flow
    copied = {"who": {"name": "n", "ssn": "1"}, "text": "t", "plain": "p", "made": "m",
              "list": [["1"], "n", 7]}  # fmt: skip
    assert masked(flow.gives("copy"), copied) == {
        "who": {"name": "n", "ssn": MASK},
        "text": MASK,
        "plain": "p",
        "made": MASK,
        "list": [MASK, "n", 7],
    }
    each = [{"n": "1", "x": 2}, {"n": "2", "x": 3}]
    assert masked(flow.gives("each"), each) == [{"n": MASK, "x": 2}, {"n": MASK, "x": 3}]
    assert masked(flow.gives("each", item=True), each[0]) == {"n": MASK, "x": 2}
    assert masked(flow.given("each", item=True), each[0]) == {"n": MASK, "x": 2}
    asked = {"status": 200, "body": {"score": 1, "name": "n"}}
    assert masked(flow.gives("asked"), asked) == {
        "status": 200,
        "body": {"score": MASK, "name": "n"},
    }
    request = {"method": "GET", "url": "https://a.example/1"}
    assert masked(flow.given("asked"), request) == {"method": "GET", "url": MASK}
    last = {"a": "1", "b": "n", "c": each, "d": asked, "e": 2}
    assert masked(flow.output, {"all": last, "pin": {"pin": "0000", "x": 1}}) == {
        "all": {
            "a": MASK,
            "b": "n",
            "c": [{"n": MASK, "x": 2}, {"n": MASK, "x": 3}],
            "d": {"status": 200, "body": {"score": MASK, "name": "n"}},
            "e": MASK,
        },
        "pin": {"pin": MASK, "x": 1},
    }


def test_what_a_child_makes_of_sensitive_data_is_sensitive() -> None:
    def child(given: Any) -> dict[str, Any]:
        return {"type": "workflow", "workflow": "other", "input": given}

    tasks = {
        "told": child({"a": "${input.ssn}"}),
        "plain": child({"a": "${input.name}"}),
        "each": {"type": "map", "items": "${input.cards}", "do": child("${item.no}")},
    }
    output = {name: f"${{tasks.{name}.output}}" for name in tasks}
    flow = Flow(load_workflow({"name": "f", "input": INPUT, "tasks": tasks, "output": output}))
    assert masked(flow.gives("told"), {"x": 1}) == MASK
    assert masked(flow.gives("plain"), {"x": 1}) == {"x": 1}
    assert masked(flow.gives("each"), [1, 2]) == [MASK, MASK]
    assert masked(flow.output, {"told": {"x": 1}, "plain": 2, "each": [3]}) == {
        "told": MASK,
        "plain": 2,
        "each": [MASK],
    }


def test_a_long_chain_of_tasks_is_no_deep_recursion() -> None:
    tasks: dict[str, Any] = {"t0": {"type": "transform", "output": {"v": "${input.ssn}"}}}
    for n in range(1, 3_000):
        tasks[f"t{n}"] = {
            "type": "transform",
            "needs": [f"t{n - 1}"],
            "output": {"v": f"${{tasks.t{n - 1}.output.v}}"},
        }
    workflow = {"name": "flow", "input": INPUT, "tasks": dict(reversed(tasks.items()))}
    flow = Flow(load_workflow(workflow))
    assert masked(flow.gives("t2999"), {"v": "1"}) == {"v": MASK}


def test_a_workflow_without_marks_has_none() -> None:
    plain = {**FLOW, "input": props(ssn={}), "tasks": {"copy": FLOW["tasks"]["copy"]}, "output": 1}
    flow = Flow(load_workflow(plain))
    assert not flow
    assert masked(flow.gives("copy"), {"who": 1}) == {"who": 1}


@pytest.mark.parametrize("mark", ["yes", 1, None])
def test_a_mark_that_is_neither_true_nor_false_is_refused_at_publish(mark: Any) -> None:
    (found,) = check_schema(props(a={"x-sensitive": mark}), "$.input")
    assert "x-sensitive" in found.field
    assert not check_schema(props(a=S, b={"x-sensitive": False}), "$.input")
