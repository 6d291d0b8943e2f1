"""Transactional batches: all or nothing, the culprit named, neighbours untouched."""

from __future__ import annotations

import asyncio

import pytest
from contract_support import TENANT, doc

from orchestrator.domain.topology import EXECUTIONS
from orchestrator.ports import (
    Conflict,
    Create,
    Delete,
    DocumentStore,
    NotFound,
    Operation,
    PreconditionFailed,
    Query,
    Replace,
    StoreError,
    Upsert,
)

E1 = (TENANT, "e1")


async def contents(store: DocumentStore, execution: str = "e1") -> dict[str, object]:
    documents = await store.query(EXECUTIONS, Query(partition=(TENANT, execution)))
    return {document.id: document.body.get("v") for document in documents}


async def test_a_batch_applies_all_and_returns_etags_in_order(store: DocumentStore) -> None:
    await store.create(EXECUTIONS, E1, doc("e1", "old", v=0))
    etag = await store.create(EXECUTIONS, E1, doc("e1", "e1", v=0))
    etags = await store.batch(
        EXECUTIONS,
        E1,
        [
            Replace(doc("e1", "e1", v=1), etag),
            Create(doc("e1", "events:1", v=1)),
            Delete("old"),
            Upsert(doc("e1", "task:a", v=1)),
        ],
    )
    assert await contents(store) == {"e1": 1, "events:1": 1, "task:a": 1}
    assert etags[2] == ""
    for position, id in ((0, "e1"), (1, "events:1"), (3, "task:a")):
        assert (await store.read(EXECUTIONS, E1, id)).etag == etags[position]


async def test_operations_of_a_batch_see_each_other(store: DocumentStore) -> None:
    await store.batch(
        EXECUTIONS,
        E1,
        [
            Create(doc("e1", "a", v=1)),
            Replace(doc("e1", "a", v=2)),
            Delete("a"),
            Create(doc("e1", "a", v=3)),
        ],
    )
    assert await contents(store) == {"a": 3}


async def test_stale_etag_in_a_batch_refuses_the_whole_batch(store: DocumentStore) -> None:
    """The emulator case: 412 on the first operation, no document changed."""
    stale = await store.create(EXECUTIONS, E1, doc("e1", "e1", v=0))
    await store.replace(EXECUTIONS, E1, doc("e1", "e1", v=1), if_match=stale)
    with pytest.raises(PreconditionFailed) as caught:
        await store.batch(
            EXECUTIONS, E1, [Replace(doc("e1", "e1", v=9), stale), Create(doc("e1", "events:9"))]
        )
    assert caught.value.operation == 0
    assert await contents(store) == {"e1": 1}


@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("kind", ["conflict", "stale", "missing", "deleteStale", "deleteMissing"])
async def test_batch_errors_carry_the_operation_that_failed(
    store: DocumentStore, position: int, kind: str
) -> None:
    """Not the 424 of its neighbours."""
    await store.create(EXECUTIONS, E1, doc("e1", "there", v=0))
    failing: dict[str, tuple[Operation, type[StoreError]]] = {
        "conflict": (Create(doc("e1", "there", v=9)), Conflict),
        "stale": (Replace(doc("e1", "there", v=9), "0"), PreconditionFailed),
        "missing": (Replace(doc("e1", "gone", v=9)), NotFound),
        "deleteStale": (Delete("there", "0"), PreconditionFailed),
        "deleteMissing": (Delete("gone"), NotFound),
    }
    operation, error = failing[kind]
    operations: list[Operation] = [Create(doc("e1", f"new{n}")) for n in range(4)]
    operations.insert(position, operation)
    with pytest.raises(StoreError) as caught:
        await store.batch(EXECUTIONS, E1, operations)
    assert type(caught.value) is error
    assert caught.value.operation == position
    assert await contents(store) == {"there": 0}
    assert len((await store.changes(EXECUTIONS, None, 10)).documents) == 1


async def test_a_failing_batch_does_not_spoil_those_beside_it(store: DocumentStore) -> None:
    """All in one tick of the loop, where an adapter may group them."""
    await store.create(EXECUTIONS, (TENANT, "e3"), doc("e3", "there"))

    def submit(n: int) -> asyncio.Future[list[str]]:
        execution = f"e{n}"
        second = doc(execution, "there" if n % 3 == 0 else "b")
        operations = [Create(doc(execution, "a", v=n)), Create(second), Create(doc(execution, "c"))]
        return asyncio.ensure_future(store.batch(EXECUTIONS, (TENANT, execution), operations))

    for n in range(0, 30, 3):
        await store.upsert(EXECUTIONS, (TENANT, f"e{n}"), doc(f"e{n}", "there"))
    results = await asyncio.gather(*(submit(n) for n in range(30)), return_exceptions=True)
    for n, result in enumerate(results):
        if n % 3 == 0:
            assert isinstance(result, Conflict)
            assert result.operation == 1
            assert set(await contents(store, f"e{n}")) == {"there"}
        else:
            assert isinstance(result, list)
            assert set(await contents(store, f"e{n}")) == {"a", "b", "c"}
            assert [
                (await store.read(EXECUTIONS, (TENANT, f"e{n}"), id)).etag for id in "abc"
            ] == result


async def test_competing_batches_of_one_execution_apply_one_after_the_other(
    store: DocumentStore,
) -> None:
    """The engine's commit: reload and decide again on 412, until all are in."""
    await store.create(EXECUTIONS, E1, doc("e1", "e1", v=0))

    async def add(n: int) -> None:
        while True:
            head = await store.read(EXECUTIONS, E1, "e1")
            seq = head.body["v"] + 1
            try:
                await store.batch(
                    EXECUTIONS,
                    E1,
                    [
                        Replace(doc("e1", "e1", v=seq), head.etag),
                        Create(doc("e1", f"events:{seq:010}", v=n)),
                    ],
                )
            except PreconditionFailed:
                continue
            return

    await asyncio.gather(*(add(n) for n in range(12)))
    found = await contents(store)
    assert found.pop("e1") == 12
    assert sorted(found) == [f"events:{seq:010}" for seq in range(1, 13)]
    assert sorted(found.values()) == list(range(12))  # type: ignore[type-var]


async def test_a_cancelled_caller_leaves_all_or_nothing(store: DocumentStore) -> None:
    for n in range(20):
        execution = f"e{n}"
        writing = asyncio.ensure_future(
            store.batch(
                EXECUTIONS,
                (TENANT, execution),
                [Create(doc(execution, "a")), Create(doc(execution, "b"))],
            )
        )
        for _ in range(n % 5):
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await store.upsert(EXECUTIONS, (TENANT, execution), doc(execution, "c"))
        assert len(await contents(store, execution)) in (1, 3)
