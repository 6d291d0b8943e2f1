"""What an expression refers to, and what is refused when it is compiled."""

from __future__ import annotations

import cel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.cel_functions import NAMESPACES, TYPE_NAMES
from orchestrator.domain.expressions import Expression, ExpressionError


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("input.lines.map(x, x * 2)", {"input"}),
        ("input.lines.map(x, x * y)", {"input", "y"}),
        ("x + [1].map(x, x)[0]", {"x"}),
        ("[1].map(x, x)[0] + x", {"x"}),
        ("x.map(x, x)", {"x"}),  # the list is outside of the variable's reach
        ("input.filter(input, input > 1)", {"input"}),
        ("[1].all(input, input > 1)", set()),
        ("[1].map(x, [x].map(y, x + y + z))", {"z"}),
        ("[1].map(x, true, x)", set()),
        ("[1].exists_one(item, item == index)", {"index"}),
        ("[[1]].map(x, x.map(x, x)) + [x]", {"x"}),
        ("{'a': a, b: 1}[c]", {"a", "b", "c"}),
        ("'a.b ${input} // x' + r'\\' + '''it's''' + \"\"\"a\"b\"\"\"", set()),
        ("a // b\n + c // d", {"a", "c"}),
        ("has(input.a) ? input.a : item", {"input", "item"}),
        ("input.item.secrets.tasks", {"input"}),
        ("type(input.n) == int", {"input"}),
        ("math.abs(input.n) + math.greatest(1, n)", {"input", "n"}),
        ("math", {"math"}),
        ("'a' in input", {"input"}),
        ("true || false || null == x", {"x"}),
        ("1.5e3 > .5 && 0xFFu > 1u", set()),
        ("b'bytes' == bytes(x)", {"x"}),
        ("input\n . a\t[ 'b' ]", {"input"}),
        ("size(input) + input.size()", {"input"}),
        ("input.size", {"input"}),
        ("input.a-1", {"input"}),
        ("input.a-index", {"input", "index"}),
        ("[1].map(b, input.a-b)", {"input"}),
        ("input.a - b", {"input", "b"}),
    ],
)
def test_names_are_exact(source: str, names: set[str]) -> None:
    assert Expression.compile(source).names == names


@pytest.mark.parametrize(
    ("source", "tasks", "dynamic"),
    [
        ("tasks.a.output.x + tasks['b-c'].output", {"a", "b-c"}, False),
        ("tasks[\"a\"].status == 'COMPLETED'", {"a"}, False),
        ("tasks[r'a']['output']", {"a"}, False),
        ("has(tasks.a.error) && tasks . a . error != null", {"a"}, False),
        ("tasks.a.output-tasks.b.output", {"a", "b"}, False),
        ("tasks.output.output", {"output"}, False),
        ("tasks.map.output.map(t, t)", {"map"}, False),
        ("tasks[input.which].output", set(), True),
        ("tasks.map(t, tasks[t].status) + tasks.a.output", {"a"}, True),
        ("'a' in tasks", set(), True),
        ("[1].map(tasks, tasks + 1)", set(), False),
        ("input.tasks.x", set(), False),
    ],
)
def test_task_references(source: str, tasks: set[str], dynamic: bool) -> None:
    expression = Expression.compile(source)
    assert (expression.tasks, expression.dynamic_tasks) == (tasks, dynamic)


def test_secrets_are_known_by_name() -> None:
    expression = Expression.compile("secrets.A + secrets['B-C'] + input.secrets.D")
    assert expression.secrets == {"A", "B-C"}
    assert expression.names == {"secrets", "input"}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "empty"),
        ("  // nothing", "empty"),
        ("tasks.my-task.output", "write tasks['my-task'].output"),
        ("tasks.a-b-2.output + 1", "write tasks['a-b-2'].output"),
        ("tasks.1st.output", "write tasks['1st'].output"),
        ("tasks.in.output", "write ['in']"),
        ("tasks.a.outputs", "did you mean 'output'?"),
        ("tasks.a['stat']", "only output, status, error"),
        ("tasks.a", "write tasks.a.output"),
        ("tasks['a'] == null", "write tasks['a'].output"),
        ("tasks.a[input.x]", "write tasks.a.output"),
        ("tasks['\\x61'].output", "without escapes"),
        ("secrets", "named in full"),
        ("secrets[input.x]", "named in full"),
        ("secrets.map(s, s)", "named in full"),
        ("secrets.API-KEY", "write secrets['API-KEY']"),
        ("input.order-id", "write ['order-id']"),
        ("execution.started", "did you mean 'startedAt'?"),
        ("now()", "no function 'now'"),
        ("startWith('a', 'b')", "did you mean 'startsWith'?"),
        ("startsWith('a', 'b')", "write x.startsWith(…)"),
        ("input.a.int()", "write int(x)"),
        ("map([1], 2)", "write x.map(…)"),
        ("math.max(1)", "no function 'math.max'"),
        ("input.max.foo()", "no function 'foo'"),
        ("size()", "takes 1 argument here, not 0"),
        ("'a'.substring()", "takes 1 to 2 arguments here, not 0"),
        ("max()", "takes at least 1 argument here, not 0"),
        ("input.all(i, v, v)", "takes 2 arguments here, not 3"),
        ("input.map(x)", "needs a variable"),
        ("input.map(x.y, 1)", "needs a variable"),
        ("[1].map(a, [1].map(b, [1].map(c, [1].map(d, d))))", "more than 3 comprehensions"),
        ("Point{x: 1}", "messages are not supported"),
        (".input", "'.' stands where"),
        ("input.`a`", "write ['key']"),
        ("input.?a", "unsupported syntax '.?' at column 6"),
        ("input.a = 1", "write =="),
        ("input.a and input.b", "write &&"),
        ("not input.a", "write !"),
        ("$input", "without $"),
        ("'open", "not closed"),
        ("'''open''", "not closed"),
        ("(1", "'(' is never closed"),
        ("1)", "closes nothing"),
        ("[1)", "before '[' is closed"),
        ("1}", "'}' too many"),
        ("1 +", "ends too early"),
        ("1 2", "unexpected '2' at column 3"),
        ("1\n+ +", "unexpected '+' at line 2, column 3"),
        ("1\n 2 3", "line 2, column 2"),
        ("9223372036854775808", "invalid int literal"),
        ("1.0e999", "invalid double literal"),
        ("'\\ud800'", "invalid string literal"),
        ("import", "reserved identifier"),
        ("has(input)", "invalid argument to has() macro"),
        ("input.a ? 1", "cannot be read"),
        ("é", "cannot be read"),
        ("'a" + "a" * 4096 + "'", "longer than 4096 bytes"),
        ("'" + "é" * 2048 + "'", "longer than 4096 bytes"),
        ("(" * 65 + "1" + ")" * 65, "nested more than 64"),
        ("+".join(["1"] * 300), "more than 256 operations"),
    ],
)
def test_refused_with_a_reason_that_helps(source: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression.compile(source)
    assert reason in caught.value.reason
    assert source[:70].strip()[:20] in caught.value.source
    for internal in ("<input>", "ERROR", "ExprContext", "InvalidUnicode", "expecting"):
        assert internal not in caught.value.reason


@pytest.mark.parametrize("function", ["x.size()", "size(x)", "x.a", "'x' + x", "[x, x][0]", "(x)"])
def test_the_longest_source_and_the_widest_list_are_taken(function: str) -> None:
    source = "[" + ", ".join([function] * (4000 // (len(function) + 2))) + "]"
    assert Expression.compile(source).names == {"x"}


def test_compiling_is_cached() -> None:
    assert Expression.compile("input.a + 12345") is Expression.compile("input.a + 12345")


# --- against the library: random expressions whose names are known by construction ----------------

VARIABLES = ["x", "y", "input", "tasks_", "filter", "size", "math", "int_", "items_", "loop0_"]


@st.composite
def expressions(
    draw: st.DrawFn, bound: tuple[str, ...] = (), depth: int = 3, loops: int = 3
) -> tuple[str, set[str]]:
    """A source and its free names."""

    def inner(more: tuple[str, ...] = (), used: int = 0) -> tuple[str, set[str]]:
        return draw(expressions(bound + more, depth - 1, loops - used))

    kind = draw(st.integers(0, 9 if depth else 2))
    if kind == 0:
        return draw(
            st.sampled_from(["1", "'a}'", "r'\\'", '"""x"y"""', "b'x'", "true", "null"])
        ), set()
    if kind in (1, 2):
        name = draw(st.sampled_from(VARIABLES))
        tail = draw(st.sampled_from(["", ".a", "['k']", "[0]", " . size", ".input", ".map.x"]))
        return name + tail, set() if name in bound else {name}
    left, names = inner()
    if kind == 3:
        return f"({left}).size()", names
    if kind == 4:
        return f"[{left}].size", names
    if kind == 5 and loops:
        variable = draw(st.sampled_from(VARIABLES))
        macro = draw(st.sampled_from(["map", "filter", "all", "exists", "exists_one"]))
        space = draw(st.sampled_from(["", " ", "\n", " // ) , (\n"]))
        body, more = inner((variable,), 1)
        return f"[{left}].{macro}({space}{variable}{space}, {body})", names | more
    right, more = inner()
    pattern = draw(st.sampled_from(["{} + {}", "[{}, {}]", "({} ? {} : 1)", "{} // x\n in [{}]"]))
    return pattern.format(left, right), names | more


@given(expressions())
def test_names_of_random_expressions(case: tuple[str, set[str]]) -> None:
    source, names = case
    assert Expression.compile(source).names == names
    # The library sees no name that we do not: what it calls a variable is free or a macro's.
    assert names - NAMESPACES - TYPE_NAMES <= set(cel.compile(source).variables())
