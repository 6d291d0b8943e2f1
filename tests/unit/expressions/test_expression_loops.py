"""Comprehensions: run in pieces, they give what the library gives, on a budget and in order."""

from __future__ import annotations

from typing import Any

import cel
import pytest
from expression_strategies import outcome
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain import cel_budget, cel_loops, cel_program
from orchestrator.domain.expressions import Expression, ExpressionError, Scope, Template


def run(source: str, value: Any = None) -> Any:
    return Expression.compile(source).evaluate(Scope(input=value))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("input.map(x, x * 2)", [2, 4, 6]),
        ("input.map(x, x > 1, x * 2)", [4, 6]),
        ("input.filter(x, x > 1).map(x, [x])", [[2], [3]]),
        ("input.map(x, input.map(y, x * y))", [[1, 2, 3], [2, 4, 6], [3, 6, 9]]),
        ("input.map(x, input.filter(y, y > x).map(x, x + 10))", [[12, 13], [13], []]),
        ("input.map(x, [x].map(y, [y].map(z, x + y + z)))", [[[3]], [[6]], [[9]]]),
        ("input.map(x, x + input.filter(y, y == x)[0])", [2, 4, 6]),
        ("input.map(items_, items_ + 1)", [2, 3, 4]),
        ("input.map(input, input)", [1, 2, 3]),
        ("input.exists(x, x == 3) && !input.all(x, x == 3)", True),
        ("input.exists_one(x, x == 3) && !input.existsOne(x, x > 1)", True),
        ("[].map(x, 1 / 0) + [].filter(x, true)", []),
        ("[].all(x, false) && ![].exists(x, true) && ![].exists_one(x, true)", True),
        ("{'b': 1, 'a': 2, 'c': 3}.map(k, k)", ["a", "b", "c"]),
        ("{'b': 1, 'a': 2}.exists(k, k == 'b')", True),
        ("input.map(x, input.size() + size('é'))", [4, 4, 4]),
        ("true ? 1 : input.map(x, x / 0)[0]", 1),
        ("input.map(x, x / 0) == [] || true", True),
        ("input.map(x, // )\n x // ,\n).size() == 3 ? 1 : 2", 1),
        ("[timestamp('2027-01-01T00:00:00Z')].map(t, t.getFullYear())", [2027]),
        ("[b'a', b'b'].map(b, string(b))", ["a", "b"]),
    ],
)
def test_values(source: str, value: Any) -> None:
    assert repr(run(source, [1, 2, 3])) == repr(value)


BODIES = ["x > 1", "x / (x - 2) > 0", "x == 'a'", "x", "1 / x > 0 || y", "!(x in input.l)", "x + y"]
ELEMENTS = st.lists(st.integers(0, 4) | st.booleans() | st.just("a"), max_size=40)


@given(
    ELEMENTS,
    st.sampled_from(["map", "filter", "all", "exists", "exists_one"]),
    st.sampled_from(BODIES),
)
def test_pieces_give_what_the_library_gives(elements: list[Any], macro: str, body: str) -> None:
    source = f"[true].map(y, input.l.{macro}(x, {body}))[0]"
    value = {"l": elements}
    expected = outcome(lambda: cel.compile(source).execute({"input": value}), Exception)
    assert outcome(lambda: run(source, value), ExpressionError) == expected


def test_a_failure_in_one_piece_does_not_matter_if_another_piece_decides() -> None:
    numbers = [*range(1000), 5000]
    assert run("input.exists(x, 1 / x == 1 || x == 5000)", numbers) is True
    assert run("input.all(x, 1 / x >= 0 && x < 5000)", numbers) is False
    for source in ("input.exists(x, 1 / x > 9)", "input.all(x, 1 / x < 9)", "input.map(x, 1 / x)"):
        with pytest.raises(ExpressionError, match="division by zero"):
            run(source, numbers)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("input.map(x, x.y)", "not defined for the types"),
        ("[{'a': 1}].map(x, x.nosuch)", "no such key 'nosuch'"),
        ("input.map(x, input.map(y, y / 0))", "division by zero"),
        ("input.map(x, int('x'))", "int() cannot use the values it was given"),
        ("input.map(x, nosuch + x)", "there is no 'nosuch'"),
        ("input.filter(x, 'yes')", "not defined for the types"),
        ("input.all(x, x / 0 == 1)", "division by zero"),
        ("1.map(x, x)", "a comprehension needs a list or a map"),
        ("input[0].map(x, x)", "a comprehension needs a list or a map"),
        ("'text'.map(x, x)", "a comprehension needs a list or a map"),
    ],
)
def test_reasons(source: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        run(source, [1, 2, 3])
    assert reason in caught.value.reason
    assert caught.value.source == source


def test_keys_of_maps_come_sorted_whatever_the_library_does() -> None:
    value = {f"k{i}": i for i in range(50)}
    assert run("input.map(k, input[k])", value) == [value[key] for key in sorted(value)]
    result = run("{'b': input, 'a': 1}", value)
    assert (list(result), list(result["b"])) == (["a", "b"], sorted(value))


def test_a_large_list_is_filtered_within_the_budget() -> None:
    rows = [{"id": i, "ok": i % 2 == 0} for i in range(20_000)]
    assert run("input.filter(r, r.ok).map(r, r.id)", rows) == list(range(0, 20_000, 2))


@pytest.mark.parametrize(
    "source",
    [
        "input.map(a, input.map(b, input.map(c, 1)))",
        "true || input[0] == 1 ? input.map(a, input.filter(b, a == b)) : []",
        "input.all(a, input.all(b, input.all(c, true)))",
        "lists.range(10000).map(a, lists.range(10000).exists(b, b == -1))",
    ],
)
def test_nested_loops_over_long_lists_end_with_a_reason(source: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        run(source, list(range(10_000)))
    assert caught.value.reason == cel_budget.TOO_MUCH


def test_the_budget_counts_elements_and_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: str, value: Any, steps: int) -> bool:
        monkeypatch.setattr(cel_budget, "MAX_STEPS", steps)
        return outcome(lambda: run(source, value), ExpressionError) == "error"

    ten = list(range(10))
    assert not refused("input.map(x, x)", ten, 10)
    assert refused("input.map(x, x)", ten, 9)
    assert not refused("input.map(x, x).map(x, x)", ten, 20)
    assert refused("input.map(x, x).map(x, x)", ten, 19)
    assert refused("input.map(x, input.map(y, 1))", ten, 109)
    assert not refused("input.map(x, input.map(y, 1))", ten, 110)
    # What an expression is handed: 4,096 bytes a step.
    assert refused("input == input", ten * 64, 9)
    assert not refused("input == input", ten * 64, 10)
    # Data that every piece gets a copy of: 64 bytes a value, 4,096 bytes a step; and that every
    # element may look at: 16,384 bytes a step.
    many = {"l": ten, "many": ten * 1000}
    assert refused("input.l.map(x, x in input.many)", many, 550)
    assert not refused("input.l.map(x, x in input.many)", many, 570)
    # The same as a variable of the loop around it.
    assert refused("[input.many].map(m, input.l.map(x, x in m))", many, 550)
    assert not refused("[input.many].map(m, input.l.map(x, x in m))", many, 1500)
    # Every entry of a map that every piece gets.
    entries = {"m": {str(n): n for n in range(1000)}, "l": ten}
    assert refused("input.l.map(x, input.m.size())", entries, 1000)
    # A long chain copies all that it has at each sign.
    texts = ["a" * 16_000] * 10
    assert refused("input.exists(x, " + "+".join(["x"] * 200) + " == '')", texts, 30_000)
    assert not refused("input.exists(x, " + "+".join(["x"] * 8) + " == '')", texts, 190)
    # A long body.
    assert refused("input.exists(x, [" + ",".join("1" * 600) + "] == [])", ten, 49)
    assert not refused("input.exists(x, [" + ",".join("1" * 600) + "] == [])", ten, 50)
    # Calls, what they are given, and what they give.
    assert refused("input.exists(x, lists.range(10000) == [])", ten, 20_000)
    assert refused("input.map(x, ' a '.trim().trim())", ten, 14)
    assert not refused("input.map(x, ' a '.trim().trim())", ten, 15)
    assert refused("input.sort().size()", ten * 1000, 2000)
    # A pattern's size, with its repetitions, times the text.
    assert refused("input.matches('^(a{30}){30}b')", "a" * 10_000, 9_000)
    assert not refused("input.matches('^a{30}b')", "a" * 10_000, 500)


def test_all_expressions_of_a_template_have_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a task's input of 1 MiB could hold fifteen thousand that each take a second."""
    source = "${input.map(a, a + 1).size()}"
    monkeypatch.setattr(cel_budget, "MAX_STEPS", 300)
    scope = Scope(input=list(range(100)))
    assert Template.compile([source] * 2).evaluate(scope) == [100] * 2
    with pytest.raises(ExpressionError) as caught:
        Template.compile({"a": [source] * 3, "b": f"no. {source}"}).evaluate(scope)
    assert caught.value.reason == cel_budget.TOO_MUCH
    assert caught.value.path == ".a[2]"
    # Nor may data be handed over again and again.
    handed = Template.compile(["${input == null || true}"] * 10)
    with pytest.raises(ExpressionError) as caught:
        handed.evaluate(Scope(input=list(range(2_700))))  # 42 steps
    assert caught.value.path == "[7]"


@pytest.mark.parametrize(
    "source",
    [
        "input.l.map(x, input.text)",
        "input.l.map(x, {'a': [input.text]})",
        "[input.text]" + ".map(x, x + x + x + x)" * 20,
        "[input.l]" + ".map(x, x + x + x + x)" * 20,
        "[input.text].map(x, " + " + ".join(["x"] * 250) + ")",
        "[1].map(x, " + " + ".join(["input.text"] * 120) + ")",
        " + ".join(["input.text"] * 120),
        "[" + ", ".join(["input.text"] * 250) + "]",
        "[" + ", ".join(["input.l"] * 250) + "].map(x, [x, x, x, x])",
    ],
)
def test_data_cannot_be_multiplied_until_memory_ends(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cel_loops, "MAX_BYTES", 10_000_000)
    monkeypatch.setattr(cel_program, "MAX_BYTES", 10_000_000)
    value = {"l": list(range(1000)), "text": "a" * 100_000}
    with pytest.raises(ExpressionError) as caught:
        run(source, value)
    assert caught.value.reason == cel_budget.TOO_MUCH


def test_a_loop_reads_only_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[Any] = []

    def weigh(value: Any) -> int:
        weighed.append(value)
        return 0

    monkeypatch.setattr(cel_loops, "weigh", weigh)
    value = {"l": [1, 2], "rate": 3, "big": list(range(1000))}
    assert run("input.l.map(x, x * input.rate)", value) == [3, 6]
    assert weighed[0] == {"input": {"rate": 3}}
