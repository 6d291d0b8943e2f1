"""The change feed: complete, ordered, latest versions, a cursor that is never ahead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from contract_support import TENANT, doc

from orchestrator.domain.topology import CATALOG, EXECUTIONS
from orchestrator.ports import BadCursor, ChangePage, Create, Document, DocumentStore, Throttled

E1 = (TENANT, "e1")


async def read_all(
    store: DocumentStore, cursor: str | None, limit: int = 3
) -> tuple[list[Document], str]:
    found: list[Document] = []
    while True:
        page = await store.changes(EXECUTIONS, cursor, limit)
        cursor = page.cursor
        if not page.documents:
            return found, cursor
        assert len(page.documents) <= limit
        found += page.documents


async def test_feed_shows_only_the_latest_version_and_no_deletes(store: DocumentStore) -> None:
    _, cursor = await read_all(store, None)
    for version in range(3):
        await store.upsert(EXECUTIONS, E1, doc("e1", "e1", v=version))
    await store.create(EXECUTIONS, E1, doc("e1", "outbox:1"))
    await store.delete(EXECUTIONS, E1, "outbox:1")
    found, _ = await read_all(store, cursor)
    assert [(document.id, document.body["v"]) for document in found] == [("e1", 2)]


async def test_changes_come_in_the_order_of_the_last_change(store: DocumentStore) -> None:
    for id in ("a", "b", "c", "d"):
        await store.create(EXECUTIONS, E1, doc("e1", id))
    _, cursor = await read_all(store, None)
    await store.batch(EXECUTIONS, E1, [Create(doc("e1", "f")), Create(doc("e1", "e"))])
    await store.upsert(EXECUTIONS, E1, doc("e1", "a"))
    assert [document.id for document in (await read_all(store, None))[0]] == list("bcdfea")
    found, _ = await read_all(store, cursor)
    assert [document.id for document in found] == list("fea")
    for document in found:
        assert document.etag == (await store.read(EXECUTIONS, E1, document.id)).etag


async def test_an_empty_page_stays_at_the_same_place(store: DocumentStore) -> None:
    await store.create(EXECUTIONS, E1, doc("e1", "a"))
    first = await store.changes(EXECUTIONS, None, 10)
    again = await store.changes(EXECUTIONS, first.cursor, 10)
    assert again == ChangePage([], first.cursor)
    await store.create(EXECUTIONS, E1, doc("e1", "b"))
    later = await store.changes(EXECUTIONS, again.cursor, 10)
    assert [document.id for document in later.documents] == ["b"]


async def test_deleting_the_newest_and_writing_again_is_seen(store: DocumentStore) -> None:
    """A position must not be given twice, or the second document is behind the cursor."""
    await store.create(EXECUTIONS, E1, doc("e1", "a"))
    _, cursor = await read_all(store, None)
    await store.delete(EXECUTIONS, E1, "a")
    await store.create(EXECUTIONS, E1, doc("e1", "b"))
    assert [document.id for document in (await read_all(store, cursor))[0]] == ["b"]


async def test_containers_have_feeds_of_their_own(store: DocumentStore) -> None:
    await store.create(CATALOG, (TENANT,), {"id": "a", "tenantId": TENANT})
    await store.create(EXECUTIONS, E1, doc("e1", "b"))
    page = await store.changes(CATALOG, None, 10)
    assert [document.id for document in page.documents] == ["a"]
    with pytest.raises(BadCursor):
        await store.changes(EXECUTIONS, page.cursor, 10)


async def test_cursors_that_are_not_ours_are_refused(store: DocumentStore) -> None:
    await store.create(EXECUTIONS, E1, doc("e1", "a"))
    good = (await store.changes(EXECUTIONS, None, 10)).cursor
    bad: list[str] = ["", "0", "1", "x" * 10_000, good[:-1], f" {good}", f"{good}\n", good.upper()]
    bad += [good.replace(".", ":"), f"{good}٣", good[:-1] + "-1"]
    for cursor in bad:
        if cursor == good:
            continue
        with pytest.raises(BadCursor):
            await store.changes(EXECUTIONS, cursor, 10)


class Throttling:
    """Answers 429 to every second call: before the page is read, or after it (answer lost)."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store
        self.calls = 0

    async def changes(self, container: str, cursor: str | None, limit: int) -> ChangePage:
        self.calls += 1
        if self.calls % 4 == 1:
            raise Throttled("before")
        page = await self._store.changes(container, cursor, limit)
        if self.calls % 4 == 3:
            raise Throttled("in the middle of a page")
        return page


async def test_a_change_reader_throttled_mid_page_skips_nothing(store: DocumentStore) -> None:
    written: dict[str, Any] = {}
    throttling = Throttling(store)
    seen: dict[str, Any] = {}
    finished = asyncio.Event()

    async def read() -> None:
        cursor: str | None = None
        while True:
            last_round = finished.is_set()
            try:
                page = await throttling.changes(EXECUTIONS, cursor, 3)
            except Throttled:
                continue
            for document in page.documents:
                seen[f"{document.body['executionId']}/{document.id}"] = document.body["v"]
            cursor = page.cursor
            if last_round and not page.documents:
                return
            await asyncio.sleep(0)

    async def write(number: int) -> None:
        for n in range(20):
            execution = f"e{number}"
            body = doc(execution, f"d{n % 7}", v=n)
            await store.upsert(EXECUTIONS, (TENANT, execution), body)
            written[f"{execution}/d{n % 7}"] = n

    reader = asyncio.ensure_future(read())
    await asyncio.gather(*(write(number) for number in range(5)))
    finished.set()
    await reader
    assert seen == written
