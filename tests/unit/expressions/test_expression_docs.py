"""`docs/expressions.md` and the code must say the same: functions, arguments, limits, examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.domain import (
    cel_budget,
    cel_functions,
    cel_patterns,
    cel_refs,
    cel_roots,
    cel_scan,
)
from orchestrator.domain.cel_functions import Arity
from orchestrator.domain.expressions import Expression, ExpressionError
from orchestrator.domain.failure import FailureType
from orchestrator.domain.jsonvalues import MAX_DEPTH

PAGE = (Path(__file__).parents[3] / "docs" / "expressions.md").read_text(encoding="utf-8")
SIGNATURE = re.compile(r"`((?:x\.)?)([A-Za-z0-9_.]+)\(([^`]*)\)`")
ANY = cel_functions._ANY  # pyright: ignore[reportPrivateUsage]


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    return re.split(r"\n#{2,3} ", PAGE.split(f"# {title}\n", 1)[1], maxsplit=1)[0]


def signatures(title: str) -> dict[str, Arity]:
    """Name -> arguments (a receiver counts) of the functions in a section's first column."""
    found: dict[str, Arity] = {}
    for line in section(title).splitlines():
        if line.startswith("| `"):
            for receiver, name, inside in SIGNATURE.findall(line.split(" | ")[0]):
                least, most = _arguments(inside)
                one = 1 if receiver else 0
                before = found.get(name, (99, 0))
                least, most = min(before[0], least + one), max(before[1], most + one)
                found[name] = (least, min(most, ANY))
    return found


def _arguments(inside: str) -> Arity:
    required = re.sub(r"\[.*\]", "", inside)
    least = len([part for part in required.split(",") if part.strip(" …")])
    if "…" in inside:
        return least, ANY
    plain = inside.replace("[", "").replace("]", "")
    return least, len([part for part in plain.split(",") if part.strip()])


@pytest.mark.parametrize(
    ("title", "allowed"),
    [
        ("Functions only", cel_functions.GLOBAL_ONLY),
        ("Methods only", cel_functions.METHOD_ONLY),
        ("Functions and methods", cel_functions.EITHER),
        ("Functions with a prefix", cel_functions.QUALIFIED),
    ],
)
def test_the_page_lists_every_allowed_function_and_no_other(
    title: str, allowed: dict[str, Arity]
) -> None:
    assert signatures(title) == allowed


def test_the_page_lists_every_comprehension_and_no_other() -> None:
    without_receiver = {
        name: (least - 1, most - 1) for name, (least, most) in signatures("Comprehensions").items()
    }
    assert without_receiver == cel_functions.MACROS


def test_the_page_states_the_limits_of_the_code() -> None:
    limits = dict(
        line.strip("| ").split(" | ")
        for line in section("Limits").splitlines()
        if line.startswith("| ") and " | " in line.strip("| ")
    )
    numbers = {
        name: int(re.sub(r"\D.*", "", text.replace(",", ""))) for name, text in limits.items()
    }
    assert list(numbers.values()) == [
        cel_scan.MAX_SOURCE_BYTES,
        cel_scan.MAX_BRACKET_DEPTH,
        cel_scan.MAX_CHAIN,
        cel_refs.MAX_LOOPS,
        cel_budget.MAX_STEPS,
        cel_budget.MAX_BYTES // 2**20,
        cel_patterns.MAX_SIZE,
        cel_functions.MAX_RANGE,
        cel_functions.MAX_PIECES,
        cel_functions.MAX_TEXT,
        MAX_DEPTH,
    ]


def test_the_page_states_the_names_of_the_code() -> None:
    rows = [line.split(" | ")[0] for line in section("Names").splitlines() if line[:3] == "| `"]
    roots = {found for row in rows for found in re.findall(r"`([a-z]+)", row)}
    assert roots == cel_roots.ROOTS
    for field in cel_roots.TASK_FIELDS:
        assert f"`tasks.ID.{field}`" in "".join(rows)
    execution = next(row for row in rows if "execution" in row)
    assert tuple(re.findall(r"\.(\w+)", execution)) == cel_roots.EXECUTION_FIELDS


def test_the_failure_type_is_named() -> None:
    assert f"`{FailureType.EXPRESSION}`" in section("Errors")


@pytest.mark.parametrize("source", re.findall(r"`((?:tasks|input|execution)[.\[][^`…]*)`", PAGE))
def test_references_shown_compile_or_are_shown_as_refused(source: str) -> None:
    if source == "tasks[input.which]":
        assert Expression.compile(source).dynamic_tasks  # refused by validation
    elif any(part in source for part in ("load-data.output", ".?a", "outputs")):
        with pytest.raises(ExpressionError):
            Expression.compile(source)
    else:
        assert Expression.compile(source).names
