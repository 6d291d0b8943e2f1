"""Nothing that a user can write ends the process: limits before the Rust parser, fuzzing after."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import pytest
from expression_strategies import jsons
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.domain.expressions import Expression, ExpressionError, Scope

WORDS = st.sampled_from(
    (
        *("input", "tasks", "secrets", "item", "x", "y", "true", "null", "in", "has", "map", "all"),
        *("size", "string", "int", "math", "optional", "a", "as", "_", "é", "output", "first"),
        *("(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "+", "-", "*", "/", "%", "!", "&&"),
        *("||", "==", "!=", "<", "<=", ">", "=", "&", "$", "${", "`", "@", "#", ";", "~", "^"),
        *("1", "0", "1.5", ".5", "1e9", "0x1F", "1u", "9223372036854775807", "-", "5."),
        *("'a'", '"b"', "'", '"', "'''", '"""', "r'", "b'", "b'\\xff'", "\\", "'\\'", "'\\x00'"),
        *(" ", "\n", "\t", "\r", "\u00a0", "//", "// }\n", "/*", "\u0000", "😀", "\ud800"),
    )
)


@given(st.lists(WORDS, max_size=25).map("".join) | st.text(max_size=30), jsons(6))
@example("[].map(x,x).map(y,y.z)", None)
@example("-9223372036854775808 / -1", None)
@example("-(-9223372036854775808)", None)
@example("timestamp('0000-01-01T00:00:00Z')", None)
@example("duration('99999999999999999999h')", None)
@example("timestamp('9999-12-31T23:59:59Z') + duration('99h')", None)
@example("[1][9223372036854775807u]", None)
@example("'😀'.substring(0, 1).charAt(1)", None)
@example("input.a", {"a": "\ud800"})
@example("input + ''", "\ud800")
@example("[input]", 2**64)
@example("[input]", float("nan"))
def test_any_source_gives_a_value_or_an_expression_error(source: str, value: object) -> None:
    scope = Scope(input=value, item=value, tasks={"a": {"output": value, "status": "COMPLETED"}})
    with suppress(ExpressionError):
        Expression.compile(source).evaluate(scope)


CHAINS = {
    "sum": "1" + "+1" * 2000,
    "comparison": "1" + "<1" * 2000,
    "fields": "input" + ".a" * 2000,
    "indices": "input" + "[0]" * 1300,
    "calls": "input" + ".size()" * 500,
    "signs": "-" * 4000 + "1",
    "mixed signs": "!-" * 2000 + "1",
    "ternary": "true?1:" * 500 + "1",
    "parentheses": "(" * 2000 + "1" + ")" * 2000,
    "lists": "[" * 2000 + "]" * 2000,
    "maps": "{'a':" * 600 + "1" + "}" * 600,
    "nested index": "a[" * 1300 + "0" + "]" * 1300,
    "macros": "[1]" + ".map(x,x)" * 400,
    "nested macros": "[1].map(x," * 300 + "1" + ")" * 300,
    "chain in brackets": "(1+" * 60 + "1+" * 250 + "1" + ")" * 60,
    "open": "(" * 4000,
    "deepest allowed": "(" * 60 + "1" + "+1" * 190 + ")" * 60,
    "longest allowed": "1" + "+1" * 255,
    "longest path": "item" + ".a" * 255,
}


def test_deep_sources_do_not_end_the_process_on_a_small_stack() -> None:
    """In a process of its own, since the failure would be a segmentation fault. 512 KiB is the
    smallest default stack of a thread on the systems that we know (macOS)."""
    program = f"""
import threading
from orchestrator.domain.expressions import Expression, ExpressionError, Scope
def run():
    for name, source in {CHAINS!r}.items():
        try:
            Expression.compile(source).evaluate(Scope())
            print(name, "ok")
        except ExpressionError as error:
            print(name, "refused")
threading.stack_size(512 * 1024)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == len(CHAINS)
    assert "longest allowed ok" in done.stdout
    assert "sum refused" in done.stdout


@pytest.mark.parametrize("depth", [64, 128])
def test_deep_data_passes_through_cel(depth: int) -> None:
    value: object = 1
    for _ in range(depth):
        value = {"a": [value]} if depth == 64 else [value]
    scope = Scope(input=value)
    assert Expression.compile("input == input ? input : 0").evaluate(scope) == value
    with pytest.raises(ExpressionError, match="nested more than 128"):
        Expression.compile("[{'x': input}, [[input]]]").evaluate(scope)


def test_ten_thousand_expressions_compile() -> None:
    compiled = [Expression.compile(f"tasks.t{i}.output.value > {i}") for i in range(10_000)]
    assert len({expression.tasks for expression in compiled}) == 10_000
