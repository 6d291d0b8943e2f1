"""A tenant's slots: how many of its tasks which process may run now, and until when.

Leases, not counters: a process that was killed gives nothing back, but what it held ends by itself.
Pure; whoever changes them writes the result under the document's ETag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

BUSY_MS: Final = 120_000
"""Tasks that wait for a slot come back within this, so their silence is no loss: above the longest
postponement (`gate.MAX_WAIT_MS`, one and a half times)."""


@dataclass(frozen=True, slots=True)
class Holding:
    """`count` slots of one process; nobody's from `until` (epoch ms) on."""

    count: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """All holders by their tokens. `full_at`: when somebody was last refused one (epoch ms)."""

    holders: Mapping[str, Holding] = field(default_factory=dict[str, Holding])
    full_at: int = 0

    def held(self, now: int) -> int:
        """How many are held now."""
        return sum(one.count for one in self.holders.values() if one.until > now)

    def of(self, token: str) -> int:
        """How many this process holds, or held last."""
        return self.holders[token].count if token in self.holders else 0

    def busy(self, now: int) -> bool:
        """Whether tasks may be waiting for a slot."""
        # Both ways: it may be of a process whose clock was ahead.
        return abs(now - self.full_at) < BUSY_MS

    def expired(self, now: int) -> int:
        """How many holders have not been heard of in time."""
        return sum(one.until <= now for one in self.holders.values())


def hold(
    before: Slots, token: str, wanted: int, *, used: int, limit: int, now: int, lease_ms: int
) -> Slots:
    """`before` after the process asked for `wanted` slots in all: it gets what the others leave of
    `limit`. Those that it uses (`used`) it keeps in any case: their tasks run. So the sum is above
    the limit only if that was lowered, or if a process outlived its lease. Expired holders go."""
    if wanted < 0 or used < 0:
        raise ValueError(f"{wanted} wanted, {used} used: neither can be negative")
    others = {
        name: one for name, one in before.holders.items() if name != token and one.until > now
    }
    left = limit - sum(one.count for one in others.values())
    count = max(used, min(wanted, left))
    holders = {**others, token: Holding(count, now + lease_ms)} if count > 0 else others
    after = replace(before, holders=holders)
    return replace(after, full_at=now) if count < wanted else after


def without_expired(before: Slots, now: int) -> Slots:
    """Only those that are held."""
    alive = {name: one for name, one in before.holders.items() if one.until > now}
    return replace(before, holders=alive)
