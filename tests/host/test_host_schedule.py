"""NCRONTAB: next due times, and forms that are refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.local.host.schedule import parse


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("*/15 * * * * *", "2027-01-01T00:00:00.000", "2027-01-01T00:00:15"),
        ("*/15 * * * * *", "2027-01-01T00:00:14.999", "2027-01-01T00:00:15"),
        ("*/15 * * * * *", "2027-12-31T23:59:45.500", "2028-01-01T00:00:00"),
        ("0 */5 * * * *", "2027-01-01T00:03:10", "2027-01-01T00:05:00"),
        ("30 10 9 * * *", "2027-01-01T09:10:30", "2027-01-02T09:10:30"),
        ("0 0 9-17/4 * * *", "2027-01-01T13:00:00", "2027-01-01T17:00:00"),
        ("0 0 12 1,15 * *", "2027-01-15T12:00:00", "2027-02-01T12:00:00"),
        ("0 0 0 29 2 *", "2027-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 0 * * 0", "2027-01-01T00:00:00", "2027-01-03T00:00:00"),
        # Day and weekday must both match: the next Friday the 13th.
        ("0 0 0 13 * 5", "2027-01-01T00:00:00", "2027-08-13T00:00:00"),
        ("59 59 23 31 12 *", "2027-12-31T23:59:59", "2028-12-31T23:59:59"),
    ],
)
def test_next_due_time(schedule: str, after: str, expected: str) -> None:
    assert parse(schedule).next_after(ms(after)) == ms(expected)


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ("", "six fields"),
        ("*/15 * * * *", "six fields"),
        ("00:00:15", "six fields"),
        ("* * * * * * *", "six fields"),
        ("60 * * * * *", "0 to 59"),
        ("-1 * * * * *", "not a number"),
        ("*/0 * * * * *", "1 to 59"),
        ("5/2 * * * * *", "a range before it"),
        ("9-5 * * * * *", "backwards"),
        ("0 0 0 * JAN *", "month"),
        ("0 0 0 * * MON", "weekday"),
        ("0 0 0 * * 7", "0 to 6"),
        ("0 0 0 0 * *", "1 to 31"),
        ("0 0 0 30 2 *", "never due"),
        ("a * * * * *", "second"),
        ("1,,2 * * * * *", "second"),
        ("\u0663 * * * * *", "second"),
    ],
)
def test_other_forms_are_refused(schedule: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse(schedule)


@given(
    now=st.integers(0, 4_000_000_000_000),
    step=st.integers(1, 59),
    minute=st.one_of(st.just("*"), st.integers(0, 59).map(str)),
)
def test_next_is_later_on_time_and_nothing_was_skipped(now: int, step: int, minute: str) -> None:
    schedule = parse(f"*/{step} {minute} * * * *")
    due = schedule.next_after(now)

    def matches(at: int) -> bool:
        moment = datetime.fromtimestamp(at / 1000, UTC)
        return moment.second % step == 0 and minute in ("*", str(moment.minute))

    assert due > now
    assert due % 1000 == 0
    assert matches(due)
    second = now // 1000 * 1000 + 1000
    assert not any(matches(at) for at in range(second, min(due, second + 70_000), 1000))
