"""An estimate of request units (RU), so that costs can be compared without an account.

By size: the table that Microsoft publishes for session consistency (learn.microsoft.com,
"Understand request units consumption in Azure Cosmos DB", read in November 2026), straight lines in
between. The rest are assumptions of ours, chosen to sit near what small containers show: an indexed
property of the document costs 0.2, a replace costs twice a create (the old version is read and its
index terms removed), a delete as much as a create of 1 KB, a refused write a point read, a query
2.3 per range it is sent to plus 0.03 per KB of answer and 0.02 per row, a page of the change feed 1
plus 0.1 per KB. A batch costs what its operations cost.
"""

from __future__ import annotations

from itertools import pairwise

_KB = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_READ = (1.0, 1.0, 1.04, 1.14, 1.33, 1.67, 2.19, 4.76, 9.95, 20.28, 40.95, 145.9, 291.8)
_WRITE = (4.95, 4.95, 6.29, 6.67, 7.04, 9.52, 11.23, 22.67, 48.19, 98.29, 184.57, 625.0, 1250.0)

PER_TERM = 0.2


def point_read(size: int) -> float:
    """Reading one document of `size` bytes; 1 for a missing one."""
    return _between(_READ, size)


def create(size: int, terms: int) -> float:
    """Writing a new document with `terms` indexed properties."""
    return _between(_WRITE, size) + PER_TERM * terms


def replace(size: int, terms: int) -> float:
    """Overwriting a document."""
    return 2 * create(size, terms)


def delete(terms: int) -> float:
    """Removing a document."""
    return create(0, terms)


def query(size: int, rows: int) -> float:
    """One page of one range."""
    return 2.3 + 0.03 * size / 1024 + 0.02 * rows


def count(rows: int) -> float:
    """Counting `rows` index entries: an assumption, a query and 0.001 per row."""
    return 2.3 + 0.001 * rows


def change_feed(size: int) -> float:
    """One page of one range; an empty one costs 1."""
    return 1.0 + 0.1 * size / 1024


def _between(table: tuple[float, ...], size: int) -> float:
    kilobytes = size / 1024
    for (low, below), (high, above) in pairwise(zip(_KB, table, strict=True)):
        if kilobytes <= high:
            return round(below + (above - below) * (kilobytes - low) / (high - low), 2)
    return table[-1]
