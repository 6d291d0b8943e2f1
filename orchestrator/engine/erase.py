"""Erase what users put into an ended execution, and keep its structure.

In every document of its partition payloads and error messages are replaced (`domain/erasure.py`),
then the payload store's copies are removed. History and state are erased alike, so the one still
folds to the other.

The execution is marked (`erasing`) before anything is erased: from then on nobody can take it up
again. If an operator does so at that very moment, the ETag decides: either the operator loses, or
the erasure is refused. Every step may be repeated, so if a process dies, the same request again
finishes the work; `erasedAt` says that all of it was done.
"""

from __future__ import annotations

from typing import Any

from orchestrator.domain.erasure import scrub
from orchestrator.domain.errors import ConflictError, InvalidError, UnavailableError
from orchestrator.domain.status import TERMINAL_EXECUTION, ExecutionStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import audit, documents, inspect, instances
from orchestrator.engine.control import MAX_REASON_CHARS
from orchestrator.engine.core import Engine
from orchestrator.engine.documents import NewerSchema
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views import ExecutionView
from orchestrator.ports import Conflict, Document, NotFound, PreconditionFailed, Query

PAGE = 50
ROUNDS = 20
"""How often a document that somebody else changes meanwhile is tried."""


async def erase(
    engine: Engine, tenant: str, execution: str, *, by: str, reason: str = ""
) -> ExecutionView:
    """Erase it, durably; the execution after it. Idempotent.

    Raises `NotFoundError`, `ConflictError` (it has not ended), `InvalidError` (reason),
    `UnavailableError`; what the stores raise leaves the rest to the same request again."""
    partition = (tenant, execution)
    if len(reason) > MAX_REASON_CHARS:
        raise InvalidError(f"the reason may have {MAX_REASON_CHARS} characters", code="REASON")
    marked = await _mark(engine, partition, "erasing", by)
    engine.aggregates.drop(partition)
    after = None
    while True:
        query = Query(partition=partition, after=after, limit=PAGE)
        found = await patiently(engine, engine.store.query, EXECUTIONS, query)
        for doc in found:
            await _purge(engine, doc.body)
            await _scrub(engine, partition, doc)
        if len(found) < PAGE:
            break
        after = (found[-1].id, found[-1].id)
    await patiently(engine, engine.payloads.delete, tenant, execution)
    await _mark(engine, partition, "erasedAt", by)
    engine.metrics.count("weft_operator_actions_total", "erase")
    await audit.record(
        engine,
        tenant,
        action="erase",
        execution=execution,
        by=by,
        reason=reason,
        details={"before": marked["status"]},
        id=f"erase:{execution}",
    )
    return await inspect.execution(engine, tenant, execution)


def refuse_if_erased(header: dict[str, Any]) -> None:
    """Raises `ConflictError` (ERASED, ARCHIVED): what it would need is not there any more."""
    refuse_if_archived(header)
    if "erasing" in header:
        raise ConflictError(
            "the execution's data was erased; it can be looked at, but not run again",
            code="ERASED",
        )


def refuse_if_archived(header: dict[str, Any]) -> None:
    """Raises `ConflictError` (ARCHIVED)."""
    if "archiving" in header:
        raise ConflictError(
            "the execution is being archived, because it ended long ago; restore it from the "
            "archive first",
            code="ARCHIVED",
        )


async def _mark(engine: Engine, partition: tuple[str, str], mark: str, by: str) -> dict[str, Any]:
    """Set `mark` to now in the execution's document, unless it is set."""
    for _ in range(ROUNDS):
        try:
            found = await patiently(engine, engine.store.read, EXECUTIONS, partition, partition[1])
        except (NotFound, Unclear):
            raise inspect.unknown(partition[1]) from None
        body = found.body
        _check_version(body)
        if ExecutionStatus(body["status"]) not in TERMINAL_EXECUTION:
            raise ConflictError(
                f"the execution is {body['status']}; it can be erased when it has ended",
                code="CANNOT_ERASE",
            )
        if mark in body:
            return body
        refuse_if_archived(body)
        if await _replace(engine, partition, found, {**body, mark: engine.clock.now()}):
            return body
    raise UnavailableError("the execution changes too fast; send the same request again")


async def _purge(engine: Engine, body: dict[str, Any]) -> None:
    try:
        await instances.purge(engine, body)
    except instances.Away as away:
        raise UnavailableError(
            f"the history of an orchestration cannot be erased now ({away}); send the same request "
            "again"
        ) from away


async def _scrub(engine: Engine, partition: tuple[str, str], doc: Document | None) -> None:
    for _ in range(ROUNDS):
        if doc is None:
            return
        _check_version(doc.body)
        clean = scrub(doc.body)
        if clean == doc.body or await _replace(engine, partition, doc, clean):
            return
        ids = [doc.id]
        found = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, ids)
        doc = found.get(ids[0])
    raise UnavailableError("the execution changes too fast; send the same request again")


async def _replace(
    engine: Engine, partition: tuple[str, str], found: Document, body: dict[str, Any]
) -> bool:
    """Whether it was written; else it has changed, or is gone, or the answer was lost."""
    try:
        await patiently(
            engine, engine.store.replace, EXECUTIONS, partition, body, if_match=found.etag
        )
    except (PreconditionFailed, NotFound, Conflict, Unclear):
        return False
    return True


def _check_version(body: dict[str, Any]) -> None:
    try:
        documents.check_version(body)
    except NewerSchema as error:
        raise UnavailableError("newer code wrote this execution; let that erase it") from error
