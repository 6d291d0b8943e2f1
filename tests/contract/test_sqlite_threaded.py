"""The contract once more with every COMMIT in the thread, as on a slow disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from contract_support import ManualClock, OpenStore
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

from orchestrator.adapters.local.sqlite_store import SqliteStore
from orchestrator.ports import DocumentStore


@asynccontextmanager
async def threaded(folder: Path, clock: ManualClock) -> AsyncIterator[DocumentStore]:
    store = SqliteStore(folder / "weft.db", clock=clock, inline_commit_s=0)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def open_store() -> OpenStore:
    return threaded
