"""NCRONTAB, the six-field schedules of timer triggers: `second minute hour day month weekday`, UTC.

Only the forms `*`, `*/n`, `a`, `a-b`, `a-b/n` and lists of them. Names of months and weekdays, five
fields and time spans are valid on the real host, but refused here: a schedule that this evaluator
read differently would be worse than one that it does not take.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

_FIELDS: Final = (
    ("second", 0, 59),
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day", 1, 31),
    ("month", 1, 12),
    ("weekday", 0, 6),  # Sunday is 0
)
# 29 February on a given weekday comes back within 40 years, across 2100 too.
_HORIZON: Final = timedelta(days=366 * 41)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A parsed schedule: the allowed values of each field. Day and weekday must both match."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    def next_after(self, now_ms: int) -> int:
        """The first due time strictly later than `now_ms` (epoch ms). Raises `ValueError` if there
        is none (30 February)."""
        moment = datetime.fromtimestamp(now_ms // 1000, UTC) + timedelta(seconds=1)
        end = moment + _HORIZON
        while moment < end:
            if moment.month not in self.months:
                first = moment.replace(day=1, hour=0, minute=0, second=0)
                moment = (first + timedelta(days=32)).replace(day=1)
            elif moment.day not in self.days or moment.isoweekday() % 7 not in self.weekdays:
                moment = moment.replace(hour=0, minute=0, second=0) + timedelta(days=1)
            elif moment.hour not in self.hours:
                moment = moment.replace(minute=0, second=0) + timedelta(hours=1)
            elif moment.minute not in self.minutes:
                moment = moment.replace(second=0) + timedelta(minutes=1)
            elif moment.second not in self.seconds:
                moment += timedelta(seconds=1)
            else:
                return int(moment.timestamp()) * 1000
        raise ValueError("the schedule is never due")


def parse(text: str) -> Schedule:
    """Understand a schedule. Raises `ValueError` saying what is not understood."""
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise ValueError(
            f"schedule {text!r}: expected six fields (second minute hour day month weekday)"
        )
    schedule = Schedule(
        *(
            _field(part, name, low, high)
            for part, (name, low, high) in zip(parts, _FIELDS, strict=True)
        )
    )
    schedule.next_after(0)
    return schedule


def _field(text: str, name: str, low: int, high: int) -> frozenset[int]:
    values: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        if span == "*":
            first, last = low, high
        else:
            first_text, dash, last_text = span.partition("-")
            first = _number(first_text, name, low, high)
            last = _number(last_text, name, low, high) if dash else first
            if slash and not dash:
                raise ValueError(f"{name} {text!r}: a step needs * or a range before it")
            if last < first:
                raise ValueError(f"{name} {text!r}: the range runs backwards")
        step = _number(step_text, name, 1, high) if slash else 1
        values.update(range(first, last + 1, step))
    return frozenset(values)


def _number(text: str, name: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit()) or not low <= int(text) <= high:
        raise ValueError(f"{name}: {text!r} is not a number from {low} to {high}")
    return int(text)
