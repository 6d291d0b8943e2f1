"""The page for authors shows code that would be accepted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from activities import code as public
from activities.code.lint import lint
from activities.code.lint_rules import RULES
from activities.code.registry import CodeRegistry

PAGE = (Path(__file__).parents[3] / "docs" / "code-workflows.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_what_is_shown_registers_and_is_clean(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = CodeRegistry()
    monkeypatch.setattr("activities.code.registry._DEFAULT", made)
    exec(compile(block, "docs", "exec"), {"__name__": "docs"})
    assert made.names()
    assert lint(block) == []


def test_everything_of_the_context_is_listed() -> None:
    table = PAGE.split("## The context")[1].split("##")[0]
    for name in vars(public.CodeContext):
        if not name.startswith("_"):
            assert re.search(rf"`{name}\b", table), name


def test_every_rule_has_a_mend() -> None:
    assert all(code and mend for code, mend in RULES.values())
