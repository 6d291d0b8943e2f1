"""How long work waits: levels, measured when somebody asks and by each pass of the sweeper.

The embedded broker can say exactly how old a queue's oldest message is. Service Bus cannot: peeking
also shows locked messages, so a task of half an hour would look like a backlog. There, the level is
how long the messages had waited that were received within the last one to two minutes. While none
are received it says nothing; Service Bus's own metrics do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine.core import Engine
from orchestrator.engine.incoming import Incoming
from orchestrator.ports import Query, StoreError, TransportError, Where

OUTBOX_AGE: Final = "weft_outbox_age_seconds"
QUEUE_OLDEST: Final = "weft_queue_oldest_seconds"
OVERDUE: Final = "weft_sweep_overdue_seconds"
WINDOW_MS: Final = 60_000


class _Waited:
    """By queue, the longest wait of messages received in this window and in the one before.
    `known`: queues that were told once; a level must be able to fall to 0."""

    def __init__(self, engine: Engine) -> None:
        self.known: set[str] = set()
        self._window = 0
        self._now: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def add(self, queue: str, waited_ms: int, now: int) -> None:
        self._turn(now)
        self.known.add(queue)
        self._now[queue] = max(waited_ms, self._now.get(queue, 0))

    def read(self, now: int) -> dict[str, int]:
        self._turn(now)
        return {name: max(self._now.get(name, 0), self._before.get(name, 0)) for name in self.known}

    def _turn(self, now: int) -> None:
        window = now // WINDOW_MS
        if window != self._window:
            self._before = self._now if window == self._window + 1 else {}
            self._now = {}
            self._window = window


def heard(engine: Engine, queue: str, received: Sequence[Incoming]) -> None:
    """Messages of `queue` were received just now."""
    enqueued = min((one.enqueued_at for one in received if one.enqueued_at), default=0)
    if enqueued:
        now, waited = engine.clock.now(), engine.part(_Waited)
        waited.add(queue, max(0, now - enqueued), now)
        if engine.backlog is None:  # the sweeper may be another process's: this one tells itself
            engine.metrics.gauge("weft_queue_oldest_seconds", queue, waited.read(now)[queue] / 1000)


async def refresh(engine: Engine) -> dict[str, int]:
    """Set the levels; the ages in ms by metric and label, as `name` or `name{queue}`. Raises what
    the store and the broker raise."""
    now = engine.clock.now()
    grace = engine.tunables.outbox_grace_ms
    ages = {
        # An outbox document is as old as its `sweepAt` says, less the grace that it was given.
        OUTBOX_AGE: await _behind(engine, "outbox", now + grace),
        OVERDUE: await _behind(engine, "execution", now),
    }
    for queue, age in (await _queues(engine, now)).items():
        ages[f"{QUEUE_OLDEST}{{{queue}}}"] = age
        engine.metrics.gauge("weft_queue_oldest_seconds", queue, age / 1000)
    engine.metrics.gauge("weft_outbox_age_seconds", "", ages[OUTBOX_AGE] / 1000)
    engine.metrics.gauge("weft_sweep_overdue_seconds", "", ages[OVERDUE] / 1000)
    return ages


async def refresh_if_possible(engine: Engine) -> None:
    """`refresh`, for whoever has something else to do: levels stay as they are meanwhile."""
    with contextlib.suppress(StoreError, TransportError):
        await refresh(engine)


async def _queues(engine: Engine, now: int) -> dict[str, int]:
    waited = engine.part(_Waited)
    if engine.backlog is None:
        return waited.read(now)
    since = await engine.backlog.oldest()
    waited.known.update(since)
    return {queue: max(0, now - since[queue]) if queue in since else 0 for queue in waited.known}


async def _behind(engine: Engine, kind: str, than: int) -> int:
    """How long before `than` the earliest `sweepAt` of such documents is, in ms; 0 if it is not."""
    query = Query(
        where=(Where("type", "=", kind), Where("sweepAt", "<=", than)), order_by="sweepAt", limit=1
    )
    found = await engine.store.query(EXECUTIONS, query)
    return than - found[0].body["sweepAt"] if found else 0
