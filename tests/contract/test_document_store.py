"""Single documents: create, read, replace, upsert, delete, etags, time to live."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from contract_support import TENANT, ManualClock, OpenStore, doc

from orchestrator.domain.topology import CATALOG, CONTROL, EXECUTIONS
from orchestrator.ports import (
    BadDocument,
    Conflict,
    DocumentStore,
    NotFound,
    PreconditionFailed,
    Query,
)

E1 = (TENANT, "e1")


async def test_create_then_read_gives_the_same_body_and_etag(store: DocumentStore) -> None:
    body = doc(
        "e1", "e1", n=2**63 - 1, m=-(2**63), f=0.1, t="äß\u0000😀", l=[1, [None, True]], o={}
    )
    etag = await store.create(EXECUTIONS, E1, body)
    found = await store.read(EXECUTIONS, E1, "e1")
    assert (found.id, found.body, found.etag) == ("e1", body, etag)
    assert type(found.body["n"]) is int


async def test_create_existing_conflicts_and_keeps_the_first(store: DocumentStore) -> None:
    await store.create(EXECUTIONS, E1, doc("e1", "a", v=1))
    with pytest.raises(Conflict) as caught:
        await store.create(EXECUTIONS, E1, doc("e1", "a", v=2))
    assert caught.value.operation is None
    assert (await store.read(EXECUTIONS, E1, "a")).body["v"] == 1


async def test_one_id_in_two_partitions_and_containers_is_two_documents(
    store: DocumentStore,
) -> None:
    await store.create(EXECUTIONS, E1, doc("e1", "a", v=1))
    await store.create(EXECUTIONS, (TENANT, "e2"), doc("e2", "a", v=2))
    await store.create(CATALOG, (TENANT,), {"id": "a", "tenantId": TENANT, "v": 3})
    await store.create(CONTROL, ("a",), {"id": "a", "v": 4})
    assert (await store.read(EXECUTIONS, E1, "a")).body["v"] == 1
    assert (await store.read(EXECUTIONS, (TENANT, "e2"), "a")).body["v"] == 2
    assert (await store.read(CATALOG, (TENANT,), "a")).body["v"] == 3
    assert (await store.read(CONTROL, ("a",), "a")).body["v"] == 4


async def test_missing_documents_are_not_found(store: DocumentStore) -> None:
    with pytest.raises(NotFound):
        await store.read(EXECUTIONS, E1, "a")
    with pytest.raises(NotFound):
        await store.replace(EXECUTIONS, E1, doc("e1", "a"))
    with pytest.raises(NotFound):
        await store.replace(EXECUTIONS, E1, doc("e1", "a"), if_match="1")
    with pytest.raises(NotFound):
        await store.delete(EXECUTIONS, E1, "a")
    with pytest.raises(NotFound):
        await store.delete(EXECUTIONS, E1, "a", if_match="1")


async def test_every_write_changes_the_etag_even_of_an_equal_body(store: DocumentStore) -> None:
    body = doc("e1", "a")
    etags = [await store.create(EXECUTIONS, E1, body)]
    etags += [await store.replace(EXECUTIONS, E1, body) for _ in range(3)]
    etags += [await store.upsert(EXECUTIONS, E1, body) for _ in range(3)]
    await store.delete(EXECUTIONS, E1, "a")
    etags.append(await store.create(EXECUTIONS, E1, body))
    assert len(set(etags)) == len(etags)


@pytest.mark.parametrize("stale", ["", "x", "0", "-1", '"1"', "9" * 40, "٣", "\u0000"])
async def test_a_stale_or_foreign_etag_fails_the_precondition(
    store: DocumentStore, stale: str
) -> None:
    await store.create(EXECUTIONS, E1, doc("e1", "a", v=1))
    with pytest.raises(PreconditionFailed):
        await store.replace(EXECUTIONS, E1, doc("e1", "a", v=2), if_match=stale)
    with pytest.raises(PreconditionFailed):
        await store.delete(EXECUTIONS, E1, "a", if_match=stale)
    assert (await store.read(EXECUTIONS, E1, "a")).body["v"] == 1


async def test_the_right_etag_replaces_and_deletes_once(store: DocumentStore) -> None:
    first = await store.create(EXECUTIONS, E1, doc("e1", "a", v=1))
    second = await store.replace(EXECUTIONS, E1, doc("e1", "a", v=2), if_match=first)
    with pytest.raises(PreconditionFailed):
        await store.replace(EXECUTIONS, E1, doc("e1", "a", v=3), if_match=first)
    with pytest.raises(PreconditionFailed):
        await store.delete(EXECUTIONS, E1, "a", if_match=first)
    await store.delete(EXECUTIONS, E1, "a", if_match=second)
    with pytest.raises(NotFound):
        await store.read(EXECUTIONS, E1, "a")


async def test_of_concurrent_replacers_exactly_one_wins(store: DocumentStore) -> None:
    etag = await store.create(EXECUTIONS, E1, doc("e1", "a"))
    results = await asyncio.gather(
        *(store.replace(EXECUTIONS, E1, doc("e1", "a", v=n), if_match=etag) for n in range(20)),
        return_exceptions=True,
    )
    winners = [n for n, result in enumerate(results) if isinstance(result, str)]
    assert len(winners) == 1
    assert sum(isinstance(result, PreconditionFailed) for result in results) == 19
    assert (await store.read(EXECUTIONS, E1, "a")).body["v"] == winners[0]


async def test_of_concurrent_creators_exactly_one_wins(store: DocumentStore) -> None:
    results = await asyncio.gather(
        *(store.create(EXECUTIONS, E1, doc("e1", "a", v=n)) for n in range(20)),
        return_exceptions=True,
    )
    assert sum(isinstance(result, str) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 19


async def test_upsert_creates_and_overwrites(store: DocumentStore) -> None:
    await store.upsert(CONTROL, ("c",), {"id": "c", "v": 1})
    etag = await store.upsert(CONTROL, ("c",), {"id": "c", "v": 2})
    found = await store.read(CONTROL, ("c",), "c")
    assert (found.body["v"], found.etag) == (2, etag)


async def test_read_many_returns_those_that_exist(store: DocumentStore) -> None:
    for n in range(130):
        await store.upsert(EXECUTIONS, E1, doc("e1", f"d{n}", v=n))
    await store.create(EXECUTIONS, (TENANT, "e2"), doc("e2", "foreign"))
    ids = [f"d{n}" for n in range(140)]
    found = await store.read_many(EXECUTIONS, E1, [*ids, "foreign", "a/b", "\ud800", "d1"])
    assert {id: document.body["v"] for id, document in found.items()} == {
        f"d{n}": n for n in range(130)
    }
    assert await store.read_many(EXECUTIONS, E1, []) == {}


async def test_a_body_changed_after_the_call_or_after_reading_has_no_effect(
    store: DocumentStore,
) -> None:
    body = doc("e1", "a", list=[1])
    writing = asyncio.ensure_future(store.create(EXECUTIONS, E1, body))
    await asyncio.sleep(0)
    body["list"].append(2)
    body["id"] = "b"
    await writing
    found = await store.read(EXECUTIONS, E1, "a")
    found.body["list"].append(3)
    assert (await store.read(EXECUTIONS, E1, "a")).body["list"] == [1]


async def test_everything_survives_closing(
    open_store: OpenStore, tmp_path: Path, clock: ManualClock
) -> None:
    async with open_store(tmp_path, clock) as store:
        etag = await store.create(EXECUTIONS, E1, doc("e1", "a"))
        cursor = (await store.changes(EXECUTIONS, None, 10)).cursor
    async with open_store(tmp_path, clock) as store:
        assert (await store.read(EXECUTIONS, E1, "a")).etag == etag
        assert await store.replace(EXECUTIONS, E1, doc("e1", "a"), if_match=etag) != etag
        assert len((await store.changes(EXECUTIONS, cursor, 10)).documents) == 1


async def test_closing_waits_for_what_was_submitted(
    open_store: OpenStore, tmp_path: Path, clock: ManualClock
) -> None:
    async with open_store(tmp_path, clock) as store:
        writing = [
            asyncio.ensure_future(store.create(EXECUTIONS, E1, doc("e1", f"d{n}")))
            for n in range(300)
        ]
        await asyncio.sleep(0)
    assert len(await asyncio.gather(*writing)) == 300
    async with open_store(tmp_path, clock) as store:
        assert len(await store.read_many(EXECUTIONS, E1, [f"d{n}" for n in range(300)])) == 300


async def test_ttl_expired_documents_are_invisible_everywhere(
    store: DocumentStore, clock: ManualClock
) -> None:
    await store.create(EXECUTIONS, E1, doc("e1", "a", ttl=10, type="x", sweepAt=1))
    clock.advance(seconds=9.9)
    assert (await store.read(EXECUTIONS, E1, "a")).body["ttl"] == 10
    etag = await store.replace(EXECUTIONS, E1, doc("e1", "a", ttl=10, type="x", sweepAt=1))
    clock.advance(seconds=9.9)  # counted from the last write
    await store.read(EXECUTIONS, E1, "a")
    clock.advance(seconds=0.2)
    with pytest.raises(NotFound):
        await store.read(EXECUTIONS, E1, "a")
    with pytest.raises(NotFound):
        await store.replace(EXECUTIONS, E1, doc("e1", "a"), if_match=etag)
    with pytest.raises(NotFound):
        await store.delete(EXECUTIONS, E1, "a", if_match=etag)
    assert await store.read_many(EXECUTIONS, E1, ["a"]) == {}
    assert await store.query(EXECUTIONS, Query(partition=E1)) == []
    assert await store.query(EXECUTIONS, Query(order_by="sweepAt")) == []
    assert (await store.changes(EXECUTIONS, None, 10)).documents == []


async def test_ttl_an_expired_id_can_be_created_again_and_ttl_removed(
    store: DocumentStore, clock: ManualClock
) -> None:
    await store.create(CONTROL, ("c",), {"id": "c", "ttl": 1})
    clock.advance(seconds=2)
    await store.create(CONTROL, ("c",), {"id": "c", "ttl": 5})
    await store.replace(CONTROL, ("c",), {"id": "c"})
    clock.advance(seconds=1000)
    assert (await store.read(CONTROL, ("c",), "c")).body == {"id": "c"}


@pytest.mark.parametrize("ttl", [0, -1, 1.5, "5", True, 2**31])
async def test_ttl_must_be_a_positive_number_of_seconds(store: DocumentStore, ttl: object) -> None:
    with pytest.raises(BadDocument):
        await store.create(CONTROL, ("c",), {"id": "c", "ttl": ttl})
