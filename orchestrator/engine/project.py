"""Projects executions into container `visibility`: the read model behind lists and searches.

An execution's documents share a logical partition of their own, so a list of executions would ask
every partition that the tenant has, and competes there with the work itself. Here all rows of a
tenant lie together, small and indexed. One row per execution, its id the execution's:

    type, tenantId, v                 as everywhere; type is `execution`
    workflow, version, status, createdAt, startedAt?, endedAt?, startedBy, parent?, key?,
    priority?
    tags, tag:NAME                    as submitted; each tag again as a property to filter by
    progress                          number of tasks by state, zeros left out
    seq                               of the execution's last commit that the row knows

The change feed shows latest versions only, may show one again, and may show an older one after a
newer (a lease that moved, a rebuild beside the feed). So nothing is counted: a row is written only
over one with a lower `seq`, under its ETag. What the feed could not bring here, because the store
refused for minutes or the function died, stays behind until its execution changes again, or until
`weft rebuild visibility`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.domain import codec
from orchestrator.domain.priority import Priority
from orchestrator.domain.topology import MAX_BATCH_OPERATIONS, SCHEMA_VERSION, VISIBILITY
from orchestrator.engine import documents, shapes
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views import ExecutionSummary, Progress
from orchestrator.ports import (
    BadDocument,
    Conflict,
    Create,
    Document,
    NotFound,
    Operation,
    PreconditionFailed,
    Replace,
    StoreError,
    TooLarge,
)

log = logging.getLogger(__name__)

ROUNDS: Final = 10
"""How often one row is tried. Each round that the store refuses lasts `throttle_budget_ms`: five
minutes in all, because nobody waits here, and a row given up on stays wrong."""

Row = dict[str, Any]


@dataclass(slots=True)
class Projected:
    """What became of a batch: execution documents by outcome."""

    written: int = 0
    known: int = 0  # the row had this version, or a later one
    poisoned: int = 0  # could not be read, or not be kept
    failed: int = 0  # the store refused until patience was used up


async def project_documents(
    engine: Engine, docs: Sequence[Mapping[str, Any]], *, exact: bool = False
) -> Projected:
    """Bring the rows of all executions among `docs` up to their versions; other documents are
    passed over. Never raises: a document that cannot be read or kept is logged and counted, and
    spoils none of its neighbours.

    `exact` (the rebuild): also rewrite rows of the same version whose content differs.
    """
    result = Projected()
    tenants: dict[str, dict[str, Row]] = {}
    for doc in docs:
        if doc.get("type") != "execution":
            continue
        try:
            row = row_of(doc)
        except (
            Exception
        ) as error:  # whatever a corrupt document causes: the next one is not at fault
            _poisoned(engine, result, doc.get("id"), error)
            continue
        rows = tenants.setdefault(row["tenantId"], {})
        before = rows.get(row["id"])
        if before is None or version(before) < version(row):
            rows[row["id"]] = row
        if before is not None:
            result.known += 1
    await asyncio.gather(
        *(
            _project_tenant(engine, tenant, list(rows.values()), result, exact)
            for tenant, rows in tenants.items()
        )
    )
    engine.metrics.count("weft_projected_total", by=result.written)
    return result


def row_of(doc: Mapping[str, Any]) -> Row:
    """The row of an execution document. Raises whatever a corrupt document causes."""
    documents.check_version(doc)
    stored = {key: value for key, value in doc["state"].items() if key != "maps"}
    state = codec.state_from_doc(stored)  # progress counts maps, not their items
    row: Row = {
        "id": _text(doc, "executionId"),
        "type": "execution",
        "tenantId": _text(doc, "tenantId"),
        "v": SCHEMA_VERSION,
        "workflow": _text(doc, "workflow"),
        "version": int(doc["version"]),
        "status": state.status.value,
        "createdAt": int(doc["createdAt"]),
        "tags": doc["tags"],
        "startedBy": doc["startedBy"],
        "progress": shapes.progress(state).model_dump(by_alias=True, exclude_defaults=True),
        "seq": int(state.seq),
        **{documents.tag_field(name): value for name, value in doc["tags"].items()},
    }
    if state.started_at is not None:
        row["startedAt"] = state.started_at
    if state.ended_at is not None:
        row["endedAt"] = state.ended_at
    for optional in ("parent", "key", "priority"):
        if optional in doc:
            row[optional] = doc[optional]
    return row


def summary_of(row: Mapping[str, Any]) -> ExecutionSummary:
    """A row as the API shows it. Raises KeyError or ValueError for a corrupt row."""
    return ExecutionSummary(
        id=row["id"],
        workflow=row["workflow"],
        version=row["version"],
        status=row["status"],
        created_at=row["createdAt"],
        started_at=row.get("startedAt"),
        ended_at=row.get("endedAt"),
        tags=row["tags"],
        started_by=row["startedBy"],
        parent=row.get("parent"),
        priority=Priority.of(row),
        progress=Progress.model_validate(row["progress"]),
    )


def version(row: Mapping[str, Any]) -> tuple[int, int]:
    """What is compared: a greater one is newer. An idempotency key gives the same id again when
    the execution before has been deleted; the new one begins at `seq` 0, but later. A row that
    cannot be read is older than all."""
    try:
        return int(row["createdAt"]), int(row["seq"])
    except (KeyError, TypeError, ValueError):
        return -1, -1


def _text(doc: Mapping[str, Any], name: str) -> str:
    value = doc[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is not text")
    return value


async def _project_tenant(
    engine: Engine, tenant: str, rows: list[Row], result: Projected, exact: bool
) -> None:
    for start in range(0, len(rows), MAX_BATCH_OPERATIONS):
        some = rows[start : start + MAX_BATCH_OPERATIONS]
        found: dict[str, Document] = {}
        try:
            found = await _read(engine, tenant, [row["id"] for row in some])
            due = [row for row in some if _supersedes(row, found.get(row["id"]), exact)]
            result.known += len(some) - len(due)
            if len(due) > 1:
                operations = [_operation(row, found.get(row["id"])) for row in due]
                await patiently(engine, engine.store.batch, VISIBILITY, (tenant,), operations)
                result.written += len(due)
                continue
        except (StoreError, Unclear):
            due = [row for row in some if _supersedes(row, found.get(row["id"]), exact)]
        # One by one: a row of a batch that somebody else wrote just now must not hold up the rest.
        await asyncio.gather(
            *(_put(engine, row, found.get(row["id"]), result, exact) for row in due)
        )


async def _put(
    engine: Engine, row: Row, found: Document | None, result: Projected, exact: bool
) -> None:
    """Write one row unless it is known by now; read it again after each conflict."""
    tenant, last = row["tenantId"], "Conflict"
    for attempt in range(ROUNDS):
        try:
            if attempt:
                found = (await _read(engine, tenant, [row["id"]])).get(row["id"])
            if not _supersedes(row, found, exact):
                result.known += 1
                return
            if found is None:
                await patiently(engine, engine.store.create, VISIBILITY, (tenant,), row)
            else:
                await patiently(
                    engine, engine.store.replace, VISIBILITY, (tenant,), row, if_match=found.etag
                )
            result.written += 1
            return
        except (BadDocument, TooLarge) as error:
            _poisoned(engine, result, row["id"], error)
            return
        except (Conflict, PreconditionFailed, NotFound, Unclear):
            pass  # somebody else wrote it, or an earlier try of ours did and its answer was lost
        except StoreError as error:
            last = type(error).__name__
    result.failed += 1
    engine.metrics.count("weft_projection_failures_total")
    log.error(
        "row not written; it stays behind until its execution changes, or a rebuild",
        extra={"action": "project.failed", "execution": row["id"], "error": last},
    )


async def _read(engine: Engine, tenant: str, ids: list[str]) -> dict[str, Document]:
    return await patiently(engine, engine.store.read_many, VISIBILITY, (tenant,), ids)


def _supersedes(row: Row, found: Document | None, exact: bool) -> bool:
    if found is None:
        return True
    ours, theirs = version(row), version(found.body)
    return ours > theirs or (exact and ours == theirs and not same(row, found.body))


def same(row: Row, stored: Mapping[str, Any]) -> bool:
    """Whether a stored row says what `row` says. A store's own properties begin with `_`."""
    return row == {key: value for key, value in stored.items() if not key.startswith("_")}


def _operation(row: Row, found: Document | None) -> Operation:
    return Create(row) if found is None else Replace(row, found.etag)


def _poisoned(engine: Engine, result: Projected, id: object, error: Exception) -> None:
    result.poisoned += 1
    engine.metrics.count("weft_projection_poisoned_total")
    log.error(
        "execution document cannot be projected, passed over",
        extra={"action": "project.poisoned", "execution": id, "error": type(error).__name__},
    )
