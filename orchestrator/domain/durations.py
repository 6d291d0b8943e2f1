"""Durations as users write them, to whole milliseconds and back.

One reader for the definition, the API and the command line, so that `30s` means the same
everywhere. Two forms are read: the short one (`500ms`, `30s`, `1h30m`) and ISO 8601 (`PT1H30M`,
`P1DT2H`, `P2W`). Years and months are refused: their length depends on the calendar.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from orchestrator.domain.errors import InvalidError

MS_PER_UNIT: Final[dict[str, int]] = {
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}
MAX_DURATION_DAYS: Final = 3_650
MAX_DURATION_MS: Final = MAX_DURATION_DAYS * MS_PER_UNIT["d"]
"""Ten years. Longer spans are typing errors, and far-off times overflow elsewhere."""
MAX_TEXT: Final = 64

EXAMPLES: Final = "write it like 500ms, 30s, 5m, 2h, 1d, 1h30m or PT1H30M"

_NUMBER: Final = r"([0-9]+(?:\.[0-9]+)?)"
_SHORT: Final = re.compile(
    rf"(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m(?!s))?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?"
)
_SHORT_UNITS: Final = ("d", "h", "m", "s", "ms")
_ISO_NUMBER: Final = r"([0-9]+(?:[.,][0-9]+)?)"
_ISO: Final = re.compile(
    rf"P(?:{_ISO_NUMBER}W)?(?:{_ISO_NUMBER}D)?"
    rf"(?:T(?=[0-9])(?:{_ISO_NUMBER}H)?(?:{_ISO_NUMBER}M)?(?:{_ISO_NUMBER}S)?)?"
)
_ISO_UNIT_MS: Final = (604_800_000, 86_400_000, 3_600_000, 60_000, 1_000)

PATTERN: Final = (
    r"^(?=[0-9P])(?!P$)"
    r"([0-9]+(\.[0-9]+)?d)?([0-9]+(\.[0-9]+)?h)?([0-9]+(\.[0-9]+)?m)?([0-9]+(\.[0-9]+)?s)?"
    r"([0-9]+(\.[0-9]+)?ms)?"
    r"(P([0-9]+([.,][0-9]+)?W)?([0-9]+([.,][0-9]+)?D)?"
    r"(T(?=[0-9])([0-9]+([.,][0-9]+)?H)?([0-9]+([.,][0-9]+)?M)?([0-9]+([.,][0-9]+)?S)?)?)?$"
)
"""For editors (JSON Schema): close to what `parse_duration` reads, never stricter."""


class DurationError(InvalidError):
    """Not a duration that Weft reads; the message says why and how to write it."""


def parse_duration(text: str, *, allow_zero: bool = False) -> int:
    """Milliseconds of `text`, more than 0 (or at least 0 with `allow_zero`).

    In the short form units go from large to small, each at most once. A fraction is fine if the
    whole is a whole number of milliseconds (`1.5s`). Raises `DurationError` for anything else,
    and for more than `MAX_DURATION_DAYS`.
    """
    shown = repr(text[:MAX_TEXT])
    if not text or len(text) > MAX_TEXT:
        raise DurationError(f"{shown} is not a duration: {EXAMPLES}")
    if text.lstrip().startswith(("-", "P-", "PT-")):
        raise DurationError(f"{shown} is negative: a duration cannot be")
    total = _iso(text, shown) if text.startswith("P") else _short(text, shown)
    if total.denominator != 1:
        raise DurationError(f"{shown} is not a whole number of milliseconds")
    if total > MAX_DURATION_MS:
        raise DurationError(f"{shown} is longer than {MAX_DURATION_DAYS:,} days, the maximum")
    if total == 0 and not allow_zero:
        raise DurationError(f"{shown} is zero: it must be at least 1ms here")
    return int(total)


def _short(text: str, shown: str) -> Fraction:
    match = _SHORT.fullmatch(text)
    if match is None:
        if re.fullmatch(r"[0-9.]+", text):
            raise DurationError(f"{shown} has no unit: {EXAMPLES}")
        raise DurationError(f"{shown} is not a duration: {EXAMPLES}")
    return _sum(match, [MS_PER_UNIT[unit] for unit in _SHORT_UNITS])


def _iso(text: str, shown: str) -> Fraction:
    date_part = text.split("T", 1)[0]
    if re.search(r"[0-9][YM]", date_part):
        raise DurationError(f"{shown}: years and months have no fixed length, write days (P30D)")
    match = _ISO.fullmatch(text)
    if match is None or text == "P":
        raise DurationError(f"{shown} is not an ISO 8601 duration: {EXAMPLES}")
    return _sum(match, _ISO_UNIT_MS)


def _sum(match: re.Match[str], unit_ms: tuple[int, ...] | list[int]) -> Fraction:
    total = Fraction(0)
    for number, size in zip(match.groups(), unit_ms, strict=True):
        if number is not None:
            total += Fraction(number.replace(",", ".")) * size
    return total


def format_duration(ms: int) -> str:
    """`ms` (at least 0) in the short form, the largest units first: 5_400_000 -> `1h30m`. Inverse
    of `parse_duration`. Raises `ValueError` if negative."""
    if ms < 0:
        raise ValueError("a duration cannot be negative")
    parts: list[str] = []
    rest = ms
    for unit, size in MS_PER_UNIT.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
