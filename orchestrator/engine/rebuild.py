"""Makes the read model anew from the executions themselves, while the platform runs or without it.

The model may be lost, stay behind (see `project`), or be ahead after the executions were restored
from a backup. Nothing else reads it to decide anything, so it can always be made again; without
this, a lost or wrong row would stay so until its execution changes, which an ended one never does.

Two passes over change feeds, both from the beginning. The first projects every execution. The
second visits every row, and asks the execution itself where the first pass has not seen it, or only
an older version: the row is then newer and right, or one that no execution stands for any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

from orchestrator.domain.jsontypes import Json
from orchestrator.domain.topology import EXECUTIONS, VISIBILITY
from orchestrator.engine import project
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views import RebuildReport
from orchestrator.ports import Document, NotFound, PreconditionFailed

log = logging.getLogger(__name__)

PAGE: Final = 500
SHORT_PAGES: Final = 100
"""While the platform works, the feed never ends: so many pages in a row that are not full say that
we have caught up. More than one, because a store may give a short page per range of keys. What
comes later is the projection's."""

Version = tuple[int, int]


async def visibility(engine: Engine) -> RebuildReport:
    """Rebuild container `visibility`. Safe beside the projection and beside another rebuild, and
    idempotent: a second run writes nothing. Keeps some 200 bytes per execution in memory.

    Raises `StoreError` if the executions cannot be read; what was done until then is right."""
    seen, report = await _project_all(engine)
    written = removed = 0
    async for rows in pages(engine, VISIBILITY):
        doubtful = [
            row
            for row in rows
            if (known := seen.get(_key(row))) is None or known < project.version(row.body)
        ]
        outcomes = await asyncio.gather(*(correct(engine, row) for row in doubtful))
        written += outcomes.count("written")
        removed += outcomes.count("removed")
    report = report.model_copy(update={"written": report.written + written, "removed": removed})
    log.info("read model rebuilt", extra={"action": "rebuild.done", **report.model_dump()})
    return report


async def _project_all(engine: Engine) -> tuple[dict[int, Version], RebuildReport]:
    seen: dict[int, Version] = {}
    total = RebuildReport()
    async for docs in pages(engine, EXECUTIONS):
        executions = [doc for doc in docs if doc.body.get("type") == "execution"]
        done = await project.project_documents(engine, [doc.body for doc in executions], exact=True)
        total = RebuildReport(
            executions=total.executions + len(executions),
            written=total.written + done.written,
            poisoned=total.poisoned + done.poisoned,
            failed=total.failed + done.failed,
        )
        for doc in executions:
            seen[_key(doc)] = _version(doc)
    return seen, total


def _key(doc: Document) -> int:
    """Of an execution and of its row. A hash, for the memory: two that share one (in 10 million,
    one chance in 400,000) hide at worst one row that should have been removed."""
    return hash((doc.body.get("tenantId"), doc.id))


def _version(doc: Document) -> Version:
    state: Json = doc.body.get("state")
    return project.version(
        {**doc.body, "seq": state.get("seq") if isinstance(state, dict) else None}
    )


async def correct(engine: Engine, row: Document) -> str:
    """Ask the execution about a row that may be wrong, and mend it: "written", "removed", or "" for
    a row that is right, or that somebody else changed just now."""
    tenant, id = str(row.body["tenantId"]), row.id
    try:
        doc = await patiently(engine, engine.store.read, EXECUTIONS, (tenant, id), id)
    except NotFound:
        doc = None
    try:
        if doc is None:
            await patiently(
                engine, engine.store.delete, VISIBILITY, (tenant,), id, if_match=row.etag
            )
            return "removed"
        if _version(doc) < project.version(row.body):
            try:
                truth = project.row_of(doc.body)
            except Exception:  # poisoned: the first pass has told; the row is the best there is
                return ""
            await patiently(
                engine, engine.store.replace, VISIBILITY, (tenant,), truth, if_match=row.etag
            )
            return "written"
    except (PreconditionFailed, NotFound, Unclear):
        pass  # somebody wrote or removed it meanwhile, and knew better
    return ""


async def pages(engine: Engine, container: str) -> AsyncIterator[list[Document]]:
    """The container's documents, each at least once, in its latest version."""
    cursor: str | None = None
    short = 0
    while short < SHORT_PAGES:
        page = await patiently(engine, engine.store.changes, container, cursor, PAGE)
        if not page.documents:
            return
        yield page.documents
        cursor = page.cursor
        short = 0 if len(page.documents) == PAGE else short + 1
