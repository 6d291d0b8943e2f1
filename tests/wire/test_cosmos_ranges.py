"""Several physical partitions: merged order, prefixes that straddle them, splits, foreign rows."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestrator.adapters.azure import cosmos_reading
from orchestrator.adapters.azure.cosmos_store import CosmosStore
from orchestrator.domain.topology import CATALOG, EXECUTIONS
from orchestrator.ports import Query, Unavailable, Where
from tests.wire.cosmos import CosmosServer
from tests.wire.cosmos.opening import wire_store
from tests.wire.cosmos.state import Container

Wired = tuple[CosmosServer, CosmosStore]


@pytest.fixture
async def wired() -> AsyncIterator[Wired]:
    async with wire_store() as pair:
        yield pair


def container(server: CosmosServer) -> Container:
    return server.account.container("weft", EXECUTIONS)


async def fill(store: CosmosStore, tenant: str, count: int, **fields: Any) -> None:
    for n in range(count):
        body = {"id": f"d{n:03}", "tenantId": tenant, "executionId": f"e{n}", "createdAt": n}
        await store.create(EXECUTIONS, (tenant, f"e{n}"), body | fields)


def split_inside(server: CosmosServer, tenant: str) -> None:
    """Put a border of physical partitions in the middle of a tenant."""
    ranges = container(server).ranges
    borders = {one.min for one in ranges.ranges}
    keys = sorted(
        item.effective_key
        for (partition, _), item in container(server).documents.living()
        if partition[0] == tenant and item.effective_key not in borders
    )
    ranges.split(keys[len(keys) // 2])


async def pages(store: CosmosStore, query: Query, size: int) -> list[str]:
    """All ids, page by page."""
    found: list[str] = []
    after = None
    while True:
        page = await store.query(
            EXECUTIONS,
            Query(
                where=query.where,
                partition=query.partition,
                order_by=query.order_by,
                descending=query.descending,
                after=after,
                limit=size,
            ),
        )
        found += [document.id for document in page]
        if len(page) < size:
            return found
        last = page[-1]
        after = (last.body[query.order_by], last.id)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("order", ["createdAt", "id"])
@pytest.mark.parametrize("partition", [None, ("t",)])
async def test_ordered_pages_over_several_ranges_lose_nothing(
    wired: Wired, partition: Any, order: str, descending: bool
) -> None:
    """Continuation tokens lost 4 of 12 rows here; the SDK's prefix query does not sort at all."""
    server, store = wired
    await fill(store, "t", 24)
    split_inside(server, "t")
    query = Query(partition=partition, order_by=order, descending=descending)
    expected = [f"d{n:03}" for n in range(24)]
    for size in (1, 5, 24, 100):
        found = await pages(store, query, size)
        assert found == (expected[::-1] if descending else expected)


async def test_a_prefix_asks_only_the_ranges_it_lies_in(wired: Wired) -> None:
    server, store = wired
    await fill(store, "t", 6)
    await fill(store, "t2", 6)
    await store.query(EXECUTIONS, Query(partition=("t",)))
    server.counters.clear()
    found = await store.query(EXECUTIONS, Query(partition=("t",), order_by="createdAt"))
    assert len(found) == 6
    assert server.counters.requests == {"query": 1}
    split_inside(server, "t")
    assert len(await store.query(EXECUTIONS, Query(partition=("t",), order_by="createdAt"))) == 6
    server.counters.clear()
    await store.query(EXECUTIONS, Query(partition=("t",)))
    assert server.counters.requests == {"query": 2}
    await store.query(EXECUTIONS, Query(partition=("t", "e1")))
    assert server.counters.requests == {"query": 3}


async def test_a_split_between_and_under_queries_keeps_order_and_rows(wired: Wired) -> None:
    server, store = wired
    await fill(store, "t", 30)
    query = Query(where=(Where("tenantId", "=", "t"),), order_by="createdAt", limit=10)
    expected = [f"d{n:03}" for n in range(30)]
    for _ in range(3):
        split_inside(server, "t")  # the SDK still has the old map and meets 410/1002
        assert [found.id for found in await store.query(EXECUTIONS, query)] == expected[:10]
        split_inside(server, "t")
        assert await pages(store, Query(partition=("t",), order_by="createdAt"), 7) == expected


async def test_ranges_that_keep_splitting_end_in_unavailable(
    wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store = wired
    numbers = iter(range(100))
    real = cosmos_reading._ranges

    async def changing(*args: Any) -> Any:
        found = await real(*args)
        return found if next(numbers) % 2 else found[:1]

    monkeypatch.setattr(cosmos_reading, "_ranges", changing)
    with pytest.raises(Unavailable, match="splitting"):
        await store.query(EXECUTIONS, Query())


async def test_the_change_feed_goes_on_after_a_split(wired: Wired) -> None:
    """Also before the first page of a range, where the SDK cannot go on from its own token."""
    server, store = wired
    await fill(store, "t", 20)
    seen: list[str] = []
    cursor: str | None = None
    for step in range(100):
        if step < 4:
            split_inside(server, "t")
        page = await store.changes(EXECUTIONS, cursor, 3)
        cursor = page.cursor
        seen += [document.id for document in page.documents]
        if not page.documents:
            break
    assert sorted(seen) == [f"d{n:03}" for n in range(20)]
    await fill(store, "new", 5)
    split_inside(server, "new")
    late: list[str] = []
    while (page := await store.changes(EXECUTIONS, cursor, 2)).documents:
        late += [document.body["tenantId"] for document in page.documents]
        cursor = page.cursor
    assert late == ["new"] * 5


async def test_an_idle_feed_costs_one_request_per_range(wired: Wired) -> None:
    server, store = wired
    await fill(store, "t", 4)
    cursor = None
    while (page := await store.changes(EXECUTIONS, cursor, 100)).documents:
        cursor = page.cursor
    server.counters.clear()
    assert (await store.changes(EXECUTIONS, cursor, 100)).documents == []
    assert server.counters.statuses == {"feed 304": 2}


async def test_a_busy_range_does_not_starve_the_others(wired: Wired) -> None:
    _, store = wired
    await fill(store, "t", 40)
    page = await store.changes(EXECUTIONS, None, 5)
    seen = {document.id for document in page.documents}
    for n in range(6):
        for document in page.documents:  # whoever was read changes again
            await store.upsert(EXECUTIONS, ("t", document.body["executionId"]), document.body)
        page = await store.changes(EXECUTIONS, page.cursor, 5 + n)
        seen |= {document.id for document in page.documents}
    assert len(seen) > 25


async def test_foreign_rows_are_left_out_counted_and_logged(
    wired: Wired, caplog: pytest.LogCaptureFixture
) -> None:
    """Azure/azure-sdk-for-python#37638: a list for t shows only t's, whatever the service says."""
    server, store = wired
    heard: list[int] = []
    store.meter.on_foreign_row = lambda: heard.append(1)
    await fill(store, "t", 3)
    foreign = {"id": "x", "tenantId": "t2", "executionId": "e0", "createdAt": 0}
    server.faults.foreign_rows.append(foreign)
    for query in (
        Query(partition=("t",), order_by="createdAt"),
        Query(partition=("t",), limit=2),
        Query(partition=("t", "e0")),
        Query(where=(Where("tenantId", "=", "t"),)),
    ):
        with caplog.at_level(logging.ERROR):
            found = await store.query(EXECUTIONS, query)
        assert {document.body["tenantId"] for document in found} == {"t"}
    assert len(await store.query(EXECUTIONS, Query(partition=("t",), limit=3))) == 3
    assert store.meter.foreign_rows == len(heard) >= 5
    assert {record.__dict__.get("action") for record in caplog.records} == {"store.foreign_row"}
    assert "t2" not in caplog.text


async def test_tag_properties_are_quoted_and_values_are_never_text(wired: Wired) -> None:
    server, store = wired
    await fill(store, "t", 1, **{"tag:cost-centre": "a' OR true --", "tag:env.x": "b"})
    where = (Where("tag:cost-centre", "=", "a' OR true --"), Where("tag:env.x", "=", "b"))
    query = Query(where=where, partition=("t",), order_by="createdAt")
    assert len(await store.query(EXECUTIONS, query)) == 1
    assert server.counters.statuses["query 400"] == 0


async def test_single_key_containers_are_asked_by_their_key(wired: Wired) -> None:
    server, store = wired
    for tenant in ("t", "t2"):
        body = {"id": "w", "tenantId": tenant, "type": "workflow"}
        await store.create(CATALOG, (tenant,), body)
    server.counters.clear()
    found = await store.query(CATALOG, Query(partition=("t",)))
    assert [document.body["tenantId"] for document in found] == ["t"]
    assert server.counters.requests["query"] == 1
