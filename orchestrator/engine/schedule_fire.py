"""One schedule that is due: misfire and overlap policies, starts, and the move to the next tick.

What the misfire policy accepts of a backlog is written before any of it is started. Otherwise,
after a crash in the middle, the backlog would be judged again, when it has grown. From then on a
tick waits in `waiting` and is started, however late, as the overlap rule allows.
"""

from __future__ import annotations

from typing import Any, Final

from orchestrator.domain.cel_scan import ExpressionError
from orchestrator.domain.codec import iso
from orchestrator.domain.errors import NotFoundError, ThrottledError, UnavailableError, WeftError
from orchestrator.domain.failure import scrub
from orchestrator.domain.schedule import (
    MAX_CATCH_UP,
    Schedule,
    backlog,
    due_at,
    render_input,
    tick_id,
)
from orchestrator.domain.status import TERMINAL_EXECUTION, ExecutionStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import control, documents, schedule_docs, submit
from orchestrator.engine.aside import aside
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently
from orchestrator.engine.schedule_docs import MAX_ACTIVE, MAX_MESSAGE_CHARS, note
from orchestrator.ports import Document

STARTS_PER_PASS: Final = 100
"""Of one schedule: the rest follows in the next round, so that one's backlog is not everybody's."""
RECHECK_MS: Final = 5_000
"""How often a tick that waits for an execution to end is looked at again."""

LAG_MS: Final = 30_000
"""An unknown workflow is tried again for so long: a schedule is stored only if its workflow is
there, but a replica may lag behind the one that published it."""


async def fire(engine: Engine, found: Document, token: int) -> int:
    """Do what is due for a schedule, as the leader with `token`; the number of started executions.

    Raises `Deposed`, `PreconditionFailed` or `Unclear` (reload and call again), `NotFound` (it was
    deleted), `StoreError`.
    """
    documents.check_version(found.body)
    if found.body["paused"]:
        return 0
    if found.body["fence"] > token:
        raise schedule_docs.Deposed(found.body["fence"])
    schedule = schedule_docs.compiled(engine, found.body)
    now = engine.clock.now()
    body = dict(found.body)
    begun = await _begun(engine, body, schedule, now)
    if accept(engine, body, schedule, now) or begun:
        schedule_docs.set_due(body, schedule, recheck=now)
        found = await schedule_docs.write_fenced(engine, found, body, token)
        if not body["waiting"]:
            return 0
        body = dict(found.body)
    run = _Run(engine, body, schedule, now)
    recheck = await run.waiting()
    schedule_docs.set_due(body, schedule, recheck=recheck)
    await schedule_docs.write_fenced(engine, found, body, token)
    return run.started


async def _begun(engine: Engine, body: dict[str, Any], schedule: Schedule, now: int) -> bool:
    """Let the oldest due tick wait if it is late, but was started in time by a leader that died
    before it could write so: it is not missed, and the overlap rule must know of it."""
    first = next(schedule.after(body["cursor"]), None)
    if first is None or now - due_at(schedule, body["tenantId"], first) <= schedule.grace:
        return False
    id = tick_id(body["tenantId"], schedule.name, first)
    if not await _documents(engine, body["tenantId"], id):
        return False
    body["waiting"] = [*body["waiting"], first]
    body["cursor"] = first
    return True


async def _documents(engine: Engine, tenant: str, execution: str) -> dict[str, Document]:
    """The execution's own document, by its id; empty if there is none."""
    return await patiently(
        engine, engine.store.read_many, EXECUTIONS, (tenant, execution), [execution]
    )


def accept(engine: Engine, body: dict[str, Any], schedule: Schedule, now: int) -> bool:
    """Move what is due at `now` into `waiting`, as the misfire policy says; whether that is to be
    written before anything is started. A single tick in time is not: see `_begun`."""
    due = backlog(schedule, body["tenantId"], body["cursor"], now, STARTS_PER_PASS)
    waiting = [*body["waiting"], *due.ticks]
    if due.missed:
        note(body, "missed", at=now, tick=due.first, count=due.missed)
        engine.metrics.count("weft_schedule_ticks_total", "missed", due.missed)
    if len(waiting) > MAX_CATCH_UP:
        over = waiting[MAX_CATCH_UP:]
        note(body, "skipped", at=now, tick=over[0], count=len(over), code="QUEUE_FULL")
        engine.metrics.count("weft_schedule_ticks_total", "skipped", len(over))
    body["waiting"] = waiting[:MAX_CATCH_UP]
    body["cursor"] = due.until
    return due.late or len(due.ticks) > 1


class _Run:
    """Starts of one schedule in one pass; changes `body`."""

    def __init__(self, engine: Engine, body: dict[str, Any], schedule: Schedule, now: int) -> None:
        self.engine = engine
        self.body = body
        self.schedule = schedule
        self.now = now
        self.tenant: str = body["tenantId"]
        self.started = 0

    async def waiting(self) -> int | None:
        """Start what waits; when to look again at what still does."""
        overlap = self.schedule.overlap
        if overlap != "allow" and self.body["waiting"]:
            self.body["active"] = await self._running()
        for _ in range(STARTS_PER_PASS):
            if not self.body["waiting"]:
                return None
            running: list[str] = self.body["active"]
            if overlap == "cancelPrevious":
                await self._make_room()
            elif overlap == "queue" and running:
                return self.now + RECHECK_MS
            elif overlap == "skip" and running:
                self._skip(self.body["waiting"], "OVERLAP", running[-1])
                self.body["waiting"] = []
                return None
            try:
                await self._start(self.body["waiting"][0])
            except ThrottledError as error:
                return self.now + max(error.retry_after_ms, RECHECK_MS)
            self.body["waiting"] = self.body["waiting"][1:]
        return self.now

    async def _make_room(self) -> None:
        """Only the last of several ticks has a chance to live. One before it may have been started
        by a leader that died before it could write so: it is cancelled like the others."""
        *early, last = self.body["waiting"]
        dropped: list[int] = []
        for tick in early:
            id = tick_id(self.tenant, self.schedule.name, tick)
            if await _documents(self.engine, self.tenant, id):
                self._runs(tick, id)
            else:
                dropped.append(tick)
        if dropped:
            self._skip(dropped, "SUPERSEDED")
        self.body["waiting"] = [last]
        for execution in self.body["active"]:
            try:
                await control.act(
                    self.engine,
                    self.tenant,
                    execution,
                    control.CANCEL,
                    by=f"schedule:{self.schedule.name}",
                    reason=f"overlap: the tick of {iso(last)} is due",
                )
            except WeftError as error:
                if isinstance(error, UnavailableError):
                    raise
                continue  # it has ended by itself
        self.body["active"] = []

    def _skip(self, ticks: list[int], code: str, execution: str = "") -> None:
        note(
            self.body,
            "skipped",
            at=self.now,
            tick=ticks[0],
            count=len(ticks),
            code=code,
            execution=execution,
        )
        self.engine.metrics.count("weft_schedule_ticks_total", "skipped", len(ticks))

    async def _running(self) -> list[str]:
        """Those of `active` that have not ended."""
        alive: list[str] = []
        for execution in self.body["active"]:
            found = await _documents(self.engine, self.tenant, execution)
            doc = found.get(execution)
            if doc and ExecutionStatus(doc.body["status"]) not in TERMINAL_EXECUTION:
                alive.append(execution)
        return alive

    async def _start(self, tick: int) -> None:
        """Start a tick's execution, or note why it cannot be. Raises `ThrottledError`,
        `UnavailableError`, `StoreError`: then it is tried again."""
        schedule = self.schedule
        id = tick_id(self.tenant, schedule.name, tick)
        try:
            result = await submit.start(
                self.engine,
                self.tenant,
                schedule.workflow,
                await aside(lambda: render_input(schedule, iso(tick)), heavy=schedule.input.heavy),
                version=schedule.version,
                tags=schedule.tags,
                started_by=f"schedule:{schedule.name}",
                id=id,
                more={"schedule": schedule.name, "scheduledFor": tick},
            )
            created = result.created
        except (ThrottledError, UnavailableError):
            raise
        except ExpressionError as error:
            self._refuse(tick, "INPUT_EXPRESSION", str(error))
            return
        except WeftError as error:
            # A pass before this one may have started it, and died; then what is refused now (the
            # workflow archived, the schedule edited meanwhile) does not matter any more.
            if not await _documents(self.engine, self.tenant, id):
                if isinstance(error, NotFoundError) and self.now - tick < LAG_MS:
                    raise UnavailableError(error.message) from error
                self._refuse(tick, error.code, error.message)
                return
            created = False
        self.started += created
        self._runs(tick, id)
        self.engine.metrics.count("weft_schedule_ticks_total", "started", int(created))

    def _runs(self, tick: int, id: str) -> None:
        self.body["active"] = [*self.body["active"], id][-MAX_ACTIVE:]
        note(self.body, "started", at=self.now, tick=tick, execution=id)

    def _refuse(self, tick: int, code: str, message: str) -> None:
        told = scrub(message)[:MAX_MESSAGE_CHARS]
        note(self.body, "refused", at=self.now, tick=tick, code=code, message=told)
        self.engine.metrics.count("weft_schedule_ticks_total", "refused")
