"""Cron across clock changes, leap days and year ends, and its bad input."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from orchestrator.domain.schedule_cron import ALIASES, Cron, from_ms, parse, to_ms, zone_of

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def at(text: str, zone: str) -> int:
    return to_ms(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))


def ticks(cron: str, zone: str, after: str, count: int) -> list[str]:
    where = ZoneInfo(zone)
    found = islice(parse(cron, where).after(at(after, zone)), count)
    return [from_ms(tick, where).isoformat(timespec="minutes") for tick in found]


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        # A time that does not exist: once, at the end of the gap.
        (
            "30 2 * * *",
            BERLIN,
            "2027-03-27T12:00",
            ["2027-03-28T03:00+02:00", "2027-03-29T02:30+02:00"],
        ),
        # Two times in one gap are one tick, and so is one that is there anyway.
        (
            "0,30 2,3 * * *",
            BERLIN,
            "2027-03-28T00:00",
            ["2027-03-28T03:00+02:00", "2027-03-28T03:30+02:00", "2027-03-29T02:00+02:00"],
        ),
        # A time that exists twice: the first one.
        (
            "30 2 * * *",
            BERLIN,
            "2027-10-30T12:00",
            ["2027-10-31T02:30+02:00", "2027-11-01T02:30+01:00"],
        ),
        (
            "0 7,9 * * *",
            BERLIN,
            "2027-03-28T12:00",
            ["2027-03-29T07:00+02:00", "2027-03-29T09:00+02:00"],
        ),
        (
            "0 7,9 * * *",
            BERLIN,
            "2027-10-31T12:00",
            ["2027-11-01T07:00+01:00", "2027-11-01T09:00+01:00"],
        ),
        (
            "30 2 * * *",
            NEW_YORK,
            "2027-03-13T12:00",
            ["2027-03-14T03:00-04:00", "2027-03-15T02:30-04:00"],
        ),
        (
            "30 1 * * *",
            NEW_YORK,
            "2027-11-06T12:00",
            ["2027-11-07T01:30-04:00", "2027-11-08T01:30-05:00"],
        ),
        # Half an hour is left out, half an hour comes twice.
        (
            "15 2 * * *",
            LORD_HOWE,
            "2027-10-02T12:00",
            ["2027-10-03T02:30+11:00", "2027-10-04T02:15+11:00"],
        ),
        (
            "45 1 * * *",
            LORD_HOWE,
            "2027-04-03T12:00",
            ["2027-04-04T01:45+11:00", "2027-04-05T01:45+10:30"],
        ),
        # A wildcard follows real time through the repeated half hour.
        (
            "*/30 * * * *",
            LORD_HOWE,
            "2027-04-04T01:00",
            ["2027-04-04T01:30+11:00", "2027-04-04T01:30+10:30", "2027-04-04T02:00+10:30"],
        ),
        # Midnight does not exist.
        (
            "@daily",
            "America/Sao_Paulo",
            "2018-11-03T12:00",
            ["2018-11-04T01:00-02:00", "2018-11-05T00:00-02:00"],
        ),
        ("0 12 29 2 *", "UTC", "2027-01-01T00:00", ["2028-02-29T12:00+00:00"]),
        (
            "0 0 31 * *",
            "UTC",
            "2027-01-31T00:00",
            ["2027-03-31T00:00+00:00", "2027-05-31T00:00+00:00"],
        ),
        ("0 0 L 2 *", "UTC", "2028-01-01T00:00", ["2028-02-29T00:00+00:00"]),
        (
            "59 23 31 12 *",
            BERLIN,
            "2027-12-31T23:58",
            ["2027-12-31T23:59+01:00", "2028-12-31T23:59+01:00"],
        ),
        ("@yearly", "UTC", "2027-12-31T23:59", ["2028-01-01T00:00+00:00"]),
        ("@WEEKLY", "UTC", "2027-01-01T00:00", ["2027-01-03T00:00+00:00"]),
        # Day of month or day of week, as every cron has it.
        (
            "0 0 13 * FRI",
            "UTC",
            "2027-01-10T00:00",
            ["2027-01-13T00:00+00:00", "2027-01-15T00:00+00:00"],
        ),
    ],
)
def test_clock_changes_leap_days_and_year_ends(
    cron: str, zone: str, after: str, expected: list[str]
) -> None:
    assert ticks(cron, zone, after, len(expected)) == expected


@pytest.mark.parametrize(("day", "number"), [("2027-10-31", 100), ("2027-03-28", 92)])
def test_the_long_and_the_short_day_have_their_quarters(day: str, number: int) -> None:
    cron = parse("*/15 * * * *", ZoneInfo(BERLIN))
    begin = at(f"{day}T00:00", BERLIN)
    following = datetime.fromisoformat(day) + timedelta(days=1)
    end = to_ms(following.replace(tzinfo=ZoneInfo(BERLIN)))
    assert cron.count(begin - 1, end - 1) == number
    found = [tick for tick in islice(cron.after(begin - 1), 200) if tick < end]
    assert len(found) == number
    assert {b - a for a, b in pairwise(found)} == {900_000}


CRONS = (
    "* * * * *",
    "*/15 * * * *",
    "30 2 * * *",
    "0,30 1,2,3 * * *",
    "5 */3 * * 1-5",
    "0 0 29 2 *",
    "59 23 L * *",
    "15 * 1 * MON",
    "0 12 * * 7",
)
ZONES = ("UTC", BERLIN, NEW_YORK, LORD_HOWE, "America/Sao_Paulo", "Africa/Casablanca", "Asia/Gaza")
times = st.integers(at("2015-01-01T00:00", "UTC"), at("2040-01-01T00:00", "UTC"))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(CRONS), st.sampled_from(ZONES), times)
def test_ticks_increase_and_go_on_alike_from_each_of_them(cron: str, zone: str, start: int) -> None:
    plan = parse(cron, ZoneInfo(zone))
    found = list(islice(plan.after(start), 12))
    assert all(a < b for a, b in pairwise([start, *found]))
    for position, tick in enumerate(found):
        assert next(plan.after(tick - 1)) == tick
        assert list(islice(plan.after(tick), 3)) == found[position + 1 : position + 4][:3] or (
            position > 8
        )


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(CRONS),
    st.sampled_from(ZONES),
    times,
    st.integers(0, 6 * 86_400_000),
    st.integers(0, 50),
)
def test_counting_by_days_is_walking(
    cron: str, zone: str, start: int, span: int, most: int
) -> None:
    plan = parse(cron, ZoneInfo(zone))
    walked: list[int] = []
    for tick in plan.after(start):
        if tick > start + span:
            break
        walked.append(tick)
    assert plan.count(start, start + span) == len(walked)
    assert plan.latest(start, start + span, most) == walked[len(walked) - most :] or (
        most > len(walked) and plan.latest(start, start + span, most) == walked
    )


def test_a_year_of_minutes_is_counted_within_a_second() -> None:
    plan = parse("* * * * *", ZoneInfo(BERLIN))
    begin, end = at("2027-01-01T00:00", BERLIN), at("2028-01-01T00:00", BERLIN)
    before = time.process_time()
    assert plan.count(begin, end) == 365 * 1440
    assert len(plan.latest(begin, end, 1_000)) == 1_000
    assert time.process_time() - before < 1


@pytest.mark.parametrize(
    ("cron", "code", "told"),
    [
        ("61 * * * *", "BAD_CRON", '"61" is not right for minute'),
        ("0 24 * * MUN", "BAD_CRON", '"24" is not right for hour, "MUN" is not right for day-of-'),
        ("0 0 ² * *", "BAD_CRON", "day-of-month"),
        ("0 0 * 13 *", "BAD_CRON", "month"),
        ("*/0 * * * *", "BAD_CRON", "minute"),
        ("0,*/90 * * * *", "BAD_CRON", '"0,*/90" is not right for minute'),
        ("0 1-9/25 * * *", "BAD_CRON", "hour"),
        ("0 0 0 * * *", "BAD_CRON", "has 6; seconds are not supported"),
        ("0 0 *", "BAD_CRON", "has 3"),
        ("", "BAD_CRON", "has 0"),
        ("@dayly", "BAD_CRON", "no alias"),
        ("@reboot", "BAD_CRON", "no alias"),
        (f"{','.join(['1'] * 200)} * * * *", "BAD_CRON", "at most 200"),
        ("0 0 30 2 *", "NEVER_FIRES", "30 2"),
        ("0 0 31 2,4,6,9,11 *", "NEVER_FIRES", "never fires"),
        ("* * */20 * 1L", "NEVER_FIRES", "never fires"),
    ],
)
def test_a_cron_that_is_wrong_or_never_fires_is_refused_by_field(
    cron: str, code: str, told: str
) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        parse(cron, ZoneInfo("UTC"))
    context: Any = caught.value.context
    assert context["code"] == code
    assert told in context["message"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Europe", "Europe/"),
        ("../etc/passwd", "IANA"),
        ("/etc/localtime", ""),
        ("localtime", "IANA"),  # another one on each machine
        ("Factory", ""),  # "not set"
        ("\0", "IANA"),
        ("", "IANA"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_nearest_name(name: str, hint: str) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        zone_of(name)
    context: Any = caught.value.context
    assert context["code"] == "BAD_TIME_ZONE"
    assert hint in context["hint"]


def test_every_alias_can_be_read() -> None:
    for alias in ALIASES:
        assert isinstance(parse(alias, ZoneInfo("UTC")), Cron)
