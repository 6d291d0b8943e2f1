"""What a store must refuse, before anything is written (CASES: ids, sizes, NUL, NaN)."""

from __future__ import annotations

import datetime
import math
import uuid
from typing import Any

import pytest
from contract_support import TENANT, doc

from orchestrator.domain.topology import (
    CONTROL,
    EXECUTIONS,
    MAX_BATCH_OPERATIONS,
    MAX_ITEM_BYTES,
    MAX_NESTING,
)
from orchestrator.ports import (
    BadDocument,
    Create,
    Delete,
    DocumentStore,
    NotFound,
    Query,
    TooLarge,
    Where,
)

E1 = (TENANT, "e1")
MISSING = object()


async def is_empty(store: DocumentStore) -> bool:
    return not (await store.changes(EXECUTIONS, None, 10)).documents


@pytest.mark.parametrize(
    "id",
    [
        *("a/b", "a\\b", "a?b", "order#7/8 é", "", "a\u0000b", "\ud800", "x" * 1024, "é" * 512),
        *("a\tb", "a\nb", "a\r", " ", "a "),  # refused by the SDK, not by the service
        *(7, None),
    ],
    ids=repr,
)
async def test_ids_that_cosmos_refuses_are_refused(store: DocumentStore, id: Any) -> None:
    for write in (store.create, store.upsert, store.replace):
        with pytest.raises(BadDocument):
            await write(EXECUTIONS, E1, {**doc("e1", ""), "id": id})
    assert await is_empty(store)
    if isinstance(id, str):
        with pytest.raises(NotFound):
            await store.read(EXECUTIONS, E1, id)
        with pytest.raises(NotFound):
            await store.delete(EXECUTIONS, E1, id)


@pytest.mark.parametrize("id", ["x" * 1023, "é" * 511, " a", "a b:c;d'\"%_*", "events:0000000001"])
async def test_ids_up_to_the_limit_are_kept(store: DocumentStore, id: str) -> None:
    await store.create(EXECUTIONS, E1, doc("e1", id))
    assert (await store.read(EXECUTIONS, E1, id)).id == id
    await store.delete(EXECUTIONS, E1, id)


@pytest.mark.parametrize("name", ["tenantId", "executionId"])
@pytest.mark.parametrize("value", [MISSING, "other", None, 1])
async def test_the_body_must_name_its_own_partition(
    store: DocumentStore, name: str, value: Any
) -> None:
    body = {**doc("e1", "a"), name: value}
    if value is MISSING:
        del body[name]
    with pytest.raises(BadDocument):
        await store.create(EXECUTIONS, E1, body)
    assert await is_empty(store)


@pytest.mark.parametrize(
    "partition", [(), ("t",), ("t", "e1", "x"), ("t", "e\u0000"), ("t", "\ud800")]
)
async def test_partitions_must_be_whole_and_text(store: DocumentStore, partition: Any) -> None:
    with pytest.raises(BadDocument):
        await store.read(EXECUTIONS, partition, "a")
    with pytest.raises(BadDocument):
        await store.batch(EXECUTIONS, partition, [Delete("a")])


async def test_unknown_containers_are_refused(store: DocumentStore) -> None:
    with pytest.raises(BadDocument):
        await store.read("executions; drop", E1, "a")
    with pytest.raises(BadDocument):
        await store.query("nothing", Query())


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        2**63,
        -(2**63) - 1,
        "a\ud800b",
        b"bytes",
        {1: "x"},
        {1, 2},
        pytest.param(object(), id="object"),
        uuid.UUID(int=1),
        datetime.datetime(2027, 1, 1),
        [{"deep": [math.nan]}],
        [{"deep": [2**64]}],
        {"\udfff": 1},
    ],
    ids=repr,
)
async def test_values_that_are_not_json_are_refused(store: DocumentStore, value: Any) -> None:
    with pytest.raises(BadDocument):
        await store.create(EXECUTIONS, E1, doc("e1", "a", x=value))
    assert await is_empty(store)


async def test_text_that_looks_like_nan_and_nul_characters_are_kept(store: DocumentStore) -> None:
    body = doc("e1", "a", note="NaN: fine", nul="a\u0000b", keys={"\u0000": 1, "_etag": 2, "id": 3})
    await store.create(EXECUTIONS, E1, body)
    assert (await store.read(EXECUTIONS, E1, "a")).body == body


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


async def test_nesting_stops_where_cosmos_stops(store: DocumentStore) -> None:
    await store.create(EXECUTIONS, E1, doc("e1", "a", x=nested(MAX_NESTING - 1)))
    for levels in (MAX_NESTING, 200, 5000):
        with pytest.raises(BadDocument):
            await store.create(EXECUTIONS, E1, doc("e1", "b", x=nested(levels)))


async def test_items_over_two_megabytes_are_too_large(store: DocumentStore) -> None:
    room = MAX_ITEM_BYTES - len('{"id":"c","x":""}')
    await store.create(CONTROL, ("c",), {"id": "c", "x": "y" * room})
    with pytest.raises(TooLarge):
        await store.replace(CONTROL, ("c",), {"id": "c", "x": "y" * (room + 1)})
    with pytest.raises(TooLarge):
        await store.replace(CONTROL, ("c",), {"id": "c", "x": "é" * (room // 2 + 1)})


async def test_batches_over_100_operations_or_two_megabytes_are_too_large(
    store: DocumentStore,
) -> None:
    creates = [Create(doc("e1", f"d{n}")) for n in range(MAX_BATCH_OPERATIONS + 1)]
    with pytest.raises(TooLarge):
        await store.batch(EXECUTIONS, E1, creates)
    big = [Create(doc("e1", f"d{n}", x="y" * 700_000)) for n in range(3)]
    with pytest.raises(TooLarge):
        await store.batch(EXECUTIONS, E1, big)
    assert await is_empty(store)
    assert len(await store.batch(EXECUTIONS, E1, creates[:-1])) == MAX_BATCH_OPERATIONS
    with pytest.raises(BadDocument):
        await store.batch(EXECUTIONS, E1, [])


async def test_a_bad_document_in_a_batch_is_named_and_nothing_is_written(
    store: DocumentStore,
) -> None:
    for bad, error in (
        (Create(doc("e1", "a/b")), BadDocument),
        (Create(doc("e2", "c")), BadDocument),
        (Create(doc("e1", "c", x=math.nan)), BadDocument),
        (Create(doc("e1", "c", x="y" * MAX_ITEM_BYTES)), TooLarge),
    ):
        with pytest.raises(error) as caught:
            await store.batch(EXECUTIONS, E1, [Create(doc("e1", "a")), Create(doc("e1", "b")), bad])
        assert caught.value.operation == 2
    assert await is_empty(store)


@pytest.mark.parametrize(
    "query",
    [
        Query(where=(Where('x"', "=", 1),)),
        Query(where=(Where("", "=", True),)),
        Query(where=(Where("\ud800", "=", "x"),)),
        Query(where=(Where("x", "=", 2**63),)),
        Query(where=(Where("x", "=", "\ud800"),)),
        Query(where=(Where("x", "= 1 OR 1 =", 1),)),  # type: ignore[arg-type]
        Query(order_by="a\\"),
        Query(partition=("t", "e", "x")),
    ],
    ids=repr,
)
async def test_queries_take_no_text_but_values(store: DocumentStore, query: Query) -> None:
    with pytest.raises(BadDocument):
        await store.query(EXECUTIONS, query)
