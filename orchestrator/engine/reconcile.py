"""Compares everything that is stored with everything that should follow from it.

After a restore, a lost broker, a change feed that was set back or forward, or a deployment that was
rolled back, this is the proof that nothing is missing: it ends with zero gaps, or names them. It
reads in pages and keeps no more than one page and `DOUBTS` documents. Kinds of gaps:

    unreadable   an execution that cannot be read (its definition is gone, it is damaged)
    newer        written by newer code, so it cannot be judged by this one
    history      the events do not fold to the state                           mended by nobody
    overdue      the sweeper should have seen to it two minutes ago            sent for
    unwatched    it is not ended, and nothing will ever look at it             sent for
    lost         in flight, and nobody works on it (`lost` only, see there)    sent for
    row          the read model lacks it, or shows another version of it       written
    orphan       the read model shows an execution that does not exist         removed

Whatever looks wrong is looked at once more after a pause, because the platform works meanwhile: a
row lags behind its execution, a message is just being sent. It mends as the sweeper and the rebuild
do, by sending and projecting, never by deciding: a gap that was sent for is gone when the platform
has acted on it, and the next reconciliation shows that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.domain.effects import in_flight, next_wake
from orchestrator.domain.status import TERMINAL_EXECUTION, ExecutionStatus, TaskStatus
from orchestrator.domain.topology import CONTAINERS, EXECUTIONS, VISIBILITY
from orchestrator.engine import aggregate as aggregates
from orchestrator.engine import documents, facts, project, rebuild, relay, sweep, verify
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.silence import is_postponed, without_postponed
from orchestrator.engine.views_reconcile import Gap, ReconcileReport
from orchestrator.ports import Document, NotFound, StoreError, TransportError

log = logging.getLogger(__name__)

LATE_MS: Final = 120_000
"""Beyond `sweepAt`: eight passes of the sweeper."""
SETTLE_MS: Final = 5_000
"""Between the first look and the second: the change feed brings rows within a second or two."""
DOUBTS: Final = 1_000
"""So many documents that look wrong are looked at together for the second time."""
SHOWN: Final = 100
AT_ONCE: Final = 32
ENDED: Final = frozenset(status.value for status in TERMINAL_EXECUTION)


@dataclass(frozen=True, slots=True)
class _Fault:
    """What is wrong with one document."""

    kind: str
    detail: str = ""


async def reconcile(
    engine: Engine,
    *,
    mend: bool = True,
    every: bool = False,
    lost: bool = False,
    settle_ms: int | None = None,
) -> ReconcileReport:
    """Look at every execution and every row; mend unless told otherwise.

    `every`: fold the history of executions that have ended, too. `lost`: the broker is new or was
    emptied, so whatever is in flight and nobody works on is sent again now; without it, such work
    is counted as `waiting` and left to its message, or to the sweeper's bound. Safe while the
    platform runs. Raises `StoreError` if the store cannot be read; what was mended until then is.
    """
    pause = SETTLE_MS if settle_ms is None else settle_ms
    run = _Run(engine, mend=mend, every=every, lost=lost, settle_ms=pause)
    async for docs in rebuild.pages(engine, EXECUTIONS):
        await run.doubt(EXECUTIONS, docs)
    async for docs in rebuild.pages(engine, VISIBILITY):
        await run.doubt(VISIBILITY, docs)
    await run.settle()
    report = run.report()
    log.info(
        "reconciled: %s gaps",
        report.gaps,
        extra={"action": "reconcile.done", "gaps": report.gaps, "mended": report.mended},
    )
    return report


class _Run:
    """One reconciliation."""

    def __init__(
        self, engine: Engine, *, mend: bool, every: bool, lost: bool, settle_ms: int
    ) -> None:
        self.engine = engine
        self.mend = mend
        self.every = every
        self.lost = lost
        self.settle_ms = settle_ms
        self._count: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._found: list[Gap] = []
        self._first = True  # look
        self._doubts: dict[tuple[str, tuple[str, ...], str], None] = {}

    def report(self) -> ReconcileReport:
        """What was found so far."""
        return ReconcileReport(
            **self._count,
            gaps=self._kinds.total(),
            kinds=dict(sorted(self._kinds.items())),
            found=self._found,
        )

    async def doubt(self, container: str, docs: Sequence[Document]) -> None:
        """First look: remember what seems wrong."""
        names = CONTAINERS[container].partition
        if container == VISIBILITY:
            self._count["rows"] += len(docs)
        for doc in docs if container == EXECUTIONS else ():
            if doc.body.get("type") == "execution":
                self._count["executions"] += 1
                self._count["open"] += doc.body.get("status") not in ENDED
        for doc, faults in await self._look(container, docs):
            if faults:
                key = (container, tuple(str(doc.body[name]) for name in names), doc.id)
                self._doubts[key] = None
        if len(self._doubts) >= DOUBTS:
            await self.settle()

    async def settle(self) -> None:
        """Second look at what seemed wrong; what still does is a gap."""
        if not self._doubts:
            return
        doubts, self._doubts, self._first = list(self._doubts), {}, False
        if self.settle_ms:
            await self.engine.clock.sleep(self.settle_ms)
        for container in (EXECUTIONS, VISIBILITY):
            keys = [key for key in doubts if key[0] == container]
            for start in range(0, len(keys), AT_ONCE):
                some = await asyncio.gather(*map(self._again, keys[start : start + AT_ONCE]))
                docs = [doc for doc in some if doc is not None]
                for doc, faults in await self._look(container, docs):
                    for fault in faults:
                        await self._gap(doc, fault)
        self._first = True

    async def _again(self, key: tuple[str, tuple[str, ...], str]) -> Document | None:
        try:
            return await patiently(self.engine, self.engine.store.read, *key)
        except (NotFound, Unclear):  # unclear are writes only
            return None  # sent or ended meanwhile

    async def _look(
        self, container: str, docs: Sequence[Document]
    ) -> list[tuple[Document, list[_Fault]]]:
        if container == VISIBILITY:
            found = await self._in_groups(self._row, docs)
        else:
            found = await self._in_groups(self._stored, docs)
            shown = await self._shown(docs)
            for at, doc in enumerate(docs):
                if doc.body.get("type") == "execution" and not found[at] and doc.id in shown:
                    found[at] = [shown[doc.id]]
        return list(zip(docs, found, strict=True))

    async def _in_groups(self, look: Any, docs: Sequence[Document]) -> list[list[_Fault]]:
        result: list[list[_Fault]] = []
        for start in range(0, len(docs), AT_ONCE):
            result += await asyncio.gather(*map(look, docs[start : start + AT_ONCE]))
        return result

    async def _stored(self, doc: Document) -> list[_Fault]:
        """What is wrong with a document of an execution by itself."""
        body, now = doc.body, self.engine.clock.now()
        kind = body.get("type")
        if kind not in sweep.CALLS and kind != "outbox":
            return []
        due = body.get("sweepAt")
        if due is not None and due + LATE_MS <= now and not await self._postponed(body):
            return [_Fault("overdue", f"by {(now - due) // 1000} s")]
        if kind == "execution":
            return await self._execution(doc)
        if kind == "task" and body["status"] == TaskStatus.WAITING.value and due is None:
            return [_Fault("unwatched", "waits, and nothing looks at it")]
        return []

    async def _postponed(self, body: dict[str, Any]) -> bool:
        return body["type"] == "task" and await is_postponed(self.engine, body)

    async def _execution(self, doc: Document) -> list[_Fault]:
        ended = doc.body.get("status") in ENDED
        if ended and (not self.every or "archiving" in doc.body):
            return []  # one that is being removed has its history in the archive
        try:
            documents.check_version(doc.body)
            found = await aggregates.from_document(self.engine, doc.body, doc.etag)
            report = await verify.verify(self.engine, *found.partition)
            faults = [_Fault("history", problem) for problem in report.problems[:1]]
            return faults if ended else faults + await self._alive(found, doc.body)
        except documents.NewerSchema as error:
            return [_Fault("newer", str(error))]
        except StoreError:
            raise
        except Exception as error:  # whatever a damaged document or a missing definition causes
            return [_Fault("unreadable", f"{type(error).__name__}: {error}")]

    async def _alive(self, found: Aggregate, body: dict[str, Any]) -> list[_Fault]:
        """Whether somebody will move an open execution on."""
        state, now = found.state, self.engine.clock.now()
        paused = state.status is ExecutionStatus.PAUSED
        if "sweepAt" not in body:
            resting = paused and next_wake(state) is None
            return [] if resting else [_Fault("unwatched", "open, and nothing looks at it")]
        latest = max(next_wake(state) or 0, now + self.engine.tunables.max_silence_ms)
        if body["sweepAt"] > latest + LATE_MS:
            return [_Fault("unwatched", "the sweeper would look after it far too late")]
        if paused:
            return []
        idle = await self._idle(found)
        pending = state.status is ExecutionStatus.PENDING
        if self.lost and (idle or pending):
            return [_Fault("lost", f"{idle} in flight that nobody works on" if idle else "")]
        self._count["waiting"] += idle if self._first else 0
        return []

    async def _idle(self, found: Aggregate) -> int:
        """How much is in flight that nobody works on and no breaker holds up."""
        tasks = found.workflow.tasks
        keys = {
            documents.task_id(tasks[task].id, item): (task, item)
            for task, item in in_flight(found.state)
        }
        docs = await facts.read_tasks(self.engine, found.partition, keys)
        idle = [
            place for id, place in keys.items() if facts.nobody_works(self.engine, docs.get(id))
        ]
        return len(await without_postponed(self.engine, found, idle, docs)) if idle else 0

    async def _shown(self, docs: Iterable[Document]) -> dict[str, _Fault]:
        """Executions among `docs` whose row is missing, behind or different, by document id."""
        tenants: dict[str, list[Document]] = {}
        for doc in docs:
            if doc.body.get("type") == "execution":
                tenants.setdefault(str(doc.body["tenantId"]), []).append(doc)
        result: dict[str, _Fault] = {}
        for tenant, some in tenants.items():
            ids = [doc.id for doc in some]
            rows = await patiently(
                self.engine, self.engine.store.read_many, VISIBILITY, (tenant,), ids
            )
            for doc in some:
                try:
                    wanted = project.row_of(doc.body)
                except Exception:  # an execution that cannot be read is told of as such
                    result[doc.id] = _Fault("unreadable", "cannot be shown in lists")
                    continue
                row = rows.get(doc.id)
                if row is None:
                    result[doc.id] = _Fault("row", "is missing")
                elif not project.same(wanted, row.body):
                    result[doc.id] = _Fault("row", f"shows commit {row.body.get('seq')}")
        return result

    async def _row(self, row: Document) -> list[_Fault]:
        """Rows that differ were found beside their execution: here, those without one."""
        tenant = str(row.body["tenantId"])
        key = (EXECUTIONS, (tenant, row.id), row.id)
        return [] if await self._again(key) is not None else [_Fault("orphan")]

    async def _gap(self, doc: Document, fault: _Fault) -> None:
        self._kinds[fault.kind] += 1
        mended = self.mend and await self._mended(doc, fault)
        self._count["mended"] += mended
        if len(self._found) < SHOWN:
            body = doc.body
            gap = Gap(
                kind=fault.kind,
                tenant=str(body["tenantId"]),
                execution=str(body.get("executionId", doc.id)),
                document=doc.id,
                detail=fault.detail,
                mended=mended,
            )
            self._found.append(gap)

    async def _mended(self, doc: Document, fault: _Fault) -> bool:
        """Whether it was written, or sent for."""
        body = doc.body
        match fault.kind:
            case "row":
                done = await project.project_documents(self.engine, [body], exact=True)
                if done.written:
                    return True
                row = await self._again((VISIBILITY, (str(body["tenantId"]),), doc.id))
                return row is not None and await rebuild.correct(self.engine, row) == "written"
            case "orphan":
                return await rebuild.correct(self.engine, doc) == "removed"
            case "overdue" if body["type"] == "outbox":
                return bool(await relay.relay_documents(self.engine, [body], repair=True))
            case "overdue" | "unwatched" | "lost":
                try:
                    await self.engine.transport.send([sweep.call_for(self.engine, body)])
                except TransportError:
                    return False
                return True
            case _:
                return False
