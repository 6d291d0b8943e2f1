"""Cron expressions in a time zone: when they fire, and how often within a span.

The calendar is `cronsim`'s, which follows Debian's cron at clock changes. Jobs at fixed times (no
`*` at the start of the minute or hour field) run once: a time that does not exist runs at the end
of the gap (02:30 -> 03:00), one that exists twice runs the first time. Wildcards follow real time.
Times are epoch milliseconds.

Added here: aliases, errors that name the field, ticks that strictly increase (two times in one gap
are one tick), and counting by days, so that a year of missed minutes is not walked one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from orchestrator.domain.definition_types import fault
from orchestrator.domain.nearest import Nearest

ALIASES: Final[dict[str, str]] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS: Final[dict[str, str]] = {
    "minute": "0 to 59, such as 0, */15 or 0,30",
    "hour": "0 to 23, such as 7, 9-17 or */2",
    "day-of-month": "1 to 31, or L for the last day",
    "month": "1 to 12 or JAN to DEC",
    "day-of-week": "0 to 7 (0 and 7 are Sunday) or MON to SUN, 1-5, MON#2, 5L",
}
MAX_STEPS: Final = (60, 24, 31, 12, 7)
"""Of each field. A longer one is no error to cronsim, and fires once: `*/90` would be hourly."""
MAX_CHARS: Final = 200

_NAMES: Final = tuple(FIELDS)
_DAY: Final = timedelta(days=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ERRORS: Final = (CronSimError, ValueError, TypeError, AssertionError)  # asserts are its own checks


def to_ms(at: datetime) -> int:
    """Epoch milliseconds of an aware time."""
    span = at - _EPOCH
    return (span.days * 86_400 + span.seconds) * 1000 + span.microseconds // 1000


def from_ms(at: int, zone: ZoneInfo) -> datetime:
    """The local time of epoch milliseconds."""
    return (_EPOCH + timedelta(milliseconds=at)).astimezone(zone)


@cache
def _zones() -> frozenset[str]:
    # These two are in the folder, and no zones: what the machine is set to, and "not set".
    return frozenset(available_timezones() - {"localtime", "Factory"})


def zone_of(name: str) -> ZoneInfo:
    """The IANA zone. Raises a pydantic error (BAD_TIME_ZONE) with the nearest name."""
    if name not in _zones():
        hint = Nearest().hint(name, _zones()) or "an IANA name such as Europe/Berlin, or UTC"
        raise fault("BAD_TIME_ZONE", f'there is no time zone "{name[:80]}"', hint)
    return ZoneInfo(name)


class Cron:
    """A cron expression in a zone. Immutable."""

    def __init__(self, expression: str, zone: ZoneInfo) -> None:
        """Use `parse`."""
        self.expression = expression
        self.zone = zone
        parsed = CronSim(expression, datetime(2000, 1, 1))  # noqa: DTZ001 (wall time, of no zone)
        self._days = parsed
        self._per_day = len(parsed.hours) * len(parsed.minutes)

    def after(self, at: int) -> Iterator[int]:
        """Ticks later than `at`, increasing; ends where none comes within 50 years."""
        start = from_ms(at, self.zone)
        utc = self.zone.key == "UTC"
        last = at
        for found in CronSim(self.expression, start.astimezone(UTC) if utc else start):
            tick = to_ms(found)
            if tick > last:
                yield tick
                last = tick

    def count(self, after: int, until: int) -> int:
        """Number of ticks later than `after` and not later than `until`."""
        total = 0
        for low, high, whole in self._spans(after, until):
            total += whole if whole is not None else self._walk(low, high)
        return total

    def latest(self, after: int, until: int, most: int) -> list[int]:
        """The last `most` ticks within (`after`, `until`], increasing."""
        found: list[int] = []
        for low, high, whole in reversed(self._spans(after, until)):
            if whole == 0:
                continue
            found = [*self._within(low, high), *found]
            if len(found) >= most:
                break
        return found[-most:] if most > 0 else []

    def _within(self, after: int, until: int) -> list[int]:
        found: list[int] = []
        for tick in self.after(after):
            if tick > until:
                break
            found.append(tick)
        return found

    def _walk(self, after: int, until: int) -> int:
        return len(self._within(after, until))

    def _spans(self, after: int, until: int) -> list[tuple[int, int, int | None]]:
        """(`after`, `until`] cut at local midnights: (from, to, ticks, or None: to be walked).
        Days whose clock does not change have a product of ticks; a fired midnight belongs to its
        own day, hence the borders a millisecond before."""
        if until <= after:
            return []
        first = from_ms(after, self.zone).date() + _DAY
        last = from_ms(until, self.zone).date()
        if first >= last:
            return [(after, until, None)]
        begin, offset = self._midnight(first)
        spans: list[tuple[int, int, int | None]] = [(after, begin - 1, None)]
        day = first
        while day < last:
            end, next_offset = self._midnight(day + _DAY)
            count = self._on(day) if offset == next_offset and end - begin == 86_400_000 else None
            spans.append((begin - 1, end - 1, count))
            day, begin, offset = day + _DAY, end, next_offset
        spans.append((begin - 1, until, None))
        return spans

    def _midnight(self, day: date) -> tuple[int, timedelta | None]:
        at = datetime.combine(day, time(), tzinfo=self.zone)
        return to_ms(at), at.utcoffset()

    def _on(self, day: date) -> int:
        matches = day.month in self._days.months and self._days.match_day(day)
        return self._per_day if matches else 0


@lru_cache(maxsize=10_000)
def parse(text: str, zone: ZoneInfo) -> Cron:
    """A five-field expression or an alias. Raises a pydantic error: BAD_CRON naming every wrong
    field, NEVER_FIRES for one like 30 February."""
    expression = text.strip()
    if expression.startswith("@"):
        alias = ALIASES.get(expression.lower())
        if alias is None:
            hint = Nearest().hint(expression, ALIASES) or f"one of {', '.join(ALIASES)}"
            raise fault("BAD_CRON", f'there is no alias "{expression[:40]}"', hint)
        return Cron(alias, zone)
    if len(expression) > MAX_CHARS:
        raise fault("BAD_CRON", f"a cron expression has at most {MAX_CHARS} characters")
    parts = expression.split()
    if len(parts) != 5:
        seconds = "; seconds are not supported, `interval` goes down to 1s" * (len(parts) == 6)
        raise fault(
            "BAD_CRON",
            f"a cron expression has 5 fields ({', '.join(_NAMES)}), this one has {len(parts)}"
            + seconds,
            "such as 0 7 * * MON-FRI, or @daily",
        )
    wrong = [name for at, name in enumerate(_NAMES) if not _readable(parts[at], at)]
    if wrong:
        told = [f'"{parts[_NAMES.index(name)][:40]}" is not right for {name}' for name in wrong]
        hint = "; ".join(f"{name}: {FIELDS[name]}" for name in wrong)
        raise fault("BAD_CRON", ", ".join(told), hint)
    try:
        cron = Cron(" ".join(parts), zone)
        if next(cron.after(0), None) is not None:
            return cron
    except _ERRORS:  # cronsim refuses some days that never come, of others it finds no tick
        pass
    raise fault("NEVER_FIRES", f'"{expression}" never fires: there is no such day in 50 years')


def _readable(part: str, at: int) -> bool:
    """Whether one field by itself is right."""
    steps = [step for one in part.split(",") for step in one.split("/")[1:]]
    if any(step.isdecimal() and int(step) > MAX_STEPS[at] for step in steps):
        return False
    parts = ["*"] * 5
    parts[at] = part
    try:
        CronSim(" ".join(parts), datetime(2000, 1, 1))  # noqa: DTZ001
    except CronSimError as error:
        # A day by itself always exists in some month.
        return "Wrong number" in str(error)
    except _ERRORS[1:]:
        return False
    return True
