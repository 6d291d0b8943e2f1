"""An archived execution is put back as it was.

The execution's own document comes first, with the mark of `retain` and `restoring`: from then on a
start under its idempotency key finds it, and nobody takes it up. Then come the other documents,
then the marks go, then the archive. If a process dies in between, the same request again finishes
the work; if none comes, a pass of the retention later than `TAKES_MS` removes what is there.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from orchestrator.domain.errors import ConflictError, NotFoundError, UnavailableError
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import archive, audit, inspect
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views import ExecutionView
from orchestrator.ports import Conflict, Document, NotFound, PreconditionFailed

TAKES_MS: Final = 3_600_000
"""So long a pass leaves alone what is being restored; far above any request's time."""
WRITES_AT_ONCE: Final = 20
ROUNDS: Final = 20
_MARKS: Final = ("archiving", "restoring")


async def restore(
    engine: Engine, tenant: str, id: str, *, by: str, reason: str = ""
) -> ExecutionView:
    """Put the execution back as it was, and forget the archive; its retention begins again.
    Idempotent: what was restored is shown.

    Raises `NotFoundError`, `ConflictError` (its id is in use again; it is just being archived),
    `UnavailableError`."""
    try:
        found = await archive.stored(engine, tenant, id)
    except NotFoundError:
        if (view := await _restored(engine, tenant, id)) is not None:
            return view
        raise
    partition = (tenant, str(found["execution"]))
    docs = list(archive.unpacked(await archive.content(engine, found), partition))
    await _begin(engine, partition, found, docs[-1])
    for at in range(0, len(docs) - 1, WRITES_AT_ONCE):
        some = docs[at : min(at + WRITES_AT_ONCE, len(docs) - 1)]
        await asyncio.gather(*(_create(engine, partition, doc) for doc in some))
    await _finish(engine, partition)
    engine.aggregates.drop(partition)
    await archive.remove(engine, tenant, found, with_payloads=False)
    engine.metrics.count("weft_retention_total", "restored")
    await audit.record(
        engine,
        tenant,
        action="archive.restore",
        execution=partition[1],
        by=by,
        reason=reason,
        details={"archive": id},
    )
    return await inspect.execution(engine, tenant, partition[1])


async def _begin(
    engine: Engine, partition: tuple[str, str], found: dict[str, Any], own: dict[str, Any]
) -> None:
    """Take the id. Raises `ConflictError`, `UnavailableError`."""
    mark = {
        "at": found["archivedAt"],
        "id": found["id"].removeprefix(archive.PREFIX),
        "ref": found["ref"],
        "bytes": found["bytes"],
        "documents": found["documents"],
    }
    for _ in range(ROUNDS):
        there = await _own(engine, partition)
        body = {**own, "archiving": mark, "restoring": engine.clock.now()}
        try:
            if there is None:
                await patiently(engine, engine.store.create, EXECUTIONS, partition, body)
                return
            _check(there.body, partition[1], found["endedAt"])
            if "archiving" not in there.body:
                return  # an earlier try put it there
            await patiently(
                engine, engine.store.replace, EXECUTIONS, partition, body, if_match=there.etag
            )
            return
        except (Conflict, PreconditionFailed, NotFound, Unclear):
            continue  # somebody else, or our own write with its answer lost
    raise _busy()


def _check(there: dict[str, Any], execution: str, ended: int) -> None:
    """Raises `ConflictError` unless this is a document that an earlier try put there."""
    if there["state"].get("endedAt") != ended:
        raise ConflictError(
            f"there is an execution {execution} (its idempotency key was used again); remove that "
            "one first, or read the archive",
            code="EXECUTION_EXISTS",
        )
    if "archiving" in there and "restoring" not in there:
        raise ConflictError(
            "the execution is still being archived; send the same request again in some minutes",
            code="ARCHIVED",
        )


async def _finish(engine: Engine, partition: tuple[str, str]) -> None:
    """Take the marks away: it is whole. Raises `UnavailableError`."""
    for _ in range(ROUNDS):
        there = await _own(engine, partition)
        if there is None:
            break  # so slow that a pass has removed it again
        if "restoring" not in there.body:
            return  # somebody who restored it at the same time
        body = {name: value for name, value in there.body.items() if name not in _MARKS}
        body["restoredAt"] = engine.clock.now()
        try:
            await patiently(
                engine, engine.store.replace, EXECUTIONS, partition, body, if_match=there.etag
            )
            return
        except (Conflict, PreconditionFailed, NotFound, Unclear):
            continue
    raise _busy()


def _busy() -> UnavailableError:
    return UnavailableError("the execution cannot be restored now; send the same request again")


async def _own(engine: Engine, partition: tuple[str, str]) -> Document | None:
    id = partition[1]
    return (await patiently(engine, engine.store.read_many, EXECUTIONS, partition, [id])).get(id)


async def _create(engine: Engine, partition: tuple[str, str], doc: dict[str, Any]) -> None:
    with contextlib.suppress(Conflict, Unclear):  # an earlier try wrote it
        await patiently(engine, engine.store.create, EXECUTIONS, partition, doc)


async def _restored(engine: Engine, tenant: str, id: str) -> ExecutionView | None:
    """The execution of an archive that was restored before."""
    execution, _, ended = id.rpartition("-")
    if not (execution and ended.isdecimal()):
        return None
    there = await _own(engine, (tenant, execution))
    if there is None or "restoredAt" not in there.body:
        return None
    if str(there.body["state"].get("endedAt")) != ended:
        return None
    return await inspect.execution(engine, tenant, execution)
