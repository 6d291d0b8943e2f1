"""JSON at the edges: what is refused, where, and what passes unchanged."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from expression_strategies import jsons
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.jsonvalues import (
    NotJson,
    body_hash,
    canonical,
    check_json,
    child_path,
    dumps,
    loads,
    parse,
)

NAN = float("nan")


class Colour(StrEnum):
    RED = "red"


class Plain(Enum):
    ONE = 1


class Number(IntEnum):
    TWO = 2


@dataclass
class Point:
    x: int = 1


class Text(str):
    def __str__(self) -> str:
        return "another text"


CYCLE: list[Any] = []
CYCLE.append({"again": CYCLE})


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (NAN, "$"),
        ([1, {"a b": [NAN]}], "$[1]['a b'][0]"),
        ({"x": (1, NAN)}, "$.x[1]"),
        ({"x": None, "y": [None, float("inf")]}, "$.y[1]"),
        ({1: "x"}, "$"),
        ({"a": {None: "x"}}, "$.a"),
        ({"a": {(1, 2): "x"}}, "$.a"),
        ({"n": 2**63}, "$.n"),
        ({"n": -(2**63) - 1}, "$.n"),
        ({"n": 2**64}, "$.n"),
        ({"n": 10**400}, "$.n"),
        ([{1, 2}], "$[0]"),
        ([b"x"], "$[0]"),
        ([object()], "$[0]"),
        ([Point()], "$[0]"),
        ([datetime(2027, 1, 1, tzinfo=UTC)], "$[0]"),
        ([1j], "$[0]"),
        ([Point], "$[0]"),
        ((item for item in [1]), "$"),
        (CYCLE, "$[0].again"),
        (dict.fromkeys(["\ud800", "\ud801"]), "$"),
        ({"a'b\\": NAN}, "$['a\\'b\\\\']"),
    ],
)
def test_what_is_no_json_is_refused_with_its_path(value: Any, path: str) -> None:
    for function in (check_json, dumps):
        with pytest.raises(NotJson) as caught:
            function(value)
        assert caught.value.path == path
        assert caught.value.reason


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1, (2,)), [1, [2]]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (Colour.RED, "red"),
        ({Colour.RED: Number.TWO}, {"red": 2}),
        (Plain.ONE, 1),
        (Text("itself"), "itself"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (-0.0, -0.0),
        ([True, False, None, 1, 1.0], [True, False, None, 1, 1.0]),
        ("\u0000\u2028\ud800", "\u0000\u2028\ufffd"),
    ],
)
def test_what_python_takes_for_json_becomes_plain_json(value: Any, plain: Any) -> None:
    assert repr(check_json(value)) == repr(plain)
    assert repr(loads(dumps(value))) == repr(plain)


@given(jsons())
def test_json_passes_unchanged(value: Any) -> None:
    assert repr(check_json(value)) == repr(value)
    assert repr(loads(dumps(value))) == repr(value)
    assert repr(parse(dumps(value))) == repr(value)
    assert repr(parse(dumps(value).decode())) == repr(value)


@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text(st.characters(codec=None)) | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=12,
    )
)
def test_the_fast_path_refuses_what_the_slow_path_refuses(value: Any) -> None:
    def outcome(function: Callable[[Any], Any]) -> str:
        try:
            return repr(function(value))
        except NotJson as error:
            return str(error)

    assert outcome(lambda v: loads(dumps(v))) == outcome(check_json)


def test_a_fault_deep_inside_a_large_value_is_found() -> None:
    many: list[Any] = [{"id": i, "x": None, "tags": ["a"]} for i in range(500)]
    many[321]["x"] = NAN
    with pytest.raises(NotJson) as caught:
        dumps({"rows": many})
    assert caught.value.path == "$.rows[321].x"


def test_shared_parts_are_no_cycle() -> None:
    part = {"a": [NAN.hex()]}
    assert check_json([part, part, (part, None)]) == [part, part, [part, None]]


@given(jsons())
def test_canonical_text_does_not_depend_on_the_order_of_keys(value: Any) -> None:
    def turned(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: turned(inner) for key, inner in reversed(node.items())}
        return [turned(inner) for inner in node] if isinstance(node, list) else node

    assert canonical(turned(value)) == canonical(value)
    assert body_hash(turned(value)) == body_hash(value)
    assert json.loads(canonical(value)) == json.loads(dumps(value))


def test_equal_bodies_hash_alike_and_others_do_not() -> None:
    assert body_hash({"a": 1, "b": 2}) == body_hash({"b": 2, "a": 1})
    assert len({body_hash(v) for v in ({"a": 1}, {"a": "1"}, {"a": 2}, [1, 2], [2, 1], {})}) == 6
    assert len(body_hash(None)) == 64


@pytest.mark.parametrize("text", ["", "{", "[NaN]", '"\\ud800"', "1 2", "'a'", "1e999", b"\xff"])
def test_text_that_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(json.JSONDecodeError):  # and no NotJson: it cannot be read at all
        parse(text)


@pytest.mark.parametrize("depth", [129, 500, 1000])
def test_deep_text_is_refused_also_beside_a_long_number(depth: int) -> None:
    for inner in ("1", "1234567890123456789"):
        with pytest.raises(NotJson, match="deep"):
            parse("[" * depth + inner + "]" * depth)


def test_paths_stay_readable_and_short() -> None:
    assert child_path("$", "a") == "$.a"
    assert child_path("$.a", 3) == "$.a[3]"
    assert child_path("$", "my-task") == "$['my-task']"
    assert len(child_path("$", "k" * 10_000)) < 80
    assert "\ud800" not in child_path("$", "\ud800")
