"""Token buckets: never more than the burst and what came, whatever the clocks say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.domain.bucket import MAX_AHEAD_MS, Bucket, Rate, full, refilled, take, wait_ms

RATE = Rate(per_second=4, burst=10)
NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("tokens", "ahead", "wanted", "taken", "left"),
    [
        (10, 0, 1, 1, 9),
        (10, 60_000, 1, 1, 9),  # never above the burst
        (0, 249, 1, 0, 0.996),
        (0, 250, 1, 1, 0),
        (0, 1_000, 9, 4, 0),
        (2.5, 0, 9, 2, 0.5),
        (2.5, -1_000, 9, 2, 0.5),  # a clock behind gives nothing and takes nothing
        (2.5, -MAX_AHEAD_MS - 1, 9, 2, 0.5),
        (99, 0, 99, 10, 0),  # the burst was lowered
    ],
)
def test_takes_what_is_there(
    tokens: float, ahead: int, wanted: int, taken: int, left: float
) -> None:
    found, after = take(Bucket(tokens, NOW), RATE, wanted, NOW + ahead)
    assert (found, after.tokens) == (taken, pytest.approx(left))


@pytest.mark.parametrize(
    ("tokens", "ahead", "expected"),
    [(1, 0, 0), (0, 0, 250), (0.5, 0, 125), (0, 100, 150), (0, 250, 0), (0, -40, 290)],
)
def test_says_when_the_next_one_comes(tokens: float, ahead: int, expected: int) -> None:
    assert wait_ms(Bucket(tokens, NOW), RATE, NOW + ahead) == expected


def test_a_clock_that_was_far_ahead_stops_nobody_for_long() -> None:
    wrong = Bucket(0, NOW + 3_600_000)
    _, after = take(wrong, RATE, 1, NOW)
    assert after.at == NOW
    assert take(after, RATE, 1, NOW + 250)[0] == 1


steps = st.lists(
    st.tuples(st.integers(-120_000, 5_000), st.integers(0, 30)), min_size=1, max_size=30
)


@settings(max_examples=100)
@given(st.floats(0.001, 1_000), st.integers(1, 100), steps)
def test_no_stretch_sees_more_than_the_burst_and_what_came(
    per_second: float, burst: int, steps: list[tuple[int, int]]
) -> None:
    """Over every stretch of any clock: at most the burst and the rate times the time forward."""
    rate, now = Rate(per_second, burst), NOW
    bucket = full(rate, now)
    seen: list[tuple[int, int]] = []  # (time forward so far, taken so far)
    forward = total = 0
    for step, wanted in steps:
        now, forward = now + step, forward + max(0, step)
        seen.append((forward, total))
        taken, bucket = take(bucket, rate, wanted, now)
        total += taken
        assert 0 <= taken <= wanted
        for began, before in seen:
            most = burst + (forward - began) * per_second / 1000
            assert total - before <= most + 1e-6


@settings(max_examples=50)
@given(st.floats(0.001, 1_000), st.floats(0, 0.999), st.integers(0, 10_000))
def test_after_the_wait_there_is_one(per_second: float, tokens: float, later: int) -> None:
    rate, bucket = Rate(per_second, 5), Bucket(tokens, NOW)
    wait = wait_ms(bucket, rate, NOW + later)
    assert refilled(bucket, rate, NOW + later + wait).tokens >= 1 - 1e-9
