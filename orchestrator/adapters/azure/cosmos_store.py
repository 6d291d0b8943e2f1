"""`DocumentStore` on Azure Cosmos DB, through the official asynchronous SDK.

How the service must be set up is in `cosmos_containers`, what may be stored in `document_rules`,
both checked before anything is sent; `cosmos_client` has the one client per process and what
happens when the service is busy.

Consistency. The account is read with session consistency, and a session is one client: a process
sees its own writes, and may see another process's late. Where that could matter:
- deciding on an old execution or task document: every replace names the ETag that was read, the
  service compares it with the newest version, and the loser of 412 reads again. Create and batch
  compare with the newest version too, so no decision can rest on a stale absence;
- a read that finds nothing yet (an execution started elsewhere a moment ago) or an old status on a
  page: the engine hands such messages back with a delay, and people look again;
- queries and the change feed: the sweeper and the relay act through ETags and repeatable sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson
from azure.core import MatchConditions
from azure.core.credentials_async import AsyncTokenCredential
from azure.cosmos.aio import ContainerProxy

from orchestrator.adapters.azure.cosmos_changes import decode_cursor, encode_cursor
from orchestrator.adapters.azure.cosmos_client import Connection, Sleep, Work
from orchestrator.adapters.azure.cosmos_operations import batch_tuples, key_of, sendable_etag
from orchestrator.adapters.azure.cosmos_queries import to_document
from orchestrator.adapters.azure.cosmos_reading import (
    gather_all,
    pull_changes,
    run_count,
    run_query,
)
from orchestrator.adapters.azure.cosmos_transport import Meter, OnCharge
from orchestrator.adapters.document_rules import (
    check_partition,
    container_spec,
    encode_batch,
    encode_body,
    is_storable_id,
)
from orchestrator.domain.topology import ContainerSpec
from orchestrator.ports import (
    BadCursor,
    ChangePage,
    Delete,
    Document,
    NotFound,
    Operation,
    Partition,
    Query,
)

THROTTLE_BUDGET_MS: Final = 3_000
REQUEST_TIMEOUT_S: Final = 15.0  # a batch may take 5 s in the service
READS_AT_ONCE: Final = 32  # point reads of one `read_many`


class CosmosStore:
    """`DocumentStore` on one database. Call `open` before, and `close` after, in one event loop."""

    def __init__(
        self,
        endpoint: str,
        database: str,
        credential: str | AsyncTokenCredential,
        *,
        throttle_budget_ms: int = THROTTLE_BUDGET_MS,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        on_charge: OnCharge | None = None,
        on_foreign_row: Callable[[], None] | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`credential`: a token credential, which stays the caller's to close, or an account key
        (emulator). `throttle_budget_ms`: how long one request waits for a busy service, before
        `Throttled`. `on_charge(operation, request units)` is called for every answer,
        `on_foreign_row()` for every row of another partition, which nobody gets to see."""
        self.meter = Meter(on_charge=on_charge, on_foreign_row=on_foreign_row)
        self._connection = Connection(
            endpoint,
            database,
            credential,
            meter=self.meter,
            throttle_budget_ms=throttle_budget_ms,
            request_timeout_s=request_timeout_s,
            sleep=sleep,
        )

    async def open(self) -> None:
        """Connect. Raises `Unavailable`, or `StoreError` if the identity is refused."""
        await self._connection.open()

    async def close(self) -> None:
        """Wait for what runs, then close the client. Closing twice is harmless."""
        await self._connection.close()

    # --- reads ------------------------------------------------------------------------------------

    async def read(self, container: str, partition: Partition, id: str) -> Document:
        """One document. Raises `NotFound`."""
        spec = _checked(container, partition)
        if not is_storable_id(id):
            raise NotFound(f"no {container} document {id!r:.80}")
        return await self._connection.call("read", spec, self._point_read(spec, partition, id))

    async def read_many(
        self, container: str, partition: Partition, ids: Sequence[str]
    ) -> dict[str, Document]:
        """Those of `ids` that exist, by id. Point reads side by side: the SDK's own `read_items`
        writes a query that does not fit hierarchical keys."""
        spec = _checked(container, partition)
        wanted = [id for id in dict.fromkeys(ids) if is_storable_id(id)]
        gate = asyncio.Semaphore(READS_AT_ONCE)

        async def one(id: str) -> Document | None:
            async with gate:
                try:
                    read = self._point_read(spec, partition, id)
                    return await self._connection.call("read", spec, read)
                except NotFound:
                    return None

        if len(wanted) == 1:
            found = [await one(wanted[0])]
        else:
            found = await gather_all(one(id) for id in wanted)
        return {document.id: document for document in found if document is not None}

    def _point_read(self, spec: ContainerSpec, partition: Partition, id: str) -> Work[Document]:
        async def read(proxy: ContainerProxy) -> Document:
            return to_document(await proxy.read_item(id, key_of(spec, partition)))

        return read

    async def query(self, container: str, query: Query) -> list[Document]:
        """Documents that match; see `ports.Query`."""
        return await run_query(self._connection, container_spec(container), query)

    async def count(self, container: str, query: Query) -> int:
        """How many `query` would give; see `ports.DocumentStore.count`."""
        return await run_count(self._connection, container_spec(container), query)

    async def changes(self, container: str, cursor: str | None, limit: int) -> ChangePage:
        """Documents changed since `cursor`; see `ports.DocumentStore.changes`. The service never
        cuts what one batch wrote, so a page may exceed `limit`."""
        spec = container_spec(container)
        places = None if cursor is None else decode_cursor(container, cursor)
        try:
            rows, places = await pull_changes(self._connection, spec, places, limit)
        except ValueError as error:  # written for a container that was since created anew
            raise BadCursor(f"not a cursor of {container} in this store") from error
        if not rows and cursor is not None:
            return ChangePage([], cursor)
        return ChangePage(rows, encode_cursor(container, places))

    # --- writes -----------------------------------------------------------------------------------

    async def create(self, container: str, partition: Partition, body: dict[str, Any]) -> str:
        """Store a new document; its etag. Raises `Conflict`."""
        spec = _checked(container, partition)
        raw = encode_body(spec, partition, body)  # a copy: the caller may change theirs meanwhile

        async def create(proxy: ContainerProxy) -> str:
            return _etag(await proxy.create_item(orjson.loads(raw)))

        return await self._connection.call("create", spec, create)

    async def replace(
        self,
        container: str,
        partition: Partition,
        body: dict[str, Any],
        *,
        if_match: str | None = None,
    ) -> str:
        """Overwrite; the new etag. Raises `NotFound`, `PreconditionFailed`."""
        spec = _checked(container, partition)
        raw, id = encode_body(spec, partition, body), body["id"]

        async def replace(proxy: ContainerProxy) -> str:
            return _etag(await proxy.replace_item(id, orjson.loads(raw), **_condition(if_match)))

        return await self._connection.call("replace", spec, replace)

    async def upsert(self, container: str, partition: Partition, body: dict[str, Any]) -> str:
        """Create or overwrite; the new etag."""
        spec = _checked(container, partition)
        raw = encode_body(spec, partition, body)

        async def upsert(proxy: ContainerProxy) -> str:
            return _etag(await proxy.upsert_item(orjson.loads(raw)))

        return await self._connection.call("upsert", spec, upsert)

    async def delete(
        self, container: str, partition: Partition, id: str, *, if_match: str | None = None
    ) -> None:
        """Remove. Raises `NotFound`, `PreconditionFailed`."""
        spec = _checked(container, partition)
        if not is_storable_id(id):
            raise NotFound(f"no {container} document {id!r:.80}")

        async def delete(proxy: ContainerProxy) -> None:
            await proxy.delete_item(id, key_of(spec, partition), **_condition(if_match))

        await self._connection.call("delete", spec, delete)

    async def batch(
        self, container: str, partition: Partition, operations: Sequence[Operation]
    ) -> list[str]:
        """All or nothing; see `ports.DocumentStore.batch`."""
        spec = _checked(container, partition)
        bodies = encode_batch(spec, partition, operations)
        frozen = list(operations)
        for position, each in enumerate(frozen):
            if isinstance(each, Delete) and not is_storable_id(each.id):
                raise NotFound(f"no {container} document {each.id!r:.80}", operation=position)

        async def batch(proxy: ContainerProxy) -> list[str]:
            tuples = batch_tuples(frozen, bodies)  # anew for every try
            results = await proxy.execute_item_batch(tuples, key_of(spec, partition))
            return [
                "" if isinstance(each, Delete) else result["eTag"]
                for each, result in zip(frozen, results, strict=True)
            ]

        return await self._connection.call("batch", spec, batch)


def _checked(container: str, partition: Partition) -> ContainerSpec:
    spec = container_spec(container)
    check_partition(spec, partition)
    return spec


def _etag(result: Any) -> str:
    """Writes answer without a body (it would be ours again); the new version is in the headers."""
    return result.get_response_headers()["etag"]


def _condition(if_match: str | None) -> dict[str, Any]:
    if if_match is None:
        return {}
    return {"etag": sendable_etag(if_match), "match_condition": MatchConditions.IfNotModified}
