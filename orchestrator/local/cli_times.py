"""How instants and durations look in a terminal. Pure."""

from __future__ import annotations

from datetime import datetime


def moment(iso: str | None) -> datetime | None:
    """An instant of the API."""
    return datetime.fromisoformat(iso) if iso else None


def clock(iso: str | None) -> str:
    """`2026-11-30 12:00:00` (UTC)."""
    at = moment(iso)
    return at.strftime("%Y-%m-%d %H:%M:%S") if at else ""


def seconds(value: float) -> str:
    """A duration, with as many digits as a person needs."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.2f} s"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def duration(start: str | None, end: str | None) -> str:
    """Time between two instants; empty if one is missing."""
    first, last = moment(start), moment(end)
    return seconds((last - first).total_seconds()) if first and last else ""
