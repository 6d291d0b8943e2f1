"""The circuit breaker of one dependency: pure decisions, acted on by workers.

While a dependency is down, trying it again only uses up attempts and keeps it down. Open: nothing
is sent there, tasks wait without an attempt. Once the time is over, exactly one task tries (the
probe); its outcome closes the breaker, or opens it for twice as long.

What processes have seen is kept apart by process and replaced as a whole, so that a write repeated
after an unclear outcome counts nothing twice. Inputs that come too late for the status (a failure
of an attempt that began before the breaker opened, the outcome of a probe whose time was over)
change nothing. Times are epoch milliseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias

BUCKETS: Final = 6
"""Parts of the window in which outcomes are counted together."""
KEPT_ERRORS: Final = 5
KEPT_WORKERS: Final = 100


class BreakerStatus(StrEnum):
    """Where a breaker is."""

    CLOSED = "closed"  # tasks run
    OPEN = "open"  # tasks wait
    HALF_OPEN = "halfOpen"  # one task tries, the others wait


class BreakerOperation(StrEnum):
    """What may happen to a breaker."""

    TRIP = "trip"  # too many failures
    PROBE = "probe"  # its time is over, or that of a probe without outcome: one task tries
    SUCCEED = "succeed"  # the probe did
    FAIL = "fail"  # the probe did
    RELEASE = "release"  # the probe never reached the dependency: the next task tries
    OPEN = "open"  # an operator's
    CLOSE = "close"  # an operator's


class Verdict(StrEnum):
    """What an attempt's outcome says about the dependency."""

    SUCCESS = "success"  # it answered, if only with a refusal
    FAILURE = "failure"  # it did not answer, or said that it cannot
    NEUTRAL = "neutral"  # it was not asked


_S = BreakerStatus
_O = BreakerOperation
BREAKER: Final[Mapping[tuple[BreakerOperation, BreakerStatus], BreakerStatus]] = {
    (_O.TRIP, _S.CLOSED): _S.OPEN,
    (_O.PROBE, _S.OPEN): _S.HALF_OPEN,
    (_O.PROBE, _S.HALF_OPEN): _S.HALF_OPEN,
    (_O.SUCCEED, _S.HALF_OPEN): _S.CLOSED,
    (_O.FAIL, _S.HALF_OPEN): _S.OPEN,
    (_O.RELEASE, _S.HALF_OPEN): _S.HALF_OPEN,
    (_O.OPEN, _S.CLOSED): _S.OPEN,
    (_O.OPEN, _S.OPEN): _S.OPEN,
    (_O.OPEN, _S.HALF_OPEN): _S.OPEN,
    (_O.CLOSE, _S.OPEN): _S.CLOSED,
    (_O.CLOSE, _S.HALF_OPEN): _S.CLOSED,
}

Counts: TypeAlias = tuple[tuple[int, int, int], ...]
"""(start of the bucket, failures, successes) of one process, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    """When a breaker opens, and for how long. Milliseconds."""

    failures: int = 10
    """This many failures within `window_ms` open it, if they are `percent` of all outcomes; 0: it
    opens only by hand."""
    percent: int = 50
    window_ms: int = 60_000
    open_ms: int = 30_000
    """The first time; doubled whenever the probe fails, up to `max_open_ms`."""
    max_open_ms: int = 300_000
    probe_ms: int = 60_000
    """A probe without outcome for this long is given to another task: its worker may be dead."""

    @property
    def bucket_ms(self) -> int:
        """Width of a bucket."""
        return max(1, self.window_ms // BUCKETS)


@dataclass(frozen=True, slots=True)
class Probe:
    """The one attempt that is let through. `token` names it."""

    token: str
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """The shared state of one dependency of one tenant."""

    tenant: str
    dependency: str
    status: BreakerStatus = BreakerStatus.CLOSED
    seen: Mapping[str, Counts] = field(default_factory=dict[str, Counts])  # by process
    errors: tuple[str, ...] = ()  # types of failures, latest first
    opened_at: int | None = None
    until: int | None = None  # open: when to probe; None: not by itself
    span_ms: int = 0  # how long this opening lasts
    probe: Probe | None = None
    manual: bool = False  # an operator opened it
    by: str = ""  # the operator who acted last
    reason: str = ""
    for_ms: int | None = None  # what the operator asked for
    epoch: int = 0  # how often it was closed: what was seen before does not count any more
    closed_at: int | None = None  # when it was closed last
    updated_at: int = 0


class Gate(StrEnum):
    """What a task may do."""

    RUN = "run"
    PROBE = "probe"  # if it can take the probe
    WAIT = "wait"


def counted(counts: Iterable[tuple[int, int, int]], now: int, rules: BreakerRules) -> Counts:
    """Those counts that are still (and, with a clock that is behind, already) in the window."""
    low, high = now - rules.window_ms, now + rules.window_ms
    return tuple(one for one in counts if low < one[0] + rules.bucket_ms and one[0] < high)


def totals(breaker: Breaker, now: int, rules: BreakerRules) -> tuple[int, int]:
    """Failures and successes that all processes have told, in the window."""
    inside = [one for counts in breaker.seen.values() for one in counted(counts, now, rules)]
    return sum(one[1] for one in inside), sum(one[2] for one in inside)


def trip(
    breaker: Breaker,
    worker: str,
    counts: Counts,
    errors: Iterable[str],
    *,
    now: int,
    rules: BreakerRules,
) -> Breaker:
    """The breaker once `worker` has told what it saw; open if that is too much. Its own view alone
    is enough: with clocks far apart, processes would throw each other's counts away."""
    to = BREAKER.get((_O.TRIP, breaker.status))
    if to is None:
        return breaker
    fresh = {name: counted(old, now, rules) for name, old in breaker.seen.items()}
    seen = {name: kept for name, kept in fresh.items() if kept and name != worker}
    while len(seen) >= KEPT_WORKERS:
        del seen[min(seen, key=lambda name: seen[name][-1][0])]
    seen[worker] = counts
    types = tuple(dict.fromkeys([*errors, *breaker.errors]))[:KEPT_ERRORS]
    told = replace(breaker, seen=seen, errors=types, updated_at=now)
    own = (sum(one[1] for one in counts), sum(one[2] for one in counts))
    if not (_too_many(*totals(told, now, rules), rules) or _too_many(*own, rules)):
        return told
    span = rules.open_ms
    return replace(told, status=to, opened_at=now, until=now + span, span_ms=span, manual=False)


def admit(breaker: Breaker, now: int, seen_at: int) -> Gate:
    """Whether a task may run. `seen_at`: when this process first saw this opening, by its own
    clock; so a clock that is hours behind waits no longer than the opening lasts."""
    if breaker.status is _S.CLOSED:
        return Gate.RUN
    if breaker.status is _S.HALF_OPEN:
        return Gate.WAIT if breaker.probe and breaker.probe.until > now else Gate.PROBE
    until = due(breaker, seen_at)
    return Gate.PROBE if until is not None and until <= now else Gate.WAIT


def due(breaker: Breaker, seen_at: int) -> int | None:
    """When an open breaker may be probed, by the clock of the process that saw it at `seen_at`;
    None: not by itself."""
    return None if breaker.until is None else min(breaker.until, seen_at + breaker.span_ms)


def take_probe(
    breaker: Breaker, token: str, *, now: int, seen_at: int, rules: BreakerRules
) -> Breaker:
    """With the probe `token`, if it is to be had; else unchanged."""
    to = BREAKER.get((_O.PROBE, breaker.status))
    if to is None or admit(breaker, now, seen_at) is not Gate.PROBE:
        return breaker
    span = rules.open_ms if breaker.manual else breaker.span_ms
    return replace(
        breaker,
        status=to,
        probe=Probe(token, now + rules.probe_ms),
        until=None,
        span_ms=span,
        manual=False,
        for_ms=None,
        updated_at=now,
    )


@dataclass(frozen=True, slots=True)
class Taken:
    """A probe as its holder remembers it: its token, and when its breaker had opened."""

    token: str
    opened_at: int | None


def probed(
    breaker: Breaker, taken: Taken, verdict: Verdict, *, now: int, rules: BreakerRules, error: str
) -> Breaker:
    """After the outcome of a probe. If it took so long that another task probes, too, it counts
    only as a success: a dependency that answers slowly must not stay cut off for ever."""
    operation = {
        Verdict.SUCCESS: _O.SUCCEED,
        Verdict.FAILURE: _O.FAIL,
        Verdict.NEUTRAL: _O.RELEASE,
    }[verdict]
    to = BREAKER.get((operation, breaker.status))
    if to is None or breaker.opened_at != taken.opened_at:
        return breaker
    current = breaker.probe is not None and breaker.probe.token == taken.token
    if not current and to is not _S.CLOSED:
        return breaker
    if to is _S.CLOSED:
        return _closed(breaker, now)
    if to is _S.HALF_OPEN:
        return replace(breaker, probe=None, updated_at=now)
    span = min(max(breaker.span_ms, rules.open_ms) * 2, max(rules.open_ms, rules.max_open_ms))
    errors = tuple(dict.fromkeys([error, *breaker.errors] if error else breaker.errors))
    return replace(
        breaker,
        status=to,
        probe=None,
        opened_at=now,
        until=now + span,
        span_ms=span,
        errors=errors[:KEPT_ERRORS],
        updated_at=now,
    )


def open_by_hand(
    breaker: Breaker, *, by: str, reason: str, for_ms: int | None, now: int
) -> Breaker:
    """Open until closed, or for `for_ms`, then as after any opening. Unchanged if that is so
    already."""
    to = BREAKER[_O.OPEN, breaker.status]
    wish = (by, reason, for_ms)
    standing = breaker.manual and (breaker.until is None or breaker.until > now)
    if standing and wish == (breaker.by, breaker.reason, breaker.for_ms):
        return breaker
    return replace(
        breaker,
        status=to,
        probe=None,
        opened_at=now,
        until=None if for_ms is None else now + for_ms,
        span_ms=for_ms or 0,
        manual=True,
        by=by,
        reason=reason,
        for_ms=for_ms,
        updated_at=now,
    )


def close_by_hand(breaker: Breaker, *, by: str, reason: str, now: int) -> Breaker:
    """Closed, with nothing seen. Unchanged if it is closed."""
    if (_O.CLOSE, breaker.status) not in BREAKER:
        return breaker
    return replace(_closed(breaker, now), by=by, reason=reason)


def spread(key: str, span_ms: int) -> int:
    """0..`span_ms`, derived from `key`: postponed tasks must not all come back at once."""
    seed = hashlib.blake2b(key.encode("utf-8", errors="surrogatepass"), digest_size=8).digest()
    return (span_ms + 1) * int.from_bytes(seed, "big") >> 64


def _closed(breaker: Breaker, now: int) -> Breaker:
    return Breaker(
        tenant=breaker.tenant,
        dependency=breaker.dependency,
        errors=breaker.errors,
        epoch=breaker.epoch + 1,
        closed_at=now,
        updated_at=now,
    )


def _too_many(failures: int, successes: int, rules: BreakerRules) -> bool:
    return (
        0 < rules.failures <= failures and failures * 100 >= (failures + successes) * rules.percent
    )
