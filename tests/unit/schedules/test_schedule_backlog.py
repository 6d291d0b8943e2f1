"""What a backlog leads to under each misfire policy; jitter."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.domain.schedule import (
    Every,
    backlog,
    due_at,
    next_ticks,
    tick_id,
)
from orchestrator.domain.schedule_spec import parse

NOW = 1_800_000_000_000  # 2027-01-15T08:00:00Z, a whole hour
MINUTE = 60_000
TENANT = "acme"


def plan(**more: Any) -> Any:
    return parse({"name": "s", "workflow": "w", **more}, created_at=NOW)


@pytest.mark.parametrize(
    ("misfire", "minutes", "missed"),
    [("skip", [], 7), ("fireOnce", [7], 6), ({"catchUp": 3}, [5, 6, 7], 4)],
)
def test_case_a_timer_that_was_silent(misfire: Any, minutes: list[int], missed: int) -> None:
    """Silent from 10:00:30 to 10:07:10, minutely: the policy decides about the whole backlog."""
    schedule = plan(cron="* * * * *", misfire=misfire)
    found = backlog(schedule, TENANT, NOW, NOW + 7 * MINUTE + 10_000, 100)
    assert found.ticks == [NOW + n * MINUTE for n in minutes]
    assert (found.missed, found.until, found.late) == (missed, NOW + 7 * MINUTE, True)
    after = next_ticks(schedule, found.until, 1)
    assert after == [NOW + 8 * MINUTE]


@pytest.mark.parametrize("misfire", ["skip", "fireOnce", {"catchUp": 1}])
def test_a_little_late_is_not_missed(misfire: Any) -> None:
    schedule = plan(interval="1s", misfire=misfire)
    found = backlog(schedule, TENANT, NOW, NOW + 5_500, 3)
    assert found.ticks == [NOW + n * 1_000 for n in (1, 2, 3)]
    assert (found.late, found.missed, found.until) == (False, 0, NOW + 3_000)
    hourly = plan(cron="@hourly", misfire=misfire)
    for late, expected in ((2 * MINUTE, False), (2 * MINUTE + 1, True)):
        found = backlog(hourly, TENANT, NOW, NOW + 60 * MINUTE + late, 100)
        assert found.late is expected
    assert backlog(hourly, TENANT, NOW, NOW + 60 * MINUTE - 1, 100).ticks == []


def test_case_a_year_long_outage_runs_the_latest_thousand_and_counts_the_others() -> None:
    schedule = plan(cron="* * * * *", timeZone="Europe/Berlin", misfire={"catchUp": 1000})
    found = backlog(schedule, TENANT, NOW, NOW + 365 * 1440 * MINUTE, 100)
    assert len(found.ticks) == 1_000
    assert found.ticks[-1] == NOW + 365 * 1440 * MINUTE
    assert found.missed == 365 * 1440 - 1_000


def test_far_backlogs_of_intervals_cost_nothing() -> None:
    every = Every(1_000, 5)
    assert every.count(0, 10**15) == 10**12
    assert every.latest(0, 10**15, 2) == [10**15 - 1_995, 10**15 - 995]
    assert every.latest(0, 4, 9) == []


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), st.integers(0, 500), st.integers(0, 59_000))
def test_jitter_is_bounded_the_same_for_the_same_tick_and_keeps_the_order(
    every: int, number: int, jitter: int
) -> None:
    given_jitter = {"jitter": f"{jitter}ms"} if 0 < jitter < every * MINUTE else {}
    schedule = plan(interval=f"{every}m", **given_jitter)
    ticks = next_ticks(schedule, NOW + number * MINUTE, 5)
    dues = [due_at(schedule, TENANT, tick) for tick in ticks]
    assert all(0 <= due - tick <= schedule.jitter for tick, due in zip(ticks, dues, strict=True))
    assert dues == sorted(dues)
    assert dues == [due_at(schedule, TENANT, tick) for tick in ticks]


def test_jitter_spreads() -> None:
    schedule = plan(cron="@hourly", jitter="10m")
    found = {due_at(schedule, f"t{n}", NOW) for n in range(50)}
    assert len(found) > 40
    assert max(found) - min(found) > 5 * MINUTE


def test_a_tick_is_not_due_before_its_jitter() -> None:
    schedule = plan(cron="@hourly", jitter="30m", misfire="fireOnce")
    tick = NOW + 60 * MINUTE
    due = due_at(schedule, TENANT, tick)
    assert backlog(schedule, TENANT, NOW, due - 1, 100).ticks == []
    assert backlog(schedule, TENANT, NOW, due, 100).ticks == [tick]
    later = NOW + 300 * MINUTE  # the last tick is not due yet: it is not part of the backlog
    found = backlog(schedule, TENANT, NOW, later, 100)
    expected = later if due_at(schedule, TENANT, later) <= later else later - 60 * MINUTE
    assert found.until == expected


def test_ids_of_ticks_differ_by_each_part() -> None:
    ids = {tick_id(t, s, n) for t in ("a", "ab") for s in ("b", "c") for n in (1, 11)}
    assert len(ids) == 8
    assert all(len(id) == 32 and id.startswith("s") for id in ids)
