"""The endpoint itself: strict where the service is, loud where it knows nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

from orchestrator.adapters.azure.cosmos_containers import definition
from orchestrator.adapters.azure.cosmos_queries import compile_query
from orchestrator.adapters.azure.cosmos_store import CosmosStore
from orchestrator.domain.topology import CONTAINERS, EXECUTIONS
from orchestrator.ports import Create, Query, Where
from tests.wire.cosmos import CosmosServer, charges, sql
from tests.wire.cosmos.documents import MAX_BYTES
from tests.wire.cosmos.opening import KEY, wire_store


def doc(id: str, **fields: Any) -> dict[str, Any]:
    return {"id": id, "tenantId": "t", "executionId": "e1", **fields}


@pytest.fixture
async def raw() -> AsyncIterator[tuple[CosmosServer, Any]]:
    """The bare SDK on container `executions`, for what our store would not send."""
    async with wire_store() as (server, _), CosmosClient(server.endpoint, KEY) as client:
        yield server, client.get_database_client("weft").get_container_client(EXECUTIONS)


async def refused(work: Any) -> int:
    with pytest.raises((CosmosHttpResponseError, CosmosBatchOperationError)) as caught:
        await work
    return int(caught.value.status_code or 0)


async def test_limits_are_the_services_own(raw: Any) -> None:
    _, container = raw
    key = ["t", "e1"]
    many = [("create", (doc(f"d{n}"),)) for n in range(101)]
    assert await refused(container.execute_item_batch(many, key)) == 400
    assert await refused(container.execute_item_batch([("create", (doc("a/b"),))], key)) == 400
    # The SDK sends large bodies as they are, and aiohttp warns about that.
    with pytest.warns(ResourceWarning, match="large body"):
        assert await refused(container.create_item(doc("a", x="y" * MAX_BYTES))) == 413
    assert (
        await refused(container.execute_item_batch([("create", (doc("a"),))], ["t", "e2"])) == 400
    )
    assert await refused(container.read_item("a", key)) == 404


async def test_batches_answer_424_for_all_but_the_culprit(raw: Any) -> None:
    _, container = raw
    await container.create_item(doc("b"))
    operations = [("create", (doc(id),)) for id in "abc"]
    with pytest.raises(CosmosBatchOperationError) as caught:
        await container.execute_item_batch(operations, ["t", "e1"])
    answers = caught.value.operation_responses
    assert [one["statusCode"] for one in answers] == [424, 409, 424]


async def test_queries_without_a_key_or_a_plan_are_refused(raw: Any) -> None:
    """Loudly: a fake that simply believed them would hide a wrong merge."""
    _, container = raw
    query = 'SELECT * FROM c ORDER BY c["id"] ASC'
    with pytest.raises(CosmosHttpResponseError):
        [row async for row in container.query_items(query)]


async def test_ordered_queries_need_their_composite_index() -> None:
    async with wire_store() as (server, store):
        with pytest.raises(Exception, match="400"):
            await store.query(EXECUTIONS, Query(order_by="unindexed"))
        await store.query(EXECUTIONS, Query(order_by="sweepAt", descending=True))
        assert server.counters.statuses["query 400"] > 0


@pytest.mark.parametrize(
    "text",
    [
        "SELECT c.id FROM c",
        "SELECT * FROM c",
        "SELECT TOP 5 * FROM c ORDER BY c.id ASC",
        'SELECT * FROM c WHERE c["n"] = 1 ORDER BY c["n"] ASC',
        'SELECT * FROM c WHERE c["n"] = \'x\' ORDER BY c["n"] ASC',
        'SELECT * FROM c WHERE c["n"] != @p0 ORDER BY c["n"] ASC',
        'SELECT * FROM c WHERE (c["n"] = @p0 ORDER BY c["n"] ASC',
        'SELECT * FROM c WHERE c["n"] = @p1 ORDER BY c["n"] ASC',
        'SELECT * FROM c WHERE c["n"] = @p0 ORDER BY c["n"]',
        'SELECT * FROM c WHERE c["n"] = @p0 ORDER BY c["n"] ASC; DROP',
        'SELECT * FROM c ORDER BY c["n"] ASC',  # a parameter that is not used
    ],
)
def test_the_query_parser_refuses_what_it_does_not_know(text: str) -> None:
    with pytest.raises(sql.BadQuery):
        sql.parse(text, [{"name": "@p0", "value": 1}])


def test_every_shape_of_our_queries_is_parsed() -> None:
    spec = CONTAINERS[EXECUTIONS]
    seen: set[str] = set()
    for partition in (None, ("t",), ("t", "e")):
        for order in ("id", "n"):
            for after in (None, (1, "a"), ("x", "a")):
                for where in ((), (Where("n", "<=", 5),), (Where("b", "=", True),)):
                    for descending in (False, True):
                        statement = compile_query(
                            spec,
                            Query(
                                partition=partition,
                                order_by=order,
                                after=after,
                                where=where,
                                descending=descending,
                            ),
                        )
                        sql.parse(statement.text, statement.parameters)
                        seen.add(statement.text)
    assert len(seen) > 40
    assert not any("'" in text for text in seen)


def test_the_sweepers_query_is_lean() -> None:
    """Known types need no type tests: one range of one index."""
    query = Query(where=(Where("type", "=", "task"), Where("sweepAt", "<=", 9)), order_by="sweepAt")
    assert compile_query(CONTAINERS[EXECUTIONS], query).text == (
        'SELECT * FROM c WHERE c["type"] = @p0 AND c["sweepAt"] <= @p1 '
        'ORDER BY c["sweepAt"] ASC, c["id"] ASC'
    )


def test_the_estimate_meets_the_published_table() -> None:
    assert charges.point_read(1024) == 1.0
    assert charges.point_read(64 * 1024) == 4.76
    assert charges.create(1024, 0) == 4.95
    assert charges.create(2 * 1024 * 1024, 0) == 1250.0
    assert charges.point_read(96 * 1024) == pytest.approx((4.76 + 9.95) / 2, abs=0.01)
    assert charges.replace(1024, 5) == pytest.approx(2 * (4.95 + 5 * charges.PER_TERM))


async def test_the_sdk_provisions_databases_and_containers_here_too() -> None:
    async with CosmosServer() as server:
        async with CosmosClient(server.endpoint, KEY) as client:
            for _ in range(2):
                database = await client.create_database_if_not_exists("new")
                wanted = definition(CONTAINERS[EXECUTIONS])
                await database.create_container_if_not_exists(
                    EXECUTIONS,
                    PartitionKey(path=wanted["partitionKey"]["paths"], kind="MultiHash"),
                    indexing_policy=wanted["indexingPolicy"],
                    default_ttl=-1,
                )
        store = CosmosStore(server.endpoint, "new", KEY)
        await store.open()
        await store.batch(EXECUTIONS, ("t", "e1"), [Create(doc("a", sweepAt=1))])
        assert len(await store.query(EXECUTIONS, Query(order_by="sweepAt"))) == 1
        await store.close()


async def test_one_server_process_serves_several_client_processes() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.wire.cosmos", "--port", "0"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    endpoint = (await process.stdout.readline()).decode().strip()
    try:
        stores = [CosmosStore(endpoint, "weft", KEY) for _ in range(2)]
        for store in stores:
            await store.open()
        await stores[0].create(EXECUTIONS, ("t", "e1"), doc("a"))
        async with aiohttp.ClientSession(endpoint) as session:
            await session.post("/_test/faults", json={"kinds": ["read"], "status": 449})
            assert (await stores[1].read(EXECUTIONS, ("t", "e1"), "a")).body == doc("a")
            async with session.get("/_test/counters") as answer:
                counters = await answer.json()
        assert counters["statuses"]["read 449"] == counters["statuses"]["read 200"] == 1
        for store in stores:
            await store.close()
    finally:
        process.terminate()
        await process.wait()
