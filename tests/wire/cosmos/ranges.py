"""Physical partitions: each document has an effective partition key, each range a part of them.

Hierarchical keys hash level by level, so a prefix of the key is one contiguous range of effective
keys, which may still be spread over several physical partitions (documented under "Hierarchical
partition keys"). A split replaces a range by two; requests that name the old one get 410/1002 until
the client has read the new map. Ranges are compared as upper-case hexadecimal text, `min <= key <
max`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from azure.cosmos import PartitionKey

FIRST, LAST = "", "FF"
HALF = "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"
"""Hashes begin with two zero bits, so this is the middle."""


@dataclass(frozen=True, slots=True)
class Range:
    """One physical partition."""

    id: str
    min: str
    max: str
    parents: tuple[str, ...] = ()
    version: int = 0  # of the map, when it appeared

    def to_json(self) -> dict[str, Any]:
        """As `pkranges` lists it."""
        return {
            "id": self.id,
            "_rid": f"range{self.id}",
            "minInclusive": self.min,
            "maxExclusive": self.max,
            "parents": list(self.parents),
            "status": "online",
        }


@dataclass(slots=True)
class RangeMap:
    """The ranges of one container."""

    paths: list[str]
    kind: str
    version: int = 1
    ranges: list[Range] = field(default_factory=list[Range])
    _next: int = 0

    def __post_init__(self) -> None:
        self.ranges = [self._new(FIRST, HALF), self._new(HALF, LAST)]

    def _new(self, low: str, high: str, parents: tuple[str, ...] = ()) -> Range:
        self._next += 1
        return Range(str(self._next - 1), low, high, parents, self.version)

    def effective_key(self, values: list[Any]) -> str:
        """Where a full key lies. The SDK's own function: what is tested is not the hash."""
        path: Any = self.paths if self.kind == "MultiHash" else self.paths[0]
        key = PartitionKey(path=path, kind=self.kind)  # type: ignore[call-overload]
        return str(key._get_effective_partition_key_string(values))

    def find(self, id: str) -> Range | None:
        """The range of this id, None if it was split or never existed."""
        return next((one for one in self.ranges if one.id == id), None)

    def split(self, at: str) -> None:
        """Split the range that holds the effective key `at`, there."""
        old = next(one for one in self.ranges if one.min < at < one.max)
        self.version += 1
        parents = (*old.parents, old.id)
        children = [self._new(old.min, at, parents), self._new(at, old.max, parents)]
        place = self.ranges.index(old)
        self.ranges[place : place + 1] = children

    def newer_than(self, version: int) -> list[Range]:
        """What changed since that version of the map."""
        return [one for one in self.ranges if one.version > version]
