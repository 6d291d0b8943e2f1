"""Slots as leases, purely: the sum of what is held, whatever processes ask for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.domain.slots import Holding, Slots, hold, without_expired

LEASE = 30_000


def ask(before: Slots, token: str, wanted: int, *, used: int = 0, limit: int, now: int) -> Slots:
    return hold(before, token, wanted, used=used, limit=limit, now=now, lease_ms=LEASE)


STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 40_000)), max_size=30
)


@given(STEPS, st.integers(1, 6))
@settings(max_examples=100)
def test_what_is_held_never_exceeds_the_limit_and_never_is_negative(
    steps: list[tuple[str, int, int]], limit: int
) -> None:
    slots, now = Slots(), 0
    for token, wanted, later in steps:
        now += later
        slots = ask(slots, token, wanted, limit=limit, now=now)
        assert 0 <= slots.held(now) <= limit
        assert all(one.count > 0 for one in slots.holders.values())
        assert slots.of(token) <= wanted


def test_a_lowered_limit_drains_and_takes_no_running_task_away() -> None:
    slots = ask(Slots(), "a", 5, limit=5, now=0)
    slots = ask(slots, "a", 5, used=3, limit=2, now=1)
    assert slots.of("a") == 3
    assert ask(slots, "b", 1, limit=2, now=1).of("b") == 0
    slots = ask(slots, "a", 1, used=1, limit=2, now=2)
    assert ask(slots, "b", 5, limit=2, now=2).of("b") == 1


def test_slots_of_a_process_that_is_not_heard_of_are_free() -> None:
    slots = ask(Slots(), "dead", 1, limit=1, now=0)
    assert ask(slots, "b", 1, limit=1, now=LEASE - 1).of("b") == 0
    assert ask(slots, "b", 1, limit=1, now=LEASE).holders == {"b": Holding(1, 2 * LEASE)}
    assert (slots.expired(LEASE), without_expired(slots, LEASE).holders) == (1, {})


def test_it_is_known_when_all_were_taken() -> None:
    at = 1_000_000
    slots = ask(Slots(), "a", 1, limit=2, now=at)
    assert not slots.busy(at)
    slots = ask(slots, "b", 3, limit=2, now=at)
    assert slots.busy(at + 119_999)
    assert not slots.busy(at + 120_000)


def test_negative_wishes_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        ask(Slots(), "a", -1, limit=1, now=0)
