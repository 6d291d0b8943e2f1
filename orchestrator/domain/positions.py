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
    return tuple(
        (position, int(time))
        for time, positions in packed.items()
        for position in unpack(positions)
    )
