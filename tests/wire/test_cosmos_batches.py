"""Transactional batches through the real SDK: the culprit named, preconditions on every try."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestrator.adapters.azure.cosmos_store import CosmosStore
from orchestrator.domain.topology import EXECUTIONS, MAX_BATCH_BYTES
from orchestrator.ports import (
    BadDocument,
    Conflict,
    Create,
    Delete,
    NotFound,
    PreconditionFailed,
    Query,
    Replace,
    StoreError,
    Throttled,
    TooLarge,
    Unavailable,
    Upsert,
)
from tests.wire.cosmos import CosmosServer
from tests.wire.cosmos.opening import wire_store

E1 = ("t", "e1")


def doc(id: str, **fields: Any) -> dict[str, Any]:
    return {"id": id, "tenantId": "t", "executionId": "e1", **fields}


@pytest.fixture
async def wired() -> AsyncIterator[tuple[CosmosServer, CosmosStore]]:
    async with wire_store() as pair:
        yield pair


Wired = tuple[CosmosServer, CosmosStore]


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, BadDocument),
        (404, NotFound),
        (409, Conflict),
        (412, PreconditionFailed),
        (413, TooLarge),
        (500, Unavailable),
        (503, Unavailable),
    ],
)
async def test_the_failed_operations_status_is_the_error_and_424_never_hides_it(
    wired: Wired, status: int, error: type[StoreError], position: int
) -> None:
    """Azure/azure-sdk-for-python#32508: the dependents read 424."""
    server, store = wired
    server.faults.add("batch", status=status, operation=position)
    with pytest.raises(StoreError) as caught:
        await store.batch(EXECUTIONS, E1, [Create(doc(f"d{n}")) for n in range(4)])
    assert type(caught.value) is error
    assert caught.value.operation == position
    assert "424" not in str(caught.value)
    assert server.counters.requests["batch"] == 1
    assert await store.query(EXECUTIONS, Query()) == []


async def test_an_operation_throttled_inside_the_batch_is_waited_for(wired: Wired) -> None:
    """The SDK retries a throttled request, not a throttled operation."""
    server, store = wired
    server.faults.add("batch", status=429, operation=2, retry_after_ms=1, times=2)
    etags = await store.batch(EXECUTIONS, E1, [Create(doc(f"d{n}")) for n in range(4)])
    assert len(etags) == 4
    assert server.counters.requests["batch"] == 3
    server.faults.add("batch", status=429, operation=1, retry_after_ms=9_999)
    with pytest.raises(Throttled) as caught:
        await store.batch(EXECUTIONS, E1, [Upsert(doc(f"d{n}")) for n in range(4)])
    assert (caught.value.operation, caught.value.retry_after_ms) == (1, 9_999)


async def test_every_try_of_a_batch_carries_its_preconditions(wired: Wired) -> None:
    """`execute_item_batch` empties the option dicts that it is given: a second try with the same
    list would replace a document that somebody changed meanwhile."""
    server, store = wired
    stale = await store.create(EXECUTIONS, E1, doc("e1", v=1))
    await store.create(EXECUTIONS, E1, doc("gone"))
    await store.replace(EXECUTIONS, E1, doc("e1", v=2))
    for operation in (Replace(doc("e1", v=9), stale), Delete("e1", stale)):
        server.faults.add("batch", status=429, retry_after_ms=1, times=2)
        with pytest.raises(PreconditionFailed) as caught:
            await store.batch(EXECUTIONS, E1, [Delete("gone"), operation])
        assert caught.value.operation == 1
    assert (await store.read(EXECUTIONS, E1, "e1")).body["v"] == 2


async def test_a_body_changed_while_waiting_is_written_as_it_was(wired: Wired) -> None:
    server, _ = wired
    body = doc("e1", list=[1])

    async def meddle(_: float) -> None:
        body["list"].append(2)
        body["id"] = "other"

    store = CosmosStore(server.endpoint, "weft", "a2V5", sleep=meddle)
    await store.open()
    server.faults.add("batch", status=429, retry_after_ms=1)
    await store.batch(EXECUTIONS, E1, [Create(body)])
    assert (await store.read(EXECUTIONS, E1, "e1")).body["list"] == [1]
    await store.close()


async def test_a_batch_that_fits_only_without_its_wrapping_is_refused_whole(wired: Wired) -> None:
    """The service counts the whole request, our own check the bodies: 413 from there is the same
    error, and nothing is written."""
    _, store = wired
    size = sum(len(f'{{"id":"d{n}","tenantId":"t","executionId":"e1","x":""}}') for n in range(2))
    operations = [Create(doc(f"d{n}", x="y" * ((MAX_BATCH_BYTES - size) // 2))) for n in range(2)]
    with pytest.raises(TooLarge) as caught:
        await store.batch(EXECUTIONS, E1, operations)
    assert caught.value.operation is None
    assert await store.query(EXECUTIONS, Query()) == []


async def test_foreign_characters_count_once(wired: Wired) -> None:
    """Escaped as `\\u00e9` they would treble, and items within the limit be refused."""
    server, store = wired
    await store.create(EXECUTIONS, E1, doc("a", x="é" * 900_000))
    await store.batch(EXECUTIONS, E1, [Create(doc("b", x="é" * 900_000))])
    assert server.counters.bytes_in["create"] < 1_900_000
    assert server.counters.bytes_in["batch"] < 1_900_000


async def test_writes_do_not_bring_their_documents_back(wired: Wired) -> None:
    server, store = wired
    await store.upsert(EXECUTIONS, E1, doc("a", x="y" * 10_000))
    await store.replace(EXECUTIONS, E1, doc("a", x="y" * 10_000))
    await store.batch(EXECUTIONS, E1, [Upsert(doc("a", x="y" * 10_000))])
    sent = server.counters.bytes_out
    assert sent["upsert"] == sent["replace"] == 0
    assert sent["batch"] < 200
