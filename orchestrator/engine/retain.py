"""Retention: what has ended long ago is archived and removed, archives after a longer time.

Found by the read model, decided by the execution itself. In this order, so that a process may die
anywhere and the next pass goes on, and several passes at once do no harm:

1. The archive's text is written (`archive.write`); nothing refers to it yet.
2. The execution's document is marked (`archiving`) under its ETag. Whoever took the execution up
   again meanwhile wins, and nothing is removed; from here on nobody can.
3. The archive is put into the list, then all other documents are removed, the execution's last,
   then its row in the read model. What Durable Functions keeps of its instances goes before the
   documents that name them; archives do not have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from typing import Any, Final

from orchestrator.domain.status import TERMINAL_EXECUTION, ExecutionStatus
from orchestrator.domain.topology import CATALOG, EXECUTIONS, VISIBILITY
from orchestrator.engine import archive, audit, documents, instances, restoring
from orchestrator.engine.core import Engine
from orchestrator.engine.documents import NewerSchema
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views import View
from orchestrator.ports import (
    Conflict,
    Document,
    NotFound,
    PreconditionFailed,
    Query,
    StoreError,
    Where,
)

log = logging.getLogger(__name__)

PAGE: Final = 100
MAX_PASS: Final = 2_000
"""Executions of one end that one pass removes; the next one goes on."""
AT_ONCE: Final = 4
DELETES_AT_ONCE: Final = 20
BY: Final = "retention"


class RetentionReport(View):
    """What one pass did."""

    archived: int = 0
    removed: int = 0
    """Without an archive."""
    expired: int = 0
    """Archives."""
    failed: int = 0


async def run(engine: Engine) -> RetentionReport:
    """One pass. Never raises for one execution: it is counted, logged and tried again by the next
    pass. Raises what the store raises if the list itself cannot be read."""
    done: Counter[str] = Counter()
    by_tenant: dict[tuple[str, str], int] = {}
    rules, now = engine.tunables.retention, engine.clock.now()
    for status in sorted(TERMINAL_EXECUTION):
        keep = rules.keep_ms(status)
        if keep is not None:
            await _ended(engine, status, now - keep, done, by_tenant)
    if rules.archive_ms is not None:
        await _archives(engine, now - rules.archive_ms, done, by_tenant)
    for (tenant, outcome), count in by_tenant.items():
        await audit.record(
            engine,
            tenant,
            action=f"retention.{outcome}",
            execution="",
            resource="executions:ended",
            by=BY,
            details={"count": count},
        )
    for outcome, count in done.items():
        engine.metrics.count("weft_retention_total", outcome, by=count)
    return RetentionReport(**done)


async def _ended(
    engine: Engine,
    status: ExecutionStatus,
    until: int,
    done: Counter[str],
    by_tenant: dict[tuple[str, str], int],
) -> None:
    after: tuple[str | int, str] | None = None
    for _ in range(MAX_PASS // PAGE):
        query = Query(
            where=(
                Where("type", "=", "execution"),
                Where("status", "=", status.value),
                Where("endedAt", "<=", until),
            ),
            order_by="createdAt",
            after=after,
            limit=PAGE,
        )
        rows = await patiently(engine, engine.store.query, VISIBILITY, query)
        for at in range(0, len(rows), AT_ONCE):
            some = rows[at : at + AT_ONCE]
            outcomes = await asyncio.gather(*(_one(engine, row, status, until) for row in some))
            for row, outcome in zip(some, outcomes, strict=True):
                if outcome is not None:
                    done[outcome] += 1
                    key = (row.body["tenantId"], outcome)
                    if outcome != "failed":
                        by_tenant[key] = by_tenant.get(key, 0) + 1
        if len(rows) < PAGE:
            return
        after = (rows[-1].body["createdAt"], rows[-1].id)


async def _one(engine: Engine, row: Document, status: ExecutionStatus, until: int) -> str | None:
    """What became of one execution; None: it stays, or somebody else was at it."""
    partition = (str(row.body["tenantId"]), row.id)
    try:
        return await remove(engine, partition, status, until, listed=row.body["createdAt"])
    except NewerSchema:
        return None  # newer code will
    except (StoreError, Unclear, OSError, instances.Away) as error:
        log.warning(
            "ended execution not removed, the next pass tries again",
            extra={
                "action": "retention.failed",
                "execution": row.id,
                "error": type(error).__name__,
            },
        )
        return "failed"


async def remove(
    engine: Engine,
    partition: tuple[str, str],
    status: ExecutionStatus,
    until: int,
    *,
    listed: int | None = None,
) -> str | None:
    """Archive and remove an execution that ended like this by `until` (epoch ms): `archived`, or
    `removed` where nothing is archived. None: it did not, or somebody else was at it. `listed`:
    when it was created, as its row says. Raises what the stores raise; the same again goes on."""
    id = partition[1]
    found = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, [id])
    if id not in found:
        await _forget(engine, partition, listed)
        return None
    doc = found[id].body
    documents.check_version(doc)
    if engine.clock.now() - doc.get("restoring", 0) < restoring.TAKES_MS:
        return None
    if "archiving" not in doc:
        ended = doc["state"].get("endedAt")
        if doc["status"] != status.value or ended is None:
            return None
        if max(ended, doc.get("restoredAt", 0)) > until:
            return None
        marked = await _mark(engine, found[id], partition, ended)
        if marked is None:
            return None
        doc = marked
    mark = doc["archiving"]
    if mark["ref"] is not None:
        await archive.note(engine, doc, doc["state"]["endedAt"])
    await _delete_all(engine, partition)
    await _delete(engine, EXECUTIONS, partition, id)
    if mark["ref"] is None:
        await archive.remove_payloads(engine, partition)
    engine.aggregates.drop(partition)
    await _forget(engine, partition, doc["createdAt"])
    return "removed" if mark["ref"] is None else "archived"


async def _mark(
    engine: Engine, found: Document, partition: tuple[str, str], ended: int
) -> dict[str, Any] | None:
    """The document with the mark; None: somebody changed it meanwhile."""
    mark: dict[str, Any] = {"at": engine.clock.now(), "ref": None}
    half_erased = "erasing" in found.body and "erasedAt" not in found.body
    if engine.tunables.retention.archive and not half_erased:
        id = archive.archive_id(partition[1], ended)
        written = await archive.write(engine, partition, id)
        mark |= {
            "id": id,
            "ref": written.ref,
            "bytes": written.bytes,
            "documents": written.documents,
        }
    doc = {**found.body, "archiving": mark}
    try:
        await patiently(
            engine, engine.store.replace, EXECUTIONS, partition, doc, if_match=found.etag
        )
    except (PreconditionFailed, NotFound, Conflict, Unclear):
        return None  # also if it was our own, its answer lost: the next pass sees the mark
    engine.aggregates.drop(partition)
    return doc


async def _delete_all(engine: Engine, partition: tuple[str, str]) -> None:
    """Every document but the execution's own."""
    while True:
        query = Query(partition=partition, limit=PAGE)
        found = await patiently(engine, engine.store.query, EXECUTIONS, query)
        if engine.orchestrations is not None:  # before the documents that name them
            for doc in found:
                await instances.purge(engine, doc.body)
        ids = [doc.id for doc in found if doc.id != partition[1]]
        if not ids:
            return
        for at in range(0, len(ids), DELETES_AT_ONCE):
            some = ids[at : at + DELETES_AT_ONCE]
            await asyncio.gather(*(_delete(engine, EXECUTIONS, partition, id) for id in some))


async def _forget(engine: Engine, partition: tuple[str, str], created: int | None) -> None:
    """Remove the row of the execution that was created then: its key may be in use again."""
    tenant, id = partition
    row = (await patiently(engine, engine.store.read_many, VISIBILITY, (tenant,), [id])).get(id)
    if row is None or row.body["createdAt"] != created:
        return
    with contextlib.suppress(NotFound, PreconditionFailed, Unclear):  # the next pass sees it
        await patiently(engine, engine.store.delete, VISIBILITY, (tenant,), id, if_match=row.etag)


async def _delete(engine: Engine, container: str, partition: tuple[str, ...], id: str) -> None:
    try:
        await patiently(engine, engine.store.delete, container, partition, id)
    except NotFound:
        pass
    except Unclear as error:
        if not isinstance(error.error, NotFound):
            raise


async def _archives(
    engine: Engine, until: int, done: Counter[str], by_tenant: dict[tuple[str, str], int]
) -> None:
    after: tuple[str | int, str] | None = None
    for _ in range(MAX_PASS // PAGE):
        query = Query(
            where=(Where("type", "=", archive.TYPE), Where("archivedAt", "<=", until)),
            order_by="createdAt",
            after=after,
            limit=PAGE,
        )
        found = await patiently(engine, engine.store.query, CATALOG, query)
        for doc in found:
            tenant = str(doc.body["tenantId"])
            await archive.remove(engine, tenant, doc.body)
            done["expired"] += 1
            key = (tenant, "expired")
            by_tenant[key] = by_tenant.get(key, 0) + 1
        if len(found) < PAGE:
            return
        after = (found[-1].body["createdAt"], found[-1].id)
