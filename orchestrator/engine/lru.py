"""A bounded least-recently-used map. Caches here are hints: losing an entry only costs a read.

Bounded in number and in weight: 64 values may be 64 words or 64 times 4 MB, and a process that has
room for the first must not die of the second.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class Lru(Generic[T]):
    """At most `capacity` entries that weigh at most `limit` together; the least recently used goes
    first. The entry that was added last stays, whatever it weighs."""

    __slots__ = ("_entries", "_weight", "capacity", "limit")

    def __init__(self, capacity: int, *, limit: int | None = None) -> None:
        self.capacity = capacity
        self.limit = limit
        self._weight = 0
        self._entries: OrderedDict[object, tuple[T, int]] = OrderedDict()

    def get(self, key: object) -> T | None:
        """The entry, made the most recent, or None."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: object, value: T, weight: int = 0) -> None:
        """Add or overwrite."""
        self.drop(key)
        self._entries[key] = (value, weight)
        self._weight += weight
        while len(self._entries) > self.capacity or (
            self.limit is not None and self._weight > self.limit and len(self._entries) > 1
        ):
            _, (_, gone) = self._entries.popitem(last=False)
            self._weight -= gone

    def drop(self, key: object) -> None:
        """Forget, if present."""
        found = self._entries.pop(key, None)
        if found is not None:
            self._weight -= found[1]

    def __len__(self) -> int:
        return len(self._entries)
