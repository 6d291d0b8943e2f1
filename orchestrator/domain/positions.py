"""Lists of positions as ranges of text, for wide events: `"0-1999,2003"`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_PACK_OVER: Final = 8
"""Positions from which a list is written as ranges: shorter ones cost more to pack than to keep."""


def pack(positions: Sequence[int]) -> list[int] | str:
    """A list as it is if short, else text of ranges in the given order: `"0-1999,2003"`."""
    if len(positions) <= _PACK_OVER:
        return list(positions)
    parts: list[str] = []
    first = last = positions[0]
    for position in positions[1:]:
        if position == last + 1:
            last = position
            continue
        parts.append(str(first) if first == last else f"{first}-{last}")
        first = last = position
    parts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(parts)


def unpack(packed: list[int] | str) -> tuple[int, ...]:
    """Inverse of `pack`."""
    if not isinstance(packed, str):
        return tuple(packed)
    positions: list[int] = []
    for part in packed.split(","):
        first, _, last = part.partition("-")
        if last:
            positions.extend(range(int(first), int(last) + 1))
        else:
            positions.append(int(first))
    return tuple(positions)


def pack_times(times: Iterable[tuple[int, int]]) -> dict[str, list[int] | str]:
    """(position, time) as time -> positions: many tasks that are dispatched together are due
    together."""
    groups: dict[int, list[int]] = {}
    for position, time in times:
        groups.setdefault(time, []).append(position)
    return {str(time): pack(sorted(groups[time])) for time in sorted(groups)}


def unpack_times(packed: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """Inverse of `pack_times`, by time, then position."""
    return tuple(times_of(packed).items())


def times_of(packed: Mapping[str, Any]) -> dict[int, int]:
    """Position -> time, in the order of `unpack_times`. Every claim reads it, so a range must cost
    next to nothing for each of its positions: 10,000 tasks would each pay for 10,000."""
    times: dict[int, int] = {}
    for time, positions in packed.items():
        due = int(time)
        if not isinstance(positions, str):
            times.update(dict.fromkeys(positions, due))
            continue
        for part in positions.split(","):
            first, _, last = part.partition("-")
            times.update(dict.fromkeys(range(int(first), int(last or first) + 1), due))
    return times
