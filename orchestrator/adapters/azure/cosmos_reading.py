"""Reading many documents: queries over one, some or all physical partitions; the change feed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

from azure.cosmos.aio import ContainerProxy

from orchestrator.adapters.azure.cosmos_changes import (
    Places,
    RangePlace,
    from_continuation,
    to_continuation,
    whole_container,
)
from orchestrator.adapters.azure.cosmos_client import Connection
from orchestrator.adapters.azure.cosmos_operations import key_of
from orchestrator.adapters.azure.cosmos_queries import (
    Statement,
    belongs,
    compile_count,
    compile_query,
    intersection,
    merge,
    to_document,
)
from orchestrator.domain.topology import ContainerSpec
from orchestrator.ports import Document, Partition, Query, Unavailable

T = TypeVar("T")
log = logging.getLogger(__name__)

RANGES_AT_ONCE: Final = 8  # physical partitions that one query asks side by side
SPLIT_TRIES: Final = 3

_FeedRange = dict[str, Any]


async def run_query(connection: Connection, spec: ContainerSpec, query: Query) -> list[Document]:
    """Documents that match; see `ports.Query`."""
    statement = compile_query(spec, query)
    partition = query.partition or ()
    if len(partition) == len(spec.partition):
        scope = {"partition_key": key_of(spec, partition)}
        return await _rows(connection, spec, query, statement, scope)
    for _ in range(SPLIT_TRIES):
        ranges = await _ranges(connection, spec, partition)
        gate = asyncio.Semaphore(RANGES_AT_ONCE)

        async def one(feed_range: _FeedRange, gate: asyncio.Semaphore = gate) -> list[Document]:
            async with gate:
                scope = {"feed_range": feed_range}
                return await _rows(connection, spec, query, statement, scope)

        lists = await gather_all(one(feed_range) for feed_range in ranges)
        # A range that was split meanwhile came as its halves, one after the other, unsorted.
        if await _ranges(connection, spec, partition) == ranges:
            return merge(query, lists)
    raise Unavailable(f"query {spec.name}: its ranges kept splitting")


async def _ranges(
    connection: Connection, spec: ContainerSpec, partition: Partition
) -> list[_FeedRange]:
    """The physical partitions' feed ranges (from the SDK's map, seldom a request), cut to the
    prefix."""

    async def look(proxy: ContainerProxy) -> list[_FeedRange]:
        everywhere = [found async for found in proxy.read_feed_ranges()]
        if not partition:
            return everywhere
        prefix = await proxy.feed_range_from_partition_key(list(partition))
        cut = [intersection(prefix, one) for one in everywhere]
        return [one for one in cut if one is not None]

    return await connection.call("ranges", spec, look)


async def _rows(
    connection: Connection,
    spec: ContainerSpec,
    query: Query,
    statement: Statement,
    scope: dict[str, Any],
) -> list[Document]:
    """The first `limit` rows of one scope, those of other partitions left out."""

    async def fetch(proxy: ContainerProxy) -> list[Document]:
        found: list[Document] = []
        pages = proxy.query_items(
            statement.text,
            parameters=statement.parameters,
            max_item_count=query.limit,
            **scope,
        ).by_page()
        async for page in pages:
            async for row in page:
                if belongs(spec, query, row):
                    found.append(to_document(row))
                else:
                    _foreign_row(connection, spec)
            if len(found) >= query.limit:
                break
        return found[: query.limit]

    return await connection.call("query", spec, fetch)


async def run_count(connection: Connection, spec: ContainerSpec, query: Query) -> int:
    """How many documents match; see `ports.DocumentStore.count`."""
    statement = compile_count(spec, query)
    key = key_of(spec, query.partition or ())

    async def fetch(proxy: ContainerProxy) -> int:
        # A long count comes as several sums, and this is not one of the SDK's own aggregations.
        sums: Any = proxy.query_items(
            statement.text, parameters=statement.parameters, partition_key=key
        )
        return sum([found async for found in sums])

    return min(query.limit, await connection.call("query", spec, fetch))


def _foreign_row(connection: Connection, spec: ContainerSpec) -> None:
    connection.meter.foreign_row()
    log.error(
        "a query returned a row of another partition, which was left out",
        extra={"action": "store.foreign_row", "container": spec.name},
    )


async def pull_changes(
    connection: Connection, spec: ContainerSpec, places: Places | None, limit: int
) -> tuple[list[Document], Places]:
    """The first page that any range has after `places` (None: from the beginning), and the places
    behind it. Raises `ValueError` for places of another container."""
    if places is None:
        places = whole_container(await _ranges(connection, spec, ()))
    position = places.next % len(places.ranges)
    left = len(places.ranges)
    while left:
        rows, page = await _pull(connection, spec, places, places.ranges[position], limit)
        places = places.after(position, page, moved=bool(rows))
        if rows:
            return rows, places
        position = (position + len(page.ranges)) % len(places.ranges)
        left -= 1
    return [], places


async def _pull(
    connection: Connection, spec: ContainerSpec, places: Places, place: RangePlace, limit: int
) -> tuple[list[Document], Places]:
    """One page of one range."""
    start: dict[str, Any]
    if place.token is None:
        start = {"start_time": "Beginning", "feed_range": place.feed_range()}
    else:
        start = {"continuation": to_continuation(places, place)}

    async def pull(proxy: ContainerProxy) -> tuple[list[Document], Places]:
        answers: list[Any] = []
        pages = proxy.query_items_change_feed(
            max_item_count=limit,
            response_hook=lambda headers, _: answers.append(headers),
            **start,
        ).by_page()
        rows: list[Document] = []
        async for page in pages:
            rows = [to_document(row) async for row in page]
            break
        # The SDK writes its continuation over the ETag of the last answer.
        return rows, from_continuation(answers[-1]["etag"])

    return await connection.call("changes", spec, pull)


async def gather_all(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Gather; when one fails the others end first, so that nothing runs on unseen."""
    results = await asyncio.gather(*coroutines, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # pyright: ignore[reportReturnType]
