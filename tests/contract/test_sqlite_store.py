"""What only the SQLite store must prove: index use, a full disk, locks of others, its file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from contract_support import TENANT, ManualClock, doc

from orchestrator.adapters.document_rules import container_spec
from orchestrator.adapters.local import sqlite_store
from orchestrator.adapters.local.sqlite_query import compile_query
from orchestrator.adapters.local.sqlite_schema import statements
from orchestrator.adapters.local.sqlite_store import PURGE_EVERY_MS, SqliteStore
from orchestrator.domain.topology import CATALOG, EXECUTIONS, VISIBILITY, ContainerSpec
from orchestrator.ports import BadCursor, Create, NotFound, Query, Unavailable, Where
from tests.support import disk

E1 = (TENANT, "e1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weft.db"


@pytest.fixture
async def store(path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(path, clock=clock)
    await opened.open()
    yield opened
    await opened.close()


def remove(path: Path) -> None:
    path.unlink()


async def test_a_commit_waits_for_the_disk(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tests' files do not, see `tests/support/disk.py`."""
    opened: list[sqlite3.Connection] = []

    def connect(path: Path, **options: Any) -> sqlite3.Connection:
        opened.append(disk.connect(path, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite_store, "connect", connect)
    store = SqliteStore(path, clock=clock)
    await store.open()
    levels = [synchronous(db) for db in opened]
    await store.close()
    full = 2
    assert levels == [full, full]


def synchronous(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA synchronous").fetchone()[0]


def plan(path: Path, sql: str, values: list[object]) -> str:
    db = sqlite3.connect(path)
    try:
        rows = db.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
    finally:
        db.close()
    return "; ".join(row[3] for row in rows)


IS_TYPE = Where("type", "=", "execution")
DUE = Where("sweepAt", "<=", 9)
HOT = {
    "due": (Query(where=(DUE,), order_by="sweepAt"), "sweep"),
    "due of a type": (Query(where=(IS_TYPE, DUE), order_by="sweepAt"), "sweep"),
    "due, next page": (
        Query(where=(IS_TYPE, DUE), order_by="sweepAt", after=(3, "e")),
        "sweep",
    ),
    "latest of a tenant": (
        Query(partition=("t",), where=(IS_TYPE,), order_by="createdAt", descending=True),
        "created",
    ),
    "latest of a tenant by filter": (
        Query(where=(Where("tenantId", "=", "t"), IS_TYPE), order_by="createdAt", descending=True),
        "created",
    ),
    "latest of a tenant, next page, by status": (
        Query(
            partition=("t",),
            where=(IS_TYPE, Where("status", "=", "FAILED")),
            order_by="createdAt",
            descending=True,
            after=(7, "e7"),
        ),
        "created",
    ),
    "one partition": (Query(partition=E1), "key"),
    "one partition, one type, next page": (
        Query(partition=E1, where=(IS_TYPE,), after=("a", "a")),
        "key",
    ),
    "a range of ids": (
        Query(partition=E1, where=(Where("id", ">=", "task:"), Where("id", "<", "task;"))),
        "key",
    ),
}


@pytest.mark.parametrize("name", HOT)
async def test_hot_queries_search_an_index_and_sort_nothing(
    store: SqliteStore, path: Path, name: str
) -> None:
    query, index = HOT[name]
    found = plan(path, *compile_query(container_spec(EXECUTIONS), query, 0))
    assert f"SEARCH docs_executions USING INDEX docs_executions_{index} (" in found
    assert "SCAN" not in found
    assert "B-TREE" not in found
    await store.query(EXECUTIONS, query)


@pytest.mark.parametrize("after", [None, (3, "s")])
async def test_what_is_due_across_tenants_is_asked_of_its_index(
    store: SqliteStore, path: Path, after: tuple[int, str] | None
) -> None:
    where = (Where("type", "=", "schedule"), Where("dueAt", "<=", 9))
    query = Query(where=where, order_by="dueAt", after=after)
    found = plan(path, *compile_query(container_spec(CATALOG), query, 0))
    assert "SEARCH docs_catalog USING INDEX docs_catalog_in_dueAt (" in found
    assert "SCAN" not in found
    assert "B-TREE" not in found
    await store.query(CATALOG, query)


LISTED = (Where("type", "=", "execution"), Where("tenantId", "=", "t"))
LISTS: dict[str, tuple[tuple[Where, ...], str]] = {
    "all": ((), "created"),
    "since": ((Where("createdAt", ">=", 5), Where("createdAt", "<", 9)), "created"),
    "status": ((Where("status", "=", "FAILED"),), "by_status"),
    "workflow": ((Where("workflow", "=", "orders"),), "by_workflow"),
    "owner": ((Where("startedBy", "=", "ada"),), "by_startedBy"),
    "parent": ((Where("parent", "=", "e1"),), "by_parent"),
    "idempotency key": ((Where("key", "=", "k"),), "by_key"),
    "the most selective": (
        (Where("status", "=", "FAILED"), Where("createdAt", ">=", 5), Where("parent", "=", "e1")),
        "by_parent",
    ),
    "tag": ((Where("tag:env", "=", "prod"),), "created"),
    "id prefix": ((Where("id", ">=", "0a"), Where("id", "<", "0a~")), "created"),
}


@pytest.mark.parametrize("after", [None, (7, "e7")])
@pytest.mark.parametrize("name", LISTS)
async def test_lists_of_executions_search_an_index_and_sort_nothing(
    store: SqliteStore, path: Path, name: str, after: tuple[int, str] | None
) -> None:
    """Neither what does not match the filter nor what other tenants have is read for a page."""
    where, index = LISTS[name]
    query = Query(
        partition=("t",),
        where=(*LISTED, *where),
        order_by="createdAt",
        descending=True,
        after=after,
    )
    found = plan(path, *compile_query(container_spec(VISIBILITY), query, 0))
    assert f"SEARCH docs_visibility USING INDEX docs_visibility_{index} (tenant_id=?" in found
    assert "SCAN" not in found
    assert "B-TREE" not in found
    if index.startswith("by_"):
        assert "<expr>=?" in found
    await store.query(VISIBILITY, query)


async def test_prefixes_of_other_keys_than_tenants_are_exact_and_use_an_index(
    store: SqliteStore, path: Path
) -> None:
    for tenant, execution in (("t", "e"), ("t", "f"), ("t2", "e"), ("te", "e"), ("s", "t")):
        body = doc(execution, f"{tenant}:{execution}", tenant=tenant)
        await store.create(EXECUTIONS, (tenant, execution), body)
    spec = ContainerSpec(name=EXECUTIONS, partition=("region", "executionId"))
    sql, values = compile_query(spec, Query(partition=("t",)), 0)
    assert [id for id, _, _ in store._select(sql, values)] == ["t:e", "t:f"]
    assert "SEARCH docs_executions USING INDEX docs_executions_key (" in plan(path, sql, values)


async def test_point_statements_and_the_change_feed_search_an_index(
    store: SqliteStore, path: Path
) -> None:
    texts = statements(EXECUTIONS)
    for sql, index in (
        (texts.read, "key"),
        (texts.update, "key"),
        (texts.update_if, "lsn"),
        (texts.delete, "key"),
        (texts.delete_if, "lsn"),
        (texts.changes, "lsn"),
        (texts.purge, "expiry"),
    ):
        found = plan(path, sql, [1] * sql.count("?"))
        assert f"INDEX docs_executions_{index} (" in found
        assert "SCAN docs" not in found
        assert "B-TREE" not in found


async def test_a_full_disk_fails_the_whole_group_as_unavailable_and_harms_nothing(
    store: SqliteStore, path: Path
) -> None:
    await store.create(EXECUTIONS, E1, doc("e1", "before"))
    ((pages,),) = store._db.execute("PRAGMA page_count").fetchall()
    store._db.execute(f"PRAGMA max_page_count = {pages + 4}").fetchall()
    results = await asyncio.gather(
        *(store.create(EXECUTIONS, E1, doc("e1", f"d{n}", x="y" * 9000)) for n in range(10)),
        return_exceptions=True,
    )
    failed = [n for n, result in enumerate(results) if isinstance(result, Unavailable)]
    assert failed
    assert all(isinstance(result, str | Unavailable) for result in results)
    store._db.execute("PRAGMA max_page_count = 1000000").fetchall()
    found = await store.read_many(EXECUTIONS, E1, ["before", *(f"d{n}" for n in range(10))])
    assert set(found) == {"before", *(f"d{n}" for n in range(10) if n not in failed)}
    await store.create(EXECUTIONS, E1, doc("e1", "after", x="y" * 9000))


async def test_a_failed_commit_fails_the_whole_group(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(db: sqlite3.Connection) -> sqlite3.Error:
        db.execute("ROLLBACK")
        return sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr("orchestrator.adapters.local.sqlite_group._commit", broken)
        results = await asyncio.gather(
            *(store.create(EXECUTIONS, E1, doc("e1", f"d{n}")) for n in range(3)),
            return_exceptions=True,
        )
    assert [type(result) for result in results] == [Unavailable] * 3
    assert len({id(result) for result in results}) == 3  # none shares another's traceback
    assert await store.query(EXECUTIONS, Query(partition=E1)) == []
    await store.create(EXECUTIONS, E1, doc("e1", "d0"))


async def test_writes_of_one_tick_share_one_transaction(store: SqliteStore) -> None:
    before = store._writer._commits
    await asyncio.gather(*(store.create(EXECUTIONS, E1, doc("e1", f"d{n}")) for n in range(50)))
    assert store._writer._commits == before + 1


async def test_while_another_process_holds_the_lock_reads_go_on_and_writes_wait(
    store: SqliteStore, path: Path
) -> None:
    await store.create(EXECUTIONS, E1, doc("e1", "a", v=1))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(store.replace(EXECUTIONS, E1, doc("e1", "a", v=2)))
    for _ in range(5):
        assert (await store.read(EXECUTIONS, E1, "a")).body["v"] == 1
        await asyncio.sleep(0.002)  # lets the writer try; nothing is synchronised by it
    assert not writing.done()
    other.execute("ROLLBACK")
    other.close()
    await writing
    assert (await store.read(EXECUTIONS, E1, "a")).body["v"] == 2


async def test_a_lock_that_is_never_released_ends_in_unavailable(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.adapters.local.sqlite_group.LOCK_PATIENCE_S", 0.01)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable):
        await store.create(EXECUTIONS, E1, doc("e1", "a"))
    other.close()
    await store.create(EXECUTIONS, E1, doc("e1", "a"))


async def test_expired_documents_are_purged_by_later_writes(
    store: SqliteStore, clock: ManualClock
) -> None:
    for n in range(5):
        await store.create(EXECUTIONS, E1, doc("e1", f"d{n}", ttl=1))
    clock.advance(seconds=PURGE_EVERY_MS / 1000 + 1)
    await store.create(EXECUTIONS, E1, doc("e1", "other"))
    rows = store._db.execute("SELECT id FROM docs_executions").fetchall()
    assert rows == [("other",)]


async def test_cursors_of_another_file_are_refused(store: SqliteStore, tmp_path: Path) -> None:
    """The file was deleted and made anew: positions of the old one would skip the new one's."""
    other = SqliteStore(tmp_path / "other.db")
    await other.open()
    cursor = (await other.changes(EXECUTIONS, None, 1)).cursor
    await other.close()
    with pytest.raises(BadCursor):
        await store.changes(EXECUTIONS, cursor, 1)


async def test_a_file_of_newer_code_is_refused(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(Unavailable, match="newer"):
        await SqliteStore(path).open()


def test_something_that_is_no_database_is_refused_and_kept(path: Path) -> None:
    path.write_bytes(b"precious" * 1000)
    with pytest.raises(Unavailable):
        asyncio.run(SqliteStore(path).open())
    assert path.read_bytes() == b"precious" * 1000


async def test_a_closed_store_is_unavailable(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
    await store.close()
    with pytest.raises(Unavailable):
        await store.read(EXECUTIONS, E1, "a")
    with pytest.raises(Unavailable):
        await store.create(EXECUTIONS, E1, doc("e1", "a"))


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_was_deleted_or_replaced_takes_no_more_writes(
    store: SqliteStore, path: Path, replaced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """They were acknowledged, and gone when the platform stopped."""
    await store.create(EXECUTIONS, E1, doc("e1", "before"))
    remove(path)
    if replaced:
        await (other := SqliteStore(path)).open()
        await other.close()
    for _ in range(2):
        with pytest.raises(Unavailable, match="was deleted or replaced"):
            await store.create(EXECUTIONS, E1, doc("e1", "after"))
    with pytest.raises(Unavailable, match="gone"):  # and health sees it
        await store.read_many(EXECUTIONS, E1, ["before"])
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]


async def test_a_cancelled_write_that_had_not_begun_is_not_applied(store: SqliteStore) -> None:
    writing = asyncio.ensure_future(store.batch(EXECUTIONS, E1, [Create(doc("e1", "a"))]))
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await store.create(EXECUTIONS, E1, doc("e1", "b"))
    with pytest.raises(NotFound):
        await store.read(EXECUTIONS, E1, "a")
