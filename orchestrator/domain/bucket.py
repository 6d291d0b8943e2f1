"""A token bucket: so many at once, and so many per second in the long run.

Pure, and safe with clocks: time that runs backwards gives nothing and takes nothing, and what a
clock gains after it was set back was not gained before. So over any stretch no more is taken than
the burst and the rate times the time that went forward, whatever the clocks of the processes say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

MAX_AHEAD_MS: Final = 60_000
"""A bucket that was filled by a clock further ahead than this is counted from now on: else a clock
that was wrong once would stop its tenant for as long as it was wrong."""


@dataclass(frozen=True, slots=True)
class Rate:
    """`per_second` tokens come, up to `burst` (at least 1) are kept."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """`tokens` were there at `at` (epoch ms)."""

    tokens: float
    at: int


def full(rate: Rate, now: int) -> Bucket:
    """The bucket of who took nothing yet."""
    return Bucket(rate.burst, now)


def refilled(bucket: Bucket, rate: Rate, now: int) -> Bucket:
    """With what came until `now`."""
    if now < bucket.at:
        at = now if bucket.at - now > MAX_AHEAD_MS else bucket.at
        return Bucket(min(bucket.tokens, rate.burst), at)
    came = (now - bucket.at) * rate.per_second / 1000
    return Bucket(min(rate.burst, bucket.tokens + came), now)


def take(bucket: Bucket, rate: Rate, wanted: int, now: int) -> tuple[int, Bucket]:
    """As many whole tokens as are there, `wanted` at most, and what is left."""
    there = refilled(bucket, rate, now)
    taken = min(wanted, math.floor(there.tokens))
    return taken, Bucket(there.tokens - taken, there.at)


def wait_ms(bucket: Bucket, rate: Rate, now: int) -> int:
    """How long until there is one token; 0 if there is."""
    there = refilled(bucket, rate, now)
    missing = max(0.0, 1 - there.tokens) * 1000 / rate.per_second
    return math.ceil(missing) + (max(0, there.at - now) if missing else 0)
