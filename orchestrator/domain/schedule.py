"""A schedule that can be computed with: its ticks, its jitter, and what a backlog leads to.

Pure and bounded: no clock, no random, and no walk over years of ticks. A *tick* is a nominal fire
time in epoch milliseconds; with jitter it is *due* a little later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final, Literal, Protocol, TypeAlias
from zoneinfo import ZoneInfo

from orchestrator.domain.cel_scope import Scope
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.templates import Template

MAX_CATCH_UP: Final = 1_000
"""The most missed ticks that `catchUp` may name, and the most that may wait to be started."""
SHOWN_TICKS: Final = 5

Overlap: TypeAlias = Literal["allow", "skip", "queue", "cancelPrevious"]


class Ticks(Protocol):
    """When something fires. All spans are (`after`, `until`]."""

    def after(self, at: int) -> Iterator[int]:
        """Ticks later than `at`, increasing."""
        ...

    def count(self, after: int, until: int) -> int:
        """Number of ticks in the span."""
        ...

    def latest(self, after: int, until: int, most: int) -> list[int]:
        """The last `most` ticks of the span, increasing."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """Every `interval` milliseconds, through `anchor`, in both directions."""

    interval: int
    anchor: int

    def after(self, at: int) -> Iterator[int]:
        """See `Ticks`."""
        tick = self.anchor + ((at - self.anchor) // self.interval + 1) * self.interval
        while True:
            yield tick
            tick += self.interval

    def count(self, after: int, until: int) -> int:
        """See `Ticks`."""
        low, high = ((at - self.anchor) // self.interval for at in (after, until))
        return max(0, high - low)

    def latest(self, after: int, until: int, most: int) -> list[int]:
        """See `Ticks`."""
        high = (until - self.anchor) // self.interval
        number = min(most, self.count(after, until))
        return [self.anchor + k * self.interval for k in range(high - number + 1, high + 1)]


@dataclass(frozen=True, slots=True)
class Once:
    """At one time."""

    at: int

    def after(self, at: int) -> Iterator[int]:
        """See `Ticks`."""
        if self.at > at:
            yield self.at

    def count(self, after: int, until: int) -> int:
        """See `Ticks`."""
        return int(after < self.at <= until)

    def latest(self, after: int, until: int, most: int) -> list[int]:
        """See `Ticks`."""
        return [self.at][: self.count(after, until)] if most > 0 else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The runnable form of a `ScheduleSpec`. Times and durations in milliseconds."""

    name: str
    workflow: str
    version: int | None  # None: the latest when it fires
    ticks: Ticks
    zone: ZoneInfo  # for people; the ticks know their own
    start: int | None  # first and last possible tick
    end: int | None
    catch_up: int  # how many of the missed ticks run: 0 skip, 1 fireOnce
    grace: int  # a tick seen later than this after it was due is missed
    overlap: Overlap
    jitter: int
    input: Template
    tags: dict[str, str]

    def after(self, at: int) -> Iterator[int]:
        """Ticks later than `at` between start and end, increasing."""
        found = self.ticks.after(at if self.start is None else max(at, self.start - 1))
        end = self.end
        return found if end is None else takewhile(lambda tick: tick <= end, found)

    def count(self, after: int, until: int) -> int:
        """Number of ticks in (`after`, `until`]."""
        return self.ticks.count(*self._span(after, until))

    def latest(self, after: int, until: int, most: int) -> list[int]:
        """The last `most` ticks in (`after`, `until`], increasing."""
        return self.ticks.latest(*self._span(after, until), most)

    def _span(self, after: int, until: int) -> tuple[int, int]:
        low = after if self.start is None else max(after, self.start - 1)
        high = until if self.end is None else min(until, self.end)
        return low, max(low, high)


def next_ticks(schedule: Schedule, after: int, count: int = SHOWN_TICKS) -> list[int]:
    """The first `count` ticks later than `after`; fewer if it ends before."""
    return list(islice(schedule.after(after), count))


def due_at(schedule: Schedule, tenant: str, tick: int) -> int:
    """When a tick is to be started: its time plus a jitter that only depends on what it is of."""
    if schedule.jitter == 0:
        return tick
    digest = hashlib.sha256(f"{tenant}\0{schedule.name}\0{tick}".encode()).digest()
    return tick + int.from_bytes(digest[:8]) % (schedule.jitter + 1)


def tick_id(tenant: str, schedule: str, tick: int) -> str:
    """The id of a tick's execution. Derived, so that the database itself refuses a second one,
    whoever starts it. The prefix keeps it apart from ids of idempotency keys."""
    return "s" + hashlib.sha256(f"{tenant}\0{schedule}\0{tick}".encode()).hexdigest()[:31]


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is due: `ticks` to start, oldest first; of the span (`first`, `until`) `missed` ticks
    were dropped. `until`: everything up to it is decided by this. `late`: the misfire policy was
    applied."""

    ticks: list[int]
    until: int
    late: bool = False
    missed: int = 0
    first: int = 0


def backlog(schedule: Schedule, tenant: str, cursor: int, now: int, most: int) -> Backlog:
    """What to do about the ticks after `cursor` that are due at `now`.

    If the oldest is not later than the grace, all of them are started (at most `most` now, the
    others by the next call). Else there was an outage or a pause, and the misfire policy applies to
    everything due, the last tick included: skip none, fireOnce the last, catchUp the last so many.
    """
    first = next(schedule.after(cursor), None)
    if first is None or due_at(schedule, tenant, first) > now:
        return Backlog([], cursor)
    if now - due_at(schedule, tenant, first) <= schedule.grace:
        due = list(
            islice(
                takewhile(lambda t: due_at(schedule, tenant, t) <= now, schedule.after(cursor)),
                most,
            )
        )
        return Backlog(due, due[-1])
    # Jitter is shorter than the time between ticks, so only the last one can be still to come.
    last = [t for t in schedule.latest(cursor, now, 2) if due_at(schedule, tenant, t) <= now]
    until = last[-1] if last else first
    kept = schedule.latest(cursor, until, schedule.catch_up)
    missed = schedule.count(cursor, until) - len(kept)
    return Backlog(kept, until, late=True, missed=missed, first=first)


def render_input(schedule: Schedule, tick: str) -> Json:
    """The input of a tick's execution; `tick`: ISO 8601. Raises `ExpressionError`."""
    return schedule.input.evaluate(Scope(schedule={"id": schedule.name}, tick=tick))
