"""Durations as written (`1h30m`, ISO 8601) and as milliseconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.durations import (
    MAX_DURATION_MS,
    PATTERN,
    DurationError,
    format_duration,
    parse_duration,
)
from orchestrator.domain.errors import WeftError

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("30s", 30 * SECOND),
        ("5m", 5 * MINUTE),
        ("2h", 2 * HOUR),
        ("1d", DAY),
        ("1h30m", 90 * MINUTE),
        ("1m500ms", MINUTE + 500),
        ("1d2h3m4s5ms", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5),
        ("1.5s", 1_500),
        ("0.001s", 1),
        ("PT1H30M", 90 * MINUTE),
        ("P1DT2H", DAY + 2 * HOUR),
        ("P2W", 14 * DAY),
        ("PT0.5S", 500),
        ("PT0,5S", 500),
        ("PT36H", 36 * HOUR),
        ("3650d", MAX_DURATION_MS),
    ],
)
def test_reads(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "not a duration"),
        ("30", "no unit"),
        ("1.5", "no unit"),
        ("-5s", "negative"),
        ("-PT5S", "negative"),
        ("PT-5S", "negative"),
        ("0s", "zero"),
        ("PT0S", "zero"),
        ("3651d", "3,650 days"),
        ("99999999999999999999d", "3,650 days"),
        ("P1Y", "years and months"),
        ("P1M", "years and months"),
        ("P1Y2M3DT4H", "years and months"),
        ("P", "ISO 8601"),
        ("PT", "ISO 8601"),
        ("P1DT", "ISO 8601"),
        ("P1H", "ISO 8601"),
        ("30m1h", "not a duration"),
        ("1s1s", "not a duration"),
        ("5 m", "not a duration"),
        (" 5m", "not a duration"),
        ("5m\n", "not a duration"),
        ("5M", "not a duration"),
        ("2w", "not a duration"),
        ("1.5ms", "whole number of milliseconds"),
        ("٣s", "not a duration"),
        ("1e3s", "not a duration"),
        ("1" * 65 + "s", "not a duration"),
    ],
)
def test_refuses_and_says_why(text: str, part: str) -> None:
    with pytest.raises(DurationError, match=part):
        parse_duration(text)


def test_zero_where_it_is_allowed() -> None:
    assert parse_duration("0s", allow_zero=True) == 0
    assert parse_duration("PT0S", allow_zero=True) == 0


@given(st.integers(0, MAX_DURATION_MS))
def test_formatting_is_the_inverse_of_reading(ms: int) -> None:
    assert parse_duration(format_duration(ms), allow_zero=True) == ms


def test_formats_from_large_to_small() -> None:
    assert format_duration(90 * MINUTE) == "1h30m"
    assert format_duration(0) == "0s"
    with pytest.raises(ValueError, match="negative"):
        format_duration(-1)


TEXTS = st.one_of(
    st.text(max_size=20),
    st.from_regex(PATTERN, fullmatch=True),
    st.text(alphabet="0123456789PTWDHMSmsdh.,-", max_size=12),
)


@given(TEXTS)
def test_any_text_gives_a_positive_number_or_our_error(text: str) -> None:
    try:
        ms = parse_duration(text)
    except WeftError:
        return
    assert 0 < ms <= MAX_DURATION_MS
