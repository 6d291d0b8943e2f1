"""The entries of CASES.md on expressions and on values that are no JSON."""

from __future__ import annotations

import pytest

from orchestrator.domain.expressions import Expression, Scope, Template
from orchestrator.domain.jsonvalues import NotJson, check_json, dumps, loads, parse

BIG = 9007199254740993  # 2^53 + 1: the first integer that a double cannot hold


def test_json_numbers_reach_cel_exactly_ids_above_2_53_and_whole_numbers() -> None:
    scope = Scope(input={"id": BIG, "n": 3})
    text = Template.compile("order-${input.id}-${input.n}")
    assert text.evaluate(scope) == "order-9007199254740993-3"
    assert Expression.compile("input.n > 2").evaluate(scope) is True
    assert loads(dumps(scope.input)) == {"id": BIG, "n": 3}
    # Through CEL as well as by path, and with arithmetic.
    assert Expression.compile("[input.id][0]").evaluate(scope) == BIG
    assert Expression.compile("input.id + 1").evaluate(scope) == BIG + 1


def test_doubles_stay_doubles_also_when_whole() -> None:
    scope = Scope(input={"x": 3.0})
    value = Expression.compile("[input.x][0]").evaluate(scope)
    assert (value, type(value)) == (3.0, float)
    assert Template.compile("x=${input.x}").evaluate(scope) == "x=3.0"


def test_integers_beyond_int64_are_refused_at_the_edge_with_their_path() -> None:
    for number in (2**63, -(2**63) - 1, 2**64, 10**30):
        with pytest.raises(NotJson) as caught:
            parse(f'{{"lines": [{{"id": {number}}}]}}')
        assert caught.value.path == "$.lines[0].id"
    assert parse("[9223372036854775807, -9223372036854775808]") == [2**63 - 1, -(2**63)]


@pytest.mark.parametrize(
    "template",
    ["Hello ${input.name}", "Hello ${'' + input.name}", "Hello ${[input.name][0]}"],
)
def test_text_of_user_data_that_looks_like_a_template_is_data(template: str) -> None:
    scope = Scope(input={"name": "${secrets.API_KEY}"}, secrets={"API_KEY": "hush"})
    assert Template.compile(template).evaluate(scope) == "Hello ${secrets.API_KEY}"


def test_data_is_never_compiled_at_any_depth_nor_after_a_second_pass() -> None:
    nasty = {"a": ["${secrets.API_KEY}", {"b": "${1/0}", "${input}": "$${x}"}]}
    scope = Scope(input=nasty, item=nasty, secrets={"API_KEY": "hush"})
    for template in ("${input}", "${item}", "${ {'a': input.a} }"):
        first = Template.compile(template).evaluate(scope)
        assert first == nasty
        # A map's item, a child's input, a replay: the value is data again, by reference.
        again = Template.compile({"x": "${input}"}).evaluate(Scope(input=first))
        assert again == {"x": nasty}


def test_values_pasted_into_text_arrive_byte_exact() -> None:
    value = '"}], "x": "y\n{{x}} \\ \u0000 \x7f'
    scope = Scope(input={"v": value})
    assert Template.compile("[${input.v}]").evaluate(scope) == f"[{value}]"
    assert Template.compile({"b": ["${input.v + ''}"]}).evaluate(scope) == {"b": [value]}


def test_nan_and_infinity_are_output_not_json_with_the_path() -> None:
    for number in (float("nan"), float("inf"), float("-inf")):
        for function in (dumps, check_json):
            with pytest.raises(NotJson) as caught:
                function({"x": number, "note": "NaN: fine"})
            assert caught.value.path == "$.x"
    assert dumps({"note": "NaN: fine"}) == b'{"note":"NaN: fine"}'
    with pytest.raises(ValueError, match="unexpected character"):
        parse('{"x": NaN}')


def test_nul_is_kept_and_lone_surrogates_become_replacement_characters() -> None:
    output = {"s": "a\u0000b\ud800", "\udfff": ["\ud83d\ude00"]}
    assert check_json(output) == {"s": "a\u0000b\ufffd", "\ufffd": ["😀"]}
    assert loads(dumps(output)) == check_json(output)


def test_nesting_over_128_is_refused_by_name_not_by_a_crash() -> None:
    def nested(depth: int) -> object:
        value: object = 1
        for _ in range(depth):
            value = [value]
        return value

    assert loads(dumps(nested(128))) == nested(128)
    for depth in (129, 200, 400, 100_000):
        for function in (dumps, check_json):
            with pytest.raises(NotJson, match="128 deep"):
                function(nested(depth))
    with pytest.raises(NotJson, match="128 deep"):
        parse("[" * 200 + "]" * 200)
