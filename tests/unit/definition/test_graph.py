"""Ancestors, cycles and unreachable tasks, against slow and obvious versions of the same."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.graph import analyse

NEEDS = st.integers(0, 12).flatmap(
    lambda count: st.lists(
        st.lists(st.integers(0, max(0, count - 1)), max_size=3), min_size=count, max_size=count
    )
)


def reachable(needs: list[list[int]], start: int) -> set[int]:
    """Everything upstream, the slow and obvious way."""
    seen: set[int] = set()
    todo = list(needs[start])
    while todo:
        task = todo.pop()
        if task not in seen:
            seen.add(task)
            todo += needs[task]
    return seen


@given(NEEDS)
def test_ancestors_are_all_that_can_be_reached(needs: list[list[int]]) -> None:
    graph = analyse(needs)
    for task in range(len(needs)):
        upstream = {other for other in range(len(needs)) if graph.is_upstream(other, task)}
        assert upstream == reachable(needs, task)


@given(NEEDS)
def test_cycles_are_real_one_per_component_and_none_is_missed(needs: list[list[int]]) -> None:
    graph = analyse(needs)
    upstream = [reachable(needs, task) for task in range(len(needs))]
    components = {
        frozenset(o for o in upstream[task] if task in upstream[o])
        for task in range(len(needs))
        if task in upstream[task]
    }
    assert {c for c in components if len(c) > 1} == {
        frozenset(upstream[cycle[0]] & {o for o in range(len(needs)) if cycle[0] in upstream[o]})
        for cycle in graph.cycles
    }
    assert len(graph.cycles) == len({c for c in components if len(c) > 1})
    for cycle in graph.cycles:
        assert len(set(cycle)) == len(cycle) > 1
        assert cycle[0] == min(o for o in upstream[cycle[0]] if cycle[0] in upstream[o]), (
            "starts at the first task of its component"
        )
        for here, there in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert there in needs[here]


@given(NEEDS)
def test_unreachable_is_what_needs_a_cycle_without_being_on_one(needs: list[list[int]]) -> None:
    upstream = [reachable(needs, task) for task in range(len(needs))]
    looped = {task for task in range(len(needs)) if task in upstream[task]}
    expected = [t for t in range(len(needs)) if t not in looped and upstream[t] & looped]
    assert list(analyse(needs).unreachable) == expected


def test_a_chain_and_a_ring_of_10_000_do_not_exhaust_the_stack() -> None:
    chain = analyse([[task - 1] if task else [] for task in range(10_000)])
    assert chain.cycles == ()
    assert chain.is_upstream(0, 9_999)
    assert not chain.is_upstream(9_999, 0)
    (ring,) = analyse([[(task + 1) % 10_000] for task in range(10_000)]).cycles
    assert ring == tuple(range(10_000))
