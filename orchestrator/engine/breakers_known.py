"""What one process knows of one breaker, and what it has seen of its dependency itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from orchestrator.domain import breakers as rules_of
from orchestrator.domain.breakers import Breaker, BreakerRules, BreakerStatus, Counts, Verdict

FRESH_MS = 1_000
"""How old what is known may be."""


def is_fresh(at: int | None, now: int) -> bool:
    """Whether `at` is less than `FRESH_MS` away. Either way: a clock that was set back must not
    make it fresh for hours."""
    return at is not None and abs(now - at) < FRESH_MS


@dataclass(slots=True)
class Known:
    """`breaker` None: nothing is known, tasks run."""

    breaker: Breaker | None = None
    read_at: int | None = None
    opening: tuple[int, int | None] | None = None  # (epoch, openedAt) that was seen…
    seen_at: int = 0  # …first at this time, by our clock
    counts: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    errors: list[str] = field(default_factory=list[str])
    told: int = 0  # failures of `counts` that the document has
    told_at: int | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # of reading
    telling: asyncio.Lock = field(default_factory=asyncio.Lock)

    def adopt(self, breaker: Breaker, now: int) -> None:
        """This is how it is now."""
        if self.opening is not None and self.opening[0] != breaker.epoch:
            # It was closed meanwhile: what was seen before does not count any more.
            self.counts.clear()
            self.untold()
        self.seen_at = self.seen(breaker, now)
        self.opening = (breaker.epoch, breaker.opened_at)
        self.breaker, self.read_at = breaker, now

    def seen(self, breaker: Breaker, now: int) -> int:
        """When this process first saw this opening."""
        same = self.opening == (breaker.epoch, breaker.opened_at)
        return self.seen_at if same else now

    def untold(self) -> None:
        """Nothing of what was seen is known to be in the document."""
        self.told, self.told_at = 0, None

    def count(self, now: int, verdict: Verdict, error: str, rules: BreakerRules) -> None:
        """Take in an outcome."""
        width = rules.bucket_ms
        bucket = self.counts.setdefault(now // width * width, [0, 0])
        bucket[verdict is Verdict.SUCCESS] += 1
        if verdict is Verdict.FAILURE and error:
            self.errors = list(dict.fromkeys([error, *self.errors]))[: rules_of.KEPT_ERRORS]
        if len(self.counts) > 4 * rules_of.BUCKETS:
            kept = {one[0] for one in self.counted(now, rules)[0]}
            self.counts = {at: told for at, told in self.counts.items() if at in kept}

    def counted(self, now: int, rules: BreakerRules) -> tuple[Counts, int]:
        """What was seen within the window, and the failures in it."""
        every = sorted((at, failed, fine) for at, (failed, fine) in self.counts.items())
        counts = rules_of.counted(every, now, rules)
        return counts, sum(one[1] for one in counts)

    def worth_telling(self, worker: str, now: int, rules: BreakerRules) -> bool:
        """Whether failures have come that others should know of: a fifth of what opens a breaker,
        once a second at most; or as many as open it, with what the others told before."""
        if rules.failures <= 0:
            return False
        breaker = self.breaker or Breaker(tenant="", dependency="")
        if breaker.status is not BreakerStatus.CLOSED:
            return False
        counts, failures = self.counted(now, rules)
        new = failures - min(self.told, failures)
        if new >= max(1, rules.failures // 5) and not is_fresh(self.told_at, now):
            return True
        told = rules_of.trip(breaker, worker, counts, (), now=now, rules=rules)
        return told.status is BreakerStatus.OPEN
