"""The field cases of expressions: what CASES.md names."""

from __future__ import annotations

from orchestrator.domain.expressions import Scope, Template


def test_json_numbers_keep_int_or_double_ids_above_2_53() -> None:
    scope = Scope(input={"id": 9007199254740993, "n": 3})
    text = Template.compile("order-${input.id}-${input.n}")
    assert text.evaluate(scope) == "order-9007199254740993-3"
    assert Template.compile("${input.n > 2}").evaluate(scope) is True


def test_text_of_user_data_is_never_evaluated_again() -> None:
    scope = Scope(input={"name": "${secrets.API_KEY}"}, secrets={"API_KEY": "no"})
    assert Template.compile("Hello ${input.name}").evaluate(scope) == "Hello ${secrets.API_KEY}"
