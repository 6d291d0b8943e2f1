"""Evaluation: results become JSON, errors become reasons, and neither leaks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import cel
import pytest
from expression_strategies import jsons, outcome, paths_into, shape
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain import cel_program
from orchestrator.domain.cel_functions import UnusableError, implementations
from orchestrator.domain.cel_scan import KEYWORDS
from orchestrator.domain.expressions import Expression, ExpressionError, Scope

INPUT: dict[str, Any] = {
    "n": 3,
    "f": 2.5,
    "s": "Grüße 😀",
    "list": [3, 1, 2, 1],
    "none": None,
    "map": {"k": {"z": 1}},
    "max": 2**63 - 1,
}
SCOPE = Scope(
    input=INPUT,
    tasks={
        "a": {"output": {"total": 7, "rows": [{"id": 1}]}, "status": "COMPLETED", "error": None},
        "b-c": {"output": None, "status": "DEAD_LETTERED", "error": {"type": "Boom"}},
    },
    execution={"id": "e1", "startedAt": "2027-01-01T00:00:00Z", "tags": {"team": "x"}},
    item={"sku": "A"},
    index=4,
    secrets={"KEY": "hush"},
)


def run(source: str, scope: Scope = SCOPE) -> Any:
    return Expression.compile(source).evaluate(scope)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("input.n + 1", 4),
        ("input.f * 2.0", 5.0),
        ("double(input.n)", 3.0),
        ("input.n > 2.5", True),
        ("tasks.a.output.total > 0 && tasks['b-c'].status == 'DEAD_LETTERED'", True),
        ("tasks['b-c'].error.type", "Boom"),
        ("tasks[input.s == '' ? 'b-c' : 'a'].status", "COMPLETED"),
        ("tasks.map(t, t)", ["a", "b-c"]),
        ("has(tasks.nosuch.output)", "no such key 'nosuch'"),
        ("has(input.x)", False),
        ("execution.tags.team + execution.id", "xe1"),
        ("execution", dict(SCOPE.execution)),
        ("item.sku + string(index)", "A4"),
        ("secrets.KEY", "hush"),
        ("'Bearer ' + secrets['KEY']", "Bearer hush"),
        ("input.list.map(x, {'v': x}).filter(m, m.v > 1)", [{"v": 3}, {"v": 2}]),
        ("input.list.sort().distinct()", [1, 2, 3]),
        ("[1, true, 1.0, true, 'a', [1], [1.0], {'a': 1}, {'a': 1}].distinct().size()", 5),
        ("sets.contains([1], [true])", False),
        ("sets.equivalent([1, 2, 2], [2.0, 1])", True),
        ("sets.intersects([{'a': [1]}], [{'a': [1]}])", True),
        ("input.list.sum() + max([1, 5]) + math.least(3, 2)", 14),
        ("string(true) + string(1) + string('a')", "true1a"),
        ("bool('true')", True),
        ("input.s.size()", 7),
        ("input.s.substring(6, input.s.size()) + input.s.charAt(0)", "😀G"),
        ("size(input.list) + size(input.map) + size(b'ab')", 7),
        ("{'size': 1}.size + {'size': 1}.size()", 2),
        ("'a,b'.split(',').join('-').upperAscii()", "A-B"),
        ("base64.encode(bytes('hi'))", "aGk="),
        ("string(base64.decode('aGk='))", "hi"),
        ("input.list.first()", 3),
        ("[].first()", None),
        ("[].last().orValue('none')", "none"),
        ("lists.range(3)", [0, 1, 2]),
        ("timestamp('2027-03-28T03:30:00.250+02:00')", "2027-03-28T01:30:00.25Z"),
        ("timestamp('2027-03-28T01:30:00Z') + duration('90s')", "2027-03-28T01:31:30Z"),
        ("timestamp('2027-03-28T01:30:00Z').getHours()", 1),
        ("duration('1h30m')", "5400s"),
        ("duration('-1500ms')", "-1.5s"),
        ("[duration('0s')]", ["0s"]),
        ("type(1)", "int"),
        ("optional.of({'a': optional.none()})", {"a": None}),
        ("'abc'.matches('^a+b')", True),
        ("'12' + '\\u00e9' + r'\\n'", "12é\\n"),
        ("-9223372036854775808", -(2**63)),
        ("input.max", 2**63 - 1),
        ("{'a': [1, {'b': null}]}", {"a": [1, {"b": None}]}),
        ("9223372036854775807u", 2**63 - 1),
    ],
)
def test_values(source: str, value: Any) -> None:
    try:
        result: Any = run(source)
    except ExpressionError as error:
        result = error.reason
    assert repr(result) == repr(value)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("input.x", "no such key 'x' in input"),
        ("input.map.k.y.z", "no such key 'y' in input.map.k"),
        ("input['a b']", "no such key 'a b' in input"),
        ("tasks.a.output.rows[1].id", "index 1 is outside of the list tasks.a.output.rows"),
        ("tasks.gone.output", "no such key 'gone' in tasks"),
        ("input.none.x", "input.none is null: it has no 'x'"),
        ("input.n.x", "input.n is no object and no list: it has no 'x'"),
        ("input.list.x", "input.list is a list: it has no key 'x'"),
        ("secrets.OTHER", "no such key 'OTHER' in secrets"),
        ("input.x + 1", "no such key 'x'"),
        ("input.list[input.n + 10]", "an index is outside of its list"),
        ("1 / (input.n - 3)", "division by zero"),
        ("input.n % 0", "division by zero"),
        ("input.max + 1", "an integer does not fit in 64 bits"),
        ("input.list.map(x, x + input.max)", "an integer does not fit in 64 bits"),
        ("[input.max, input.max].sum()", "sum() cannot use the values it was given"),
        ("18446744073709551615u", "the result is an integer beyond 64 bits"),
        ("1.0 / 0.0", "the result is not a finite number"),
        ("[double('nan')]", "the result is not a finite number"),
        ("input.n + input.f", "not defined for the types"),
        ("input.n + input.s", "not defined for the types"),
        ("!input.n", "not defined for the types"),
        ("input.list.all(x, x)", "not defined for the types"),
        ("input.list['x']", "is a list: it has no key 'x'"),
        ("input.list[input.s]", "a value of type string stands where int|uint is needed"),
        ("b'abc'", "bytes"),
        ("{1: 2}", "keys of a map must be text"),
        ("{true: 2}", "keys of a map must be text"),
        ("{1.5: 2}", "not defined for the types"),
        ("int(input.s)", "int() cannot use the values it was given"),
        ("bool(input.s)", "bool() cannot use the values it was given"),
        ("duration(input.s)", "duration() cannot use the values it was given"),
        ("timestamp(input.n)", "timestamp() is not defined for the type of its argument"),
        ("size(input.n)", "size() cannot use the values it was given"),
        ("input.s.matches('(')", "matches() cannot use the values it was given"),
        ("'x'.matches('(a{1000}){1000}')", "matches() cannot use the values it was given"),
        ("[].first().value()", "value() cannot use the values it was given"),
        ("lists.range(10001)", "lists.range() cannot use the values it was given"),
        ("nosuch + 1", "there is no 'nosuch'"),
    ],
)
def test_reasons(source: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        run(source)
    assert reason in caught.value.reason
    assert caught.value.source == source
    assert caught.value.path == ""


@pytest.mark.parametrize(
    "source",
    [
        "int(secrets.KEY)",
        "double(secrets.KEY)",
        "bool(secrets.KEY)",
        "timestamp(secrets.KEY)",
        "duration(secrets.KEY)",
        "input[secrets.KEY]",
        "input.map[secrets.KEY].x",
        "{'a': 1}[secrets.KEY]",
        "'x'.matches('(' + secrets.KEY)",
        "secrets.KEY + 1",
        "secrets.KEY.x",
        "secrets.KEY[0]",
        "-secrets.KEY",
        "[1, secrets.KEY].sort()",
        "[1, secrets.KEY].join()",
        "secrets.KEY.charAt(99)",
        "secrets.KEY.substring(99)",
        "base64.decode(secrets.KEY)",
        "{secrets.KEY: 1}[2]",
        "math.abs(secrets.KEY)",
        "math.sqrt(secrets.KEY)",
        "secrets.KEY.contains(1)",
        "input.max + size(secrets.KEY)",
        "1 in secrets.KEY",
    ],
)
def test_no_value_of_the_data_is_in_a_reason_or_a_log(
    source: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    scope = Scope(input=INPUT, secrets={"KEY": "s3cr-é{t%"})
    with pytest.raises(ExpressionError) as caught:
        run(source, scope)
    shown = f"{caught.value} {caught.value.reason} {caplog.text} {capfd.readouterr()}"
    assert "s3cr" not in shown
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert "s3cr" not in repr(scope)


@pytest.mark.parametrize("name", ["bool", "sort", "join", "charAt", "base64.decode", "math.abs"])
def test_our_functions_raise_no_value_that_the_library_could_log(name: str) -> None:
    with pytest.raises(UnusableError) as caught:
        implementations([name])[name](["s3cr", 1] if name in ("sort", "join") else "s3cr-é")
    assert "s3cr" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_text_cannot_be_blown_up_by_nested_replacing() -> None:
    scope = Scope(input="a" * 100_000)
    with pytest.raises(ExpressionError, match="replace"):
        run("input.replace('a', input)", scope)
    with pytest.raises(ExpressionError, match="join"):
        run("lists.range(1000).map(i, 'a').join(input)", scope)
    with pytest.raises(ExpressionError, match="split"):
        run("(input + input + input).split('').size()", scope)
    assert run("(input + input + input).split('', 2).size()", scope) == 2
    assert run("'aXa'.replace('a', 'bb') + 'aa'.replace('a', 'c', 1)") == "bbXbbca"


def test_a_path_gives_the_value_itself() -> None:
    assert run("input.list") is INPUT["list"]
    assert run("tasks.a.output") is SCOPE.tasks["a"]["output"]
    assert run("input") is INPUT


def test_any_mapping_may_hold_tasks_and_execution() -> None:
    scope = Scope(
        tasks=MappingProxyType({"a": MappingProxyType({"output": [1], "status": "COMPLETED"})}),
        execution=MappingProxyType({"id": "e1"}),
    )
    for source in ("tasks.a.output[0]", "tasks.a.output[0] + 0", "tasks['a' + ''].output[0]"):
        assert run(source, scope) == 1
    assert run("tasks", scope) == {"a": {"output": [1], "status": "COMPLETED"}}
    assert run("execution", scope) == {"id": "e1"}
    assert type(run("execution", scope)) is dict


def test_only_what_is_named_crosses_into_cel(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Mapping[str, Any]] = []

    class Spy:
        def execute(self, variables: Mapping[str, Any]) -> bool:
            seen.append(variables)
            return True

    def fake(source: str) -> Spy:
        return Spy()

    monkeypatch.setattr(cel_program.cel, "compile", fake)
    source = "tasks.a.output.total > input.n && has(tasks.gone.output) && secrets.KEY == item"
    assert cel_program._compiled.__wrapped__(source).evaluate(SCOPE) is True
    assert seen == [
        {
            "tasks": {"a": {"output": {"total": 7}}},
            "input": {"n": 3},
            "secrets": {"KEY": "hush"},
            "item": {"sku": "A"},
        }
    ]


def test_a_rust_panic_is_an_expression_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):  # as pyo3 names and derives it
        pass

    def panic(*_: object) -> Any:
        raise PanicException("index out of bounds: the len is 0")

    monkeypatch.setattr(cel_program.cel, "compile", panic)
    with pytest.raises(ExpressionError, match="cannot be read"):
        cel_program._compiled.__wrapped__("1 + 1 + 77")
    monkeypatch.undo()
    program = type("Program", (), {"execute": panic})()
    monkeypatch.setattr(cel_program.cel, "compile", lambda source: program)
    with pytest.raises(ExpressionError, match="cannot be evaluated"):
        cel_program._compiled.__wrapped__("1 + 1 + 78").evaluate(SCOPE)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_being_stopped_is_no_expression_error(
    monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    def interrupted(source: str) -> Any:
        raise stop

    monkeypatch.setattr(cel_program.cel, "compile", interrupted)
    with pytest.raises(stop):
        cel_program._compiled.__wrapped__("1 + 1 + 79")


# --- properties -----------------------------------------------------------------------------------


@given(jsons())
def test_any_json_comes_back_unchanged_by_path_and_through_cel(value: Any) -> None:
    scope = Scope(input=value)
    for source in ("input", "[input][0]", "{'a': input}.a", "[input].map(x, x)[0]"):
        assert shape(run(source, scope)) == shape(value)


@given(st.data())
def test_the_native_path_gives_what_cel_gives(data: st.DataObject) -> None:
    value = data.draw(jsons())
    source = "input"
    for key in data.draw(paths_into(value)):
        plain = isinstance(key, str) and key.isidentifier() and key.isascii()
        if plain and key not in KEYWORDS and data.draw(st.booleans()):
            source += f".{key}"
        else:
            source += f"[{_literal(key)}]"
    expected = outcome(
        lambda: cel.compile(source).execute({"input": value}), KeyError, IndexError, TypeError
    )
    for whole in (source, f"[{source}][0]"):  # the second goes through CEL, and is pruned
        assert outcome(lambda: run(whole, Scope(input=value)), ExpressionError) == expected  # noqa: B023


def _literal(key: str | int) -> str:
    if isinstance(key, int):
        return str(key)
    escaped = key.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + escaped.replace("\r", "\\r") + '"'
