"""Backoff at its edges: every delay is bounded, derived, and the same when asked again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.failure import Failure
from orchestrator.domain.retry import (
    MAX_DELAY_MS,
    MAX_RETRY_AFTER_MS,
    backoff,
    is_retryable,
    next_delay,
)
from orchestrator.domain.workflow import Jitter, RetryPolicy

POLICY = RetryPolicy(
    max_attempts=2_000,
    initial_interval_ms=1000,
    backoff_coefficient=5.0,
    max_interval_ms=60_000,
    jitter=Jitter.NONE,
)


@pytest.mark.parametrize(
    ("attempt", "delay"),
    [(1, 1000), (2, 5000), (3, 25_000), (4, 60_000), (16, 60_000), (47, 60_000), (1100, 60_000)],
)
def test_backoff_does_not_overflow(attempt: int, delay: int) -> None:
    assert next_delay(POLICY, attempt=attempt, key="k") == delay


@pytest.mark.parametrize("coefficient", [1e308, float("inf"), 1.0000001, 1.0, 0.5, 0.0])
@pytest.mark.parametrize("attempt", [1, 2, 47, 1100, 10_000])
def test_backoff_does_not_overflow_with_any_coefficient(coefficient: float, attempt: int) -> None:
    delay = backoff(replace(POLICY, backoff_coefficient=coefficient), attempt)
    expected = 60_000 if coefficient > 2 and attempt > 1 else 1000
    assert abs(delay - expected) <= 1


def test_without_a_useful_cap_the_platform_maximum_holds() -> None:
    policy = replace(POLICY, max_interval_ms=10**18)
    assert next_delay(policy, attempt=1100, key="k") == MAX_DELAY_MS
    assert (
        next_delay(replace(policy, initial_interval_ms=10**17), attempt=1, key="k") == MAX_DELAY_MS
    )


@given(
    st.builds(
        RetryPolicy,
        max_attempts=st.just(10_001),
        initial_interval_ms=st.integers(0, 10**12),
        backoff_coefficient=st.floats(0, 1e308),
        max_interval_ms=st.integers(0, 10**12),
        jitter=st.sampled_from(Jitter),
    ),
    st.integers(1, 10_000),
    st.text(max_size=20),
)
def test_any_delay_is_bounded_and_repeatable(policy: RetryPolicy, attempt: int, key: str) -> None:
    delay = next_delay(policy, attempt=attempt, key=key)
    assert delay is not None
    assert delay == next_delay(policy, attempt=attempt, key=key)
    assert 0 <= delay <= min(policy.max_interval_ms, MAX_DELAY_MS)
    full = backoff(policy, attempt)
    if policy.jitter is Jitter.NONE:
        assert delay == full
    elif policy.jitter is Jitter.FULL:
        assert delay <= full
    elif policy.jitter is Jitter.EQUAL:
        assert full // 2 <= delay <= full
    else:
        assert delay >= min(policy.initial_interval_ms, policy.max_interval_ms, MAX_DELAY_MS)


@pytest.mark.parametrize(
    ("jitter", "low"), [("full", 0), ("equal", 30_000), ("decorrelated", 1000)]
)
def test_a_crowd_at_the_cap_still_spreads(jitter: str, low: int) -> None:
    policy = replace(POLICY, jitter=Jitter(jitter))
    delays: list[Any] = [next_delay(policy, attempt=20, key=f"task-{n}") for n in range(400)]
    assert low <= min(delays) <= max(delays) <= 60_000
    assert len(set(delays)) > 100
    span = 60_000 - low
    assert min(delays) < low + span * 0.2
    assert max(delays) > low + span * 0.8


def test_attempts_spread_too() -> None:
    policy = replace(POLICY, jitter=Jitter.FULL)
    assert len({next_delay(policy, attempt=n, key="k") for n in range(10, 60)}) > 40


def test_no_attempt_left() -> None:
    policy = replace(POLICY, max_attempts=3)
    assert [next_delay(policy, attempt=n, key="k") is None for n in (1, 2, 3, 4)] == [
        False,
        False,
        True,
        True,
    ]
    assert next_delay(replace(policy, max_attempts=1), attempt=1, key="k") is None
    assert next_delay(policy, attempt=3, key="k", retry_after_ms=1000) is None


@pytest.mark.parametrize(
    ("asked", "delay"),
    [
        (120_000, 120_000),  # over maxInterval: the dependency knows
        (10, 10),
        (-5, 1000),
        (0, 1000),
        (None, 1000),
        (10 * 365 * 86_400_000, MAX_RETRY_AFTER_MS),
    ],
)
def test_retry_after_wins_within_reason(asked: int | None, delay: int) -> None:
    assert next_delay(POLICY, attempt=1, key="k", retry_after_ms=asked) == delay


@pytest.mark.parametrize(
    ("retryable", "non_retryable", "failure", "expected"),
    [
        (None, (), Failure(type="A", message=""), True),
        (None, ("A",), Failure(type="A", message=""), False),
        (None, ("B",), Failure(type="A", message=""), True),
        (("A",), (), Failure(type="A", message=""), True),
        (("B",), (), Failure(type="A", message=""), False),
        (("A",), ("A",), Failure(type="A", message=""), False),
        ((), (), Failure(type="A", message=""), False),
        (("A",), (), Failure(type="A", message="", retryable=False), False),
    ],
)
def test_is_retryable(retryable: Any, non_retryable: Any, failure: Failure, expected: bool) -> None:
    policy = replace(
        POLICY,
        retryable=None if retryable is None else frozenset(retryable),
        non_retryable=frozenset(non_retryable),
    )
    assert is_retryable(policy, failure) is expected
