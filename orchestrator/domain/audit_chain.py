"""The chain of audit records: how one is linked to the one before, and what a broken chain shows.

A record has `n` (1, 2, 3, …, without gaps within its tenant), `prev` (the hash of record n - 1, ""
for the first) and `hash` (SHA-256 of its own canonical JSON without `hash`). So a change anywhere
shows at that record or at the next one, and whoever knows the latest hash can prove all of it.

Records that are kept for a time only also have `expiresAt`, and the next one repeats it as
`prevExpires`: what is missing may be missing only if its own time is over. No record expires before
the one in front of it, so that what has expired is always the beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from orchestrator.domain import jsonvalues
from orchestrator.domain.topology import SCHEMA_VERSION

HEAD_ID: Final = "head"
HEAD_TYPE: Final = "auditHead"
RECORD_TYPE: Final = "audit"
EXPIRY_SLACK_MS: Final = 3_600_000
"""Clocks differ: what expires within the hour may be gone."""


class Fault(StrEnum):
    """What is wrong at a record."""

    MISSING = "MISSING"  # no such record, and its time is not over
    ALTERED = "ALTERED"  # its content does not have its hash
    BROKEN = "BROKEN"  # the next record, or the head, names another hash for it
    INSERTED = "INSERTED"  # a second record with this number, or one beyond the head


@dataclass(frozen=True, slots=True)
class Finding:
    """The first record that is not what was written."""

    n: int
    fault: Fault
    message: str


def hash_of(record: dict[str, Any]) -> str:
    """SHA-256 of the record without `hash`, hexadecimal."""
    return jsonvalues.body_hash({name: v for name, v in record.items() if name != "hash"})


def link(
    head: dict[str, Any] | None,
    bodies: Iterable[dict[str, Any]],
    *,
    tenant: str,
    now: int,
    days: int,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The records to be written after `head` (None: the first ones), and the head after them.
    `days`: how long they are kept, 0 for ever."""
    n, prev = (head["n"], head["hash"]) if head else (0, "")
    expires: int | None = head.get("expiresAt") if head else None
    records: list[dict[str, Any]] = []
    for body in bodies:
        n += 1
        record = {**body, "n": n, "prev": prev}
        if expires is not None:
            record["prevExpires"] = expires
        expires = max(now + days * 86_400_000, expires or 0) if days else None
        if expires is not None:
            record["expiresAt"] = expires
            record["ttl"] = max(1, -(-(expires - now) // 1000))
        prev = record["hash"] = hash_of(record)
        records.append(record)
    fresh: dict[str, Any] = {
        "id": HEAD_ID,
        "type": HEAD_TYPE,
        "tenantId": tenant,
        "v": SCHEMA_VERSION,
        "n": n,
        "hash": prev,
        "updatedAt": now,
    }
    if expires is not None:
        fresh["expiresAt"] = expires
    return records, fresh


class Walk:
    """Follows the chain upwards. `expected`: the number of the first record to come."""

    def __init__(self, expected: int, now: int) -> None:
        self.expected = expected
        self.previous: dict[str, Any] | None = None
        self._now = now

    def step(self, record: dict[str, Any]) -> Finding | None:
        """Look at the next record, in order of `n`; what is wrong, if anything."""
        n = record.get("n")
        if type(n) is not int or n < self.expected:
            at = int(n) if isinstance(n, int | float) else self.expected
            return Finding(at, Fault.INSERTED, f"there is a record too much at {n}")
        if hash_of(record) != record.get("hash"):
            return Finding(n, Fault.ALTERED, f"the content of record {n} does not have its hash")
        if n > self.expected:
            if not self._over(record.get("prevExpires")):
                return Finding(self.expected, Fault.MISSING, f"record {self.expected} is missing")
        elif self.previous is not None and record["prev"] != self.previous["hash"]:
            return Finding(n - 1, Fault.BROKEN, f"record {n} follows another record {n - 1}")
        elif n == 1 and record["prev"] != "":
            return Finding(1, Fault.ALTERED, "record 1 follows another record")
        self.previous, self.expected = record, n + 1
        return None

    def end(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> Finding | None:
        """Compare with the head, as it was `before` the records were read and `after`."""
        last = self.expected - 1
        if before is not None and last < before["n"] and not self._over(before.get("expiresAt")):
            return Finding(self.expected, Fault.MISSING, f"record {self.expected} is missing")
        most = after["n"] if after else 0
        if last > most:
            return Finding(most + 1, Fault.INSERTED, f"record {most + 1} is beyond the head")
        return None

    def _over(self, expires: Any) -> bool:
        return isinstance(expires, int) and expires <= self._now + EXPIRY_SLACK_MS


def confirmed(record: dict[str, Any], n: int, hash: str) -> Finding | None:
    """Whether `record`, if it is number `n`, has the hash that somebody kept of it."""
    if record.get("n") != n or record.get("hash") == hash:
        return None
    return Finding(n, Fault.BROKEN, f"record {n} had another hash")
