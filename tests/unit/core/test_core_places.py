"""The places of a concurrency group, as a pure model: whatever happens in whatever order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.places import MAX_WAITING, Group, Holder, Verdict, arrive, leave, reenter
from orchestrator.domain.workflow import ConcurrencyPolicy

QUEUE, SKIP, CANCEL = (
    ConcurrencyPolicy.QUEUE,
    ConcurrencyPolicy.SKIP,
    ConcurrencyPolicy.CANCEL_PREVIOUS,
)
NAMES = st.sampled_from("abcdef")
STEPS = st.lists(
    st.tuples(st.sampled_from(["arrive", "leave"]), NAMES, st.sampled_from(list(ConcurrencyPolicy)))
)


def _names(group: Group) -> list[str]:
    return [holder.execution for holder in group.holders]


@given(steps=STEPS, limit=st.integers(1, 3))
def test_never_more_hold_than_the_limit_and_nobody_waits_beside_a_free_place(
    steps: list[tuple[str, str, ConcurrencyPolicy]], limit: int
) -> None:
    """And doing anything twice is doing it once."""
    group = Group()
    for what, name, policy in steps:
        if what == "arrive":
            group, verdict = arrive(group, name, limit, policy, 1)
            assert arrive(group, name, limit, policy, 1) == (group, verdict)
            assert (verdict is Verdict.HOLDS) == (
                name in _names(group) and group.displacer(name) is None
            )
        else:
            group = leave(group, {name}, limit, 1)
            assert leave(group, {name}, limit, 1) == group
        assert len(group.holders) <= limit
        assert not group.waiting or len(group.holders) == limit
        everybody = [*_names(group), *group.waiting]
        assert len(set(everybody)) == len(everybody)


def test_who_waits_longest_goes_first_and_is_called() -> None:
    group = Group()
    for name in "abc":
        group, _ = arrive(group, name, 1, QUEUE, 1)
    assert (_names(group), group.waiting) == (["a"], ("b", "c"))
    group = leave(group, {"a"}, 1, 2)
    assert (group.holders, group.waiting) == ((Holder("b", 2, called=True),), ("c",))
    assert arrive(group, "d", 1, QUEUE, 3)[1] is Verdict.WAITS


def test_skip_takes_a_free_place_and_no_other() -> None:
    group, first = arrive(Group(), "a", 1, SKIP, 1)
    after, second = arrive(group, "b", 1, SKIP, 1)
    assert (first, second, after) == (Verdict.HOLDS, Verdict.SKIPPED, group)


def test_a_raised_limit_serves_those_that_wait_before_one_that_would_be_skipped() -> None:
    """Else it would wait, which its policy does not allow."""
    group = Group(holders=(Holder("a", 1),), waiting=("b", "c"))
    after, verdict = arrive(group, "d", 3, SKIP, 2)
    assert (verdict, _names(after), after.waiting) == (Verdict.SKIPPED, ["a", "b", "c"], ())


def test_the_latest_displaces_holders_and_waiting_ones_and_waits_for_the_first_end() -> None:
    group = Group()
    for name in "abc":
        group, _ = arrive(group, name, 1, QUEUE, 1)
    group, verdict = arrive(group, "d", 1, CANCEL, 2)
    assert (verdict, group.waiting) == (Verdict.WAITS, ("d",))
    assert dict(group.displaced) == dict.fromkeys("abc", "d")
    assert arrive(group, "b", 1, CANCEL, 3)[1] is Verdict.DISPLACED
    group = leave(group, {"b"}, 1, 4)
    assert _names(group) == ["a"]
    group = leave(group, {"a"}, 1, 5)
    assert _names(group) == ["d"]


def test_one_that_was_reopened_counts_although_it_is_one_too_many() -> None:
    group, _ = arrive(Group(), "a", 1, QUEUE, 1)
    group = reenter(group, "z", 2)
    assert reenter(group, "z", 3) == group
    assert arrive(group, "b", 1, QUEUE, 3)[1] is Verdict.WAITS
    assert _names(leave(group, {"a"}, 1, 4)) == ["z"]


def test_the_list_of_those_that_wait_is_bounded() -> None:
    group = Group(
        holders=(Holder("h", 1),), waiting=tuple(f"w{number}" for number in range(MAX_WAITING))
    )
    after, verdict = arrive(group, "late", 1, QUEUE, 2)
    assert (after, verdict) == (group, Verdict.WAITS)
