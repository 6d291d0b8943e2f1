"""A bounded least-recently-used map. Caches here are hints: losing an entry only costs a read."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class Lru(Generic[T]):
    """At most `capacity` entries; the least recently used goes first."""

    __slots__ = ("_entries", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._entries: OrderedDict[object, T] = OrderedDict()

    def get(self, key: object) -> T | None:
        """The entry, made the most recent, or None."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: object, value: T) -> None:
        """Add or overwrite."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self.capacity:
            self._entries.popitem(last=False)

    def drop(self, key: object) -> None:
        """Forget, if present."""
        self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)
