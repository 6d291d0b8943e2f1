"""Archives of ended executions: one compressed NDJSON text each, listed and restorable.

Container `catalog`, partition (tenantId):

    archived:{execution}-{ended}    archived    what lists show, and a reference to the text

The text is in the payload store, gzip. Its first line says what it is; each further line is a
document of the execution as it was stored, the execution's own last. Payloads that were too large
for a document stay where they are: the archive refers to them as the documents did.

An execution is removed by `retain` and put back by `restoring`; this module only reads, writes and
removes archives. The id contains the time of the end, because an idempotency key gives the same
execution id again once the first execution is gone.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from orchestrator.domain.errors import NotFoundError, UnavailableError
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.topology import CATALOG, EXECUTIONS, SCHEMA_VERSION
from orchestrator.engine import audit
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views_archive import ArchiveView
from orchestrator.ports import Document, NotFound, PayloadNotFound, Query, Where

TYPE: Final = "archived"
PREFIX: Final = "archived:"
GZIP: Final = 31  # zlib's number for a gzip header
PAGE: Final = 50

After = tuple[str | int, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFilter:
    """Which archives; all that is given must hold."""

    execution: str | None = None
    workflow: str | None = None
    status: ExecutionStatus | None = None

    def where(self) -> tuple[Where, ...]:
        """As conditions of a query."""
        given = (
            ("execution", self.execution),
            ("workflow", self.workflow),
            ("status", None if self.status is None else self.status.value),
        )
        return tuple(Where(name, "=", value) for name, value in given if value is not None)


@dataclass(frozen=True, slots=True)
class Written:
    """A stored text: where, how large, and of how many documents."""

    ref: str
    bytes: int
    documents: int


def archive_id(execution: str, ended_at: int) -> str:
    """What an archive is called."""
    return f"{execution}-{ended_at}"


def folder(id: str) -> str:
    """Where the payload store keeps the text of an archive."""
    return f"archive:{id}"


async def write(engine: Engine, partition: tuple[str, str], id: str) -> Written:
    """Store the text. Nothing of the execution changes; the same again is harmless."""
    now = engine.clock.now()
    packer = zlib.compressobj(wbits=GZIP)
    first = {"type": "weft-archive", "v": SCHEMA_VERSION, "id": id, "archivedAt": now}
    parts = [packer.compress(orjson.dumps(first) + b"\n")]
    own: bytes | None = None
    count = 0
    after: tuple[str | int, str] | None = None
    while True:
        query = Query(partition=partition, after=after, limit=PAGE)
        found = await patiently(engine, engine.store.query, EXECUTIONS, query)
        for doc in found:
            if doc.body["type"] == "outbox":
                continue  # nothing waits to be sent any more
            count += 1
            line = orjson.dumps(_plain(doc.body)) + b"\n"
            if doc.id == partition[1]:
                own = line
            else:
                parts.append(packer.compress(line))
        if len(found) < PAGE:
            break
        after = (found[-1].id, found[-1].id)
    parts += [packer.compress(own or b""), packer.flush()]
    data = b"".join(parts)
    ref = await patiently(engine, engine.payloads.put, partition[0], folder(id), "archive", data)
    return Written(ref, len(data), count)


async def note(engine: Engine, doc: dict[str, Any], ended_at: int) -> None:
    """Put an execution that has the mark of `retain` into the list. Idempotent."""
    tenant, mark = doc["tenantId"], doc["archiving"]
    body = {
        "id": PREFIX + mark["id"],
        "type": TYPE,
        "tenantId": tenant,
        "v": SCHEMA_VERSION,
        "execution": doc["executionId"],
        "workflow": doc["workflow"],
        "version": doc["version"],
        "status": doc["status"],
        "tags": doc["tags"],
        "startedBy": doc["startedBy"],
        "createdAt": doc["createdAt"],
        "endedAt": ended_at,
        "archivedAt": mark["at"],
        "ref": mark["ref"],
        "bytes": mark["bytes"],
        "documents": mark["documents"],
    }
    await patiently(engine, engine.store.upsert, CATALOG, (tenant,), body)


async def page(
    engine: Engine, tenant: str, wanted: ArchiveFilter, *, limit: int, after: After
) -> tuple[list[ArchiveView], After]:
    """A page of the tenant's archives, the latest execution first, and where the next begins."""
    query = Query(
        partition=(tenant,),
        where=(Where("type", "=", TYPE), *wanted.where()),
        order_by="createdAt",
        descending=True,
        after=after,
        limit=limit,
    )
    found = await patiently(engine, engine.store.query, CATALOG, query)
    more = (found[-1].body["createdAt"], found[-1].id) if len(found) == limit else None
    return [_view(engine, doc.body) for doc in found if doc.body["tenantId"] == tenant], more


async def show(engine: Engine, tenant: str, id: str) -> ArchiveView:
    """One archive. Raises `NotFoundError`."""
    return _view(engine, (await _read(engine, tenant, id)).body)


async def text(engine: Engine, tenant: str, id: str) -> bytes:
    """The compressed text. Raises `NotFoundError`, `UnavailableError`: the payload store does not
    have it."""
    return await content(engine, await stored(engine, tenant, id))


async def content(engine: Engine, body: dict[str, Any]) -> bytes:
    """The compressed text of an archive in the list. Raises `UnavailableError`."""
    try:
        return await patiently(engine, engine.payloads.get, body["ref"])
    except (PayloadNotFound, OSError) as error:
        raise UnavailableError("the payload store does not give this archive") from error


def unpacked(data: bytes, partition: tuple[str, str]) -> Iterator[dict[str, Any]]:
    """The documents of a text, the execution's own last. Raises `UnavailableError`."""
    lines = zlib.decompress(data, wbits=GZIP).splitlines()
    if orjson.loads(lines[0])["v"] > SCHEMA_VERSION:
        raise UnavailableError("newer code wrote this archive; let that restore it")
    for line in lines[1:]:
        doc = orjson.loads(line)
        if (doc["tenantId"], doc["executionId"]) == partition:
            yield doc


async def delete(engine: Engine, tenant: str, id: str, *, by: str, reason: str = "") -> None:
    """Remove an archive for good, with the payloads it refers to. Raises `NotFoundError`."""
    found = (await _read(engine, tenant, id)).body
    await remove(engine, tenant, found)
    await audit.record(
        engine,
        tenant,
        action="archive.delete",
        execution=found["execution"],
        by=by,
        reason=reason,
        details={"archive": id},
        id=f"archive.delete:{id}",
    )


async def remove(
    engine: Engine, tenant: str, body: dict[str, Any], *, with_payloads: bool = True
) -> None:
    """The text first, then its place in the list: whoever dies in between does it again."""
    id, execution = body["id"].removeprefix(PREFIX), body["execution"]
    if with_payloads:
        await remove_payloads(engine, (tenant, execution), but=id)
    await patiently(engine, engine.payloads.delete, tenant, folder(id))
    with contextlib.suppress(NotFound, Unclear):  # somebody else did, or we and the answer was lost
        await patiently(engine, engine.store.delete, CATALOG, (tenant,), body["id"])


async def remove_payloads(engine: Engine, partition: tuple[str, str], *, but: str = "") -> None:
    """Those of an execution whose archive (`but`) goes, or that had none. They stay while there is
    an execution of that id, or another archive of it: its key was used again, and they may be its
    own."""
    tenant, execution = partition
    present = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, [execution])
    if present:
        return
    query = Query(
        partition=(tenant,),
        where=(Where("type", "=", TYPE), Where("execution", "=", execution)),
        order_by="createdAt",
        limit=2,
    )
    others = await patiently(engine, engine.store.query, CATALOG, query)
    if all(doc.id == PREFIX + but for doc in others):
        await patiently(engine, engine.payloads.delete, tenant, execution)


def unknown(id: str) -> NotFoundError:
    """There is no such archive."""
    return NotFoundError(
        f"there is no archive {id!r}; see GET /v1/archive (an execution may have several)",
        code="ARCHIVE_NOT_FOUND",
    )


async def stored(engine: Engine, tenant: str, id: str) -> dict[str, Any]:
    """What the list has of it. Raises `NotFoundError`."""
    return (await _read(engine, tenant, id)).body


async def _read(engine: Engine, tenant: str, id: str) -> Document:
    key = PREFIX + id
    found = await patiently(engine, engine.store.read_many, CATALOG, (tenant,), [key])
    if key not in found:
        raise unknown(id)
    return found[key]


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    """Without what the store adds: its own properties begin with `_`."""
    return {name: value for name, value in body.items() if not name.startswith("_")}


def _view(engine: Engine, body: dict[str, Any]) -> ArchiveView:
    keep = engine.tunables.retention.archive_ms
    return ArchiveView(
        id=body["id"].removeprefix(PREFIX),
        execution=body["execution"],
        workflow=body["workflow"],
        version=body["version"],
        status=body["status"],
        created_at=body["createdAt"],
        ended_at=body["endedAt"],
        archived_at=body["archivedAt"],
        expires_at=None if keep is None else body["archivedAt"] + keep,
        tags=body["tags"],
        started_by=body["startedBy"],
        documents=body["documents"],
        bytes=body["bytes"],
    )
