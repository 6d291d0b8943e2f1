"""Which signal each map item took: kept in the state, so that a doubled one is recognised.

A map may have 10,000 items, and the state is written with every commit. So of a signal that an item
took only a short mark stays: 72 bits of a hash of its key, which no two signals of an execution
share by chance. The whole key is in the history and in the item's document.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Final

MARK_CHARS: Final = 12


def mark_of(key: str) -> str:
    """The mark of a signal by its key (`signalling.key_of`)."""
    return base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest()[:9]).decode()


def pack_taken(taken: Mapping[tuple[int, int], str]) -> dict[str, str]:
    """(map task, item) -> mark, for a document: task -> `item:mark`s, with commas between."""
    by_task: dict[str, list[str]] = {}
    for (task, item), mark in taken.items():
        by_task.setdefault(str(task), []).append(f"{item}:{mark}")
    return {task: ",".join(entries) for task, entries in by_task.items()}


def unpack_taken(doc: Mapping[str, str]) -> dict[tuple[int, int], str]:
    """Inverse of `pack_taken`. Raises ValueError for what it did not write."""
    taken: dict[tuple[int, int], str] = {}
    for task, entries in doc.items():
        for entry in entries.split(","):
            item, mark = entry.split(":")
            taken[int(task), int(item)] = mark
    return taken
