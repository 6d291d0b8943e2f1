"""The scheduler: starts what is due, once, whoever calls and however often.

A timer calls `run_due` every few seconds. It may be late, doubled or silent for an hour, and
several processes may call at once, so nothing here counts calls. The store is asked for what is due
(`dueAt`, in order, by pages), and one leader works on it (`leadership.py`). Even two processes that
both believe they lead start a tick only once: the execution's id is derived from schedule and tick,
and every write of a schedule goes by its ETag and the leader's token.

Starting comes before moving on: a crash in between makes the next pass start the same id again,
which the store answers as a duplicate.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

from orchestrator.domain.topology import CATALOG
from orchestrator.engine import schedule_docs, schedule_fire
from orchestrator.engine.core import Engine
from orchestrator.engine.leadership import Leadership
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.schedule_docs import Deposed
from orchestrator.engine.views_schedules import ScheduleReport
from orchestrator.ports import Document, NotFound, PreconditionFailed, Query, StoreError, Where

log = logging.getLogger(__name__)

PAGE: Final = 100
MAX_PAGES: Final = 200
"""In one walk: twenty thousand schedules that are due at once are more than a pass can start."""
ROUNDS: Final = 10
"""Walks of one pass: a schedule with a long backlog is due again at once."""
AT_ONCE: Final = 16
PASS_BUDGET_MS: Final = 60_000
ATTEMPTS: Final = 5


@dataclass(slots=True)
class _Pass:
    """One pass of this process, and whether one is going on."""

    engine: Engine
    busy: bool = False
    token: int = 0
    deposed: int = 0
    started: int = 0
    failed: int = 0
    seen: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])


async def run_due(engine: Engine) -> ScheduleReport:
    """Start everything due, if this process leads or can take the lead. A call while another one
    runs here does nothing. Raises `StoreError` if the store does not answer at all."""
    this = engine.part(_Pass)
    if this.busy:
        return ScheduleReport(leading=False)
    this.busy = True
    try:
        return await _run(engine, this)
    finally:
        this.busy = False


async def _run(engine: Engine, this: _Pass) -> ScheduleReport:
    leadership = engine.part(Leadership)
    begin = engine.clock.now()
    this.started = this.failed = this.deposed = 0
    this.seen.clear()
    for _ in range(ROUNDS):
        token = await leadership.hold()
        if token is None:
            break
        this.token = token
        found = await _walk(engine, this, leadership, begin)
        if this.deposed:
            leadership.lost(this.deposed)
            break
        if not found or engine.clock.now() - begin > PASS_BUDGET_MS:
            return _report(this, leading=True)
    else:
        return _report(this, leading=True)
    return _report(this, leading=False)


def _report(this: _Pass, *, leading: bool) -> ScheduleReport:
    return ScheduleReport(leading=leading, started=this.started, failed=this.failed)


async def _walk(engine: Engine, this: _Pass, leadership: Leadership, begin: int) -> int:
    """Go once through what is due; how many schedules had not been seen as they are now."""
    now = engine.clock.now()
    after: tuple[str | int, str] | None = None
    fresh = 0
    for _ in range(MAX_PAGES):
        query = Query(
            where=(Where("type", "=", schedule_docs.TYPE), Where("dueAt", "<=", now)),
            order_by="dueAt",
            after=after,
            limit=PAGE,
        )
        page = await patiently(engine, engine.store.query, CATALOG, query)
        new = [doc for doc in page if _key(doc) not in this.seen]
        this.seen.update(_key(doc) for doc in new)
        fresh += len(new)
        await _fire_all(engine, this, new)
        if len(page) < PAGE or this.deposed or engine.clock.now() - begin > PASS_BUDGET_MS:
            break
        if await leadership.hold() != this.token:
            break
        after = (page[-1].body["dueAt"], page[-1].id)
    return fresh


def _key(doc: Document) -> tuple[str, str, str]:
    return (doc.body["tenantId"], doc.id, doc.etag)


async def _fire_all(engine: Engine, this: _Pass, page: list[Document]) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(doc: Document) -> None:
        async with gate:
            if not this.deposed:
                await _fire(engine, this, doc)

    await asyncio.gather(*(one(doc) for doc in page))


async def _fire(engine: Engine, this: _Pass, doc: Document) -> None:
    """One schedule; what goes wrong with it must not hold up the others."""
    try:
        for _ in range(ATTEMPTS):
            try:
                count = await schedule_fire.fire(engine, doc, this.token)
                this.started += count
                return
            except (PreconditionFailed, Unclear):
                # A user's edit, another leader, or an own write whose answer was lost.
                engine.metrics.count("weft_schedule_conflicts_total")
                found = await schedule_docs.read(engine, doc.body["tenantId"], doc.body["name"])
                if found and found.body["fence"] > this.token:
                    raise Deposed(found.body["fence"]) from None
                if found is None or found.body.get("dueAt", 1 << 62) > engine.clock.now():
                    return
                doc = found
    except Deposed as error:
        this.deposed = max(this.deposed, error.token)
    except NotFound:
        return  # deleted meanwhile
    except Exception as error:
        # It stays due, and the next pass tries again.
        this.failed += 1
        engine.metrics.count("weft_schedule_failures_total", type(error).__name__)
        level = logging.WARNING if isinstance(error, StoreError) else logging.ERROR
        log.log(
            level,
            "schedule not fired, the next pass tries again",
            extra={
                "action": "schedule.failed",
                "tenant": doc.body.get("tenantId"),
                "schedule": doc.body.get("name"),
                "error": type(error).__name__,
            },
        )
