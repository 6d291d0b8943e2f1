"""The contract once more with every COMMIT in the thread, as on a slow disk."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from contract_support import ManualClock, OpenStore, doc
from test_document_batch import (  # noqa: F401  collected here with this module's `open_store`
    test_a_cancelled_caller_leaves_all_or_nothing,
    test_a_failing_batch_does_not_spoil_those_beside_it,
    test_competing_batches_of_one_execution_apply_one_after_the_other,
    test_stale_etag_in_a_batch_refuses_the_whole_batch,
)
from test_document_model import test_random_operations_agree_with_a_dictionary  # noqa: F401
from test_document_store import (  # noqa: F401
    test_closing_waits_for_what_was_submitted,
    test_everything_survives_closing,
    test_of_concurrent_creators_exactly_one_wins,
    test_of_concurrent_replacers_exactly_one_wins,
)

from orchestrator.adapters.local import sqlite_group
from orchestrator.adapters.local.sqlite_store import SqliteStore
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.ports import DocumentStore


@asynccontextmanager
async def threaded(folder: Path, clock: ManualClock) -> AsyncIterator[DocumentStore]:
    store = SqliteStore(folder / "weft.db", clock=clock, inline_commit_s=0)
    await store.open()
    yield store
    await store.close()


async def test_reads_during_a_commit_see_committed_data_only(
    store: DocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = ("t", "e")
    await store.create(EXECUTIONS, partition, doc("e", "a", v=1))
    loop = asyncio.get_running_loop()
    begun, may_end = asyncio.Event(), threading.Event()
    commit = sqlite_group._commit

    def slow(db: sqlite3.Connection) -> sqlite3.Error | None:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait(30)
        return commit(db)

    monkeypatch.setattr(sqlite_group, "_commit", slow)
    writing = asyncio.ensure_future(store.upsert(EXECUTIONS, partition, doc("e", "a", v=2)))
    await begun.wait()
    later = asyncio.ensure_future(store.upsert(EXECUTIONS, partition, doc("e", "a", v=3)))
    for _ in range(10):
        assert (await store.read(EXECUTIONS, partition, "a")).body["v"] == 1
        await asyncio.sleep(0)
    assert not writing.done()
    assert not later.done()
    may_end.set()
    await writing
    assert (await store.read(EXECUTIONS, partition, "a")).body["v"] >= 2
    await later
    assert (await store.read(EXECUTIONS, partition, "a")).body["v"] == 3


@pytest.fixture
def open_store() -> OpenStore:
    return threaded
