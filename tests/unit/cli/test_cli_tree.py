"""The task tree: every task once, under one of its needs, however the graph looks."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.local.cli_render import MAX_INDENT, task_rows


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Tasks in any order whose needs form a DAG; some needs may be on another page."""
    size = draw(st.integers(0, 12))
    tasks = []
    for index in range(size):
        needs = draw(st.lists(st.integers(-1, index - 1), unique=True, max_size=4))
        tasks.append({"id": f"t{index}", "needs": [f"t{need}" for need in needs]})
    return draw(st.permutations(tasks))


@given(graphs())
def test_every_task_is_drawn_once_and_every_need_is_visible(tasks: list[dict[str, Any]]) -> None:
    rows = task_rows(tasks)
    assert sorted(task["id"] for _, task, _ in rows) == sorted(task["id"] for task in tasks)
    above: list[str] = []  # ids on the way from the root to the row
    for branch, task, hidden in rows:
        level = len(branch) // 3
        del above[level:]
        shown = {above[-1]} if above else set()
        assert shown | set(hidden) == set(task["needs"])
        assert not shown & set(hidden)
        above.append(task["id"])


def test_a_long_chain_is_drawn_without_recursion_and_with_bounded_indent() -> None:
    chain = [{"id": f"t{n}", "needs": [f"t{n - 1}"] if n else []} for n in range(10_000)]
    rows = task_rows(chain)
    assert [task["id"] for _, task, _ in rows] == [task["id"] for task in chain]
    assert max(len(branch) for branch, _, _ in rows) <= 3 * MAX_INDENT
    assert rows[5_000][2] == ["t4999"]


def test_a_task_hangs_under_its_deepest_need() -> None:
    needs = {"a": [], "b": ["a"], "c": ["b"], "d": ["a", "c"]}
    rows = task_rows([{"id": id, "needs": of} for id, of in needs.items()])
    assert [(len(branch) // 3, task["id"], hidden) for branch, task, hidden in rows] == [
        (0, "a", []),
        (1, "b", []),
        (2, "c", []),
        (3, "d", ["a"]),
    ]
