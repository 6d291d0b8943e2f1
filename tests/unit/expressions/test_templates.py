"""Templates: JSON with `${…}` in its strings."""

from __future__ import annotations

from typing import Any

import pytest
from expression_strategies import jsons
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.domain.expressions import ExpressionError, Scope, Template, TemplateError

SCOPE = Scope(
    input={
        "n": 3,
        "f": 3.0,
        "s": "text",
        "t": True,
        "none": None,
        "l": [1, {"a": "ü"}],
        "big": 1e300,
    },
    tasks={"a": {"output": {"x": 1}, "status": "COMPLETED", "error": None}},
    secrets={"K": "hush"},
)


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("${input.n}", 3),
        ("${ input.l }", [1, {"a": "ü"}]),
        (" ${input.n}", " 3"),
        ("${input.n}${input.n}", "33"),
        ("${input.f}|${input.t}|${input.none}|${input.s}", "3.0|true|null|text"),
        ("l=${input.l} ${input.big}", 'l=[1,{"a":"ü"}] 1e+300'),
        ("${ {'a': '}', 'b': {'c': \"${x}\"}}.a }", "}"),
        ("<${ '}' + r'\\' + \"\\\"}\" + '''it's }''' + \"\"\"}\"}\"\"\" }>", '<}\\"}it\'s }}"}>'),
        ("${input.n // }\n}", 3),
        ("$${input.n}", "${input.n}"),
        ("$${input.n} ${input.n}", "${input.n} 3"),
        ("$$${input.n}", "$${input.n}"),
        ("${'$'}${input.n}", "$3"),
        ("${'$' + string(input.n)}", "$3"),
        ("$$ $ {x} } { $", "$$ $ {x} } { $"),
        ("${'${input.n}'}", "${input.n}"),
        ("costs $5 and $${", "costs $5 and ${"),
        ("", ""),
        ({"${input.n}": "${input.n}"}, {"${input.n}": 3}),
        (["a", 1, None, True, 2.0, {"x": []}], ["a", 1, None, True, 2.0, {"x": []}]),
        ({"a": {"b": [{"c": "${tasks.a.output.x + 1}"}, "k"]}}, {"a": {"b": [{"c": 2}, "k"]}}),
    ],
)
def test_values(template: Any, value: Any) -> None:
    result = Template.compile(template).evaluate(SCOPE)
    assert repr(result) == repr(value)


def test_what_a_template_refers_to() -> None:
    template = Template.compile(
        {
            "a": ["${tasks['b-c'].output}", "x ${secrets.K} ${input.l.map(x, x)}"],
            "my key": "${item}",
        }
    )
    assert template.names == {"tasks", "secrets", "input", "item"}
    assert template.tasks == {"b-c"}
    assert template.secrets == {"K"}
    assert [(path, e.source) for path, e in template.expressions] == [
        (".a[0]", "tasks['b-c'].output"),
        (".a[1]", "secrets.K"),
        (".a[1]", "input.l.map(x, x)"),
        ("['my key']", "item"),
    ]
    assert (template.constant, template.single, template.dynamic_tasks) == (False, None, False)
    assert Template.compile("${tasks[item].output}").dynamic_tasks


def test_constants_are_known_and_unescaped() -> None:
    template = Template.compile({"a": ["$${x}", 1]})
    assert template.constant
    assert template.expressions == ()
    assert template.evaluate(SCOPE) == {"a": ["${x}", 1]}


def test_single_is_the_expression_of_a_template_that_is_one() -> None:
    single = Template.compile("${input.n > 2}").single
    assert single is not None
    assert single.evaluate(SCOPE) is True
    for other in ("${input.n} ", "x", {"a": "${input.n}"}, ["${input.n}"], 3):
        assert Template.compile(other).single is None


def test_all_faults_are_reported_with_their_paths() -> None:
    with pytest.raises(TemplateError) as caught:
        Template.compile(
            {
                "ok": "${input.n}",
                "a": "${foo()} and ${tasks.a.outputs} and ${input.n}",
                "b": ["${", "x ${input.n", {"c d": "${}"}],
                "e": "${'open}",
                "f": "${a b}",
            }
        )
    found = [(path, source) for path, source, _ in caught.value.problems]
    assert found == [
        (".a", "foo()"),
        (".a", "tasks.a.outputs"),
        (".b[0]", ""),
        (".b[1]", "input.n"),
        (".b[2]['c d']", ""),
        (".e", "'open}"),
        (".f", "a b"),
    ]
    assert all(reason for _, _, reason in caught.value.problems)
    assert "never closed" in caught.value.problems[2][2]


def test_a_failing_expression_names_itself_and_the_field() -> None:
    template = Template.compile({"body": [{"amount": "EUR ${tasks.a.output.total}"}]})
    with pytest.raises(ExpressionError) as caught:
        template.evaluate(SCOPE)
    assert caught.value.path == ".body[0].amount"
    assert caught.value.source == "tasks.a.output.total"
    assert caught.value.reason == "no such key 'total' in tasks.a.output"
    assert caught.value.at("$.tasks.pay.request").path == "$.tasks.pay.request.body[0].amount"


def test_nesting_over_128_is_a_fault() -> None:
    value: Any = "${input.n}"
    for _ in range(128):
        value = [value]
    assert "3" in repr(Template.compile(value).evaluate(SCOPE))
    with pytest.raises(TemplateError, match="128 deep"):
        Template.compile([value])


@given(jsons())
def test_any_json_passes_as_input_and_as_constant(value: Any) -> None:
    assert repr(Template.compile("${input}").evaluate(Scope(input=value))) == repr(value)
    assert repr(Template.compile({"a": ["${input}"]}).evaluate(Scope(input=value))) == repr(
        {"a": [value]}
    )
    if "${" not in repr(value):
        assert repr(Template.compile(value).evaluate(SCOPE)) == repr(value)


TEXTS = st.text(st.sampled_from("a$ {}'\"\\\n/ü[("), max_size=20) | st.text(max_size=20)


@given(TEXTS, TEXTS, TEXTS)
def test_text_around_and_inside_expressions_is_exact(before: str, data: str, after: str) -> None:
    assume(not before.endswith("$"))
    literal = data.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    assume("\r" not in literal)
    source = f"{escaped(before)}${{ '{literal}' + input }}{escaped(after)}"
    assert Template.compile(source).evaluate(Scope(input=data)) == before + data + data + after


@given(TEXTS)
def test_escaped_text_is_itself(text: str) -> None:
    assert Template.compile(escaped(text)).evaluate(SCOPE) == text


def escaped(text: str) -> str:
    """`text` written so that no part of it is an expression."""
    return text.replace("${", "$${")


@given(st.text(st.sampled_from("${}'\"\\r/\n input.+[]()"), max_size=40))
def test_any_text_compiles_or_is_a_template_error(text: str) -> None:
    try:
        template = Template.compile(text)
    except TemplateError as error:
        problems = error.problems
    else:
        assert template.constant or "${" in text
        return
    assert problems
    assert all(path == "" and reason for path, _, reason in problems)
