"""Random operations against a dictionary: the store is nothing more than that, made durable."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from contract_support import ManualClock, OpenStore
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.domain.topology import EXECUTIONS
from orchestrator.ports import (
    Conflict,
    Create,
    Delete,
    Document,
    DocumentStore,
    NotFound,
    Operation,
    PreconditionFailed,
    Query,
    Replace,
    StoreError,
    Upsert,
    Where,
)

PARTITIONS = [("t", "e"), ("t", "e2"), ("te", "2")]
IDS = ["a", "b", "c:1", "ü"]

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.lists(st.integers(0, 3), max_size=2),
)
fields = st.dictionaries(st.sampled_from(["type", "sweepAt", "n"]), values, max_size=3)
steps = st.lists(
    st.tuples(
        st.sampled_from(PARTITIONS),
        st.lists(
            st.tuples(
                st.sampled_from([Create, Create, Replace, Upsert, Delete]),
                st.sampled_from(IDS),
                fields,
                st.sampled_from(["any", "right", "stale"]),
            ),
            min_size=1,
            max_size=4,
        ),
    ),
    max_size=12,
)


@dataclass
class Model:
    """What must be stored, with etags as the store gave them, in order of change."""

    documents: dict[tuple[tuple[str, ...], str], tuple[dict[str, Any], str]] = field(
        default_factory=dict
    )

    def expected(
        self, partition: tuple[str, ...], operations: list[Operation]
    ) -> StoreError | None:
        """Apply (etags still ""), or the error and no change."""
        trial = dict(self.documents)
        for position, operation in enumerate(operations):
            id = operation.id if isinstance(operation, Delete) else operation.body["id"]
            key = (partition, id)
            if isinstance(operation, Create) and key in trial:
                return Conflict("", operation=position)
            if isinstance(operation, Replace | Delete):
                if key not in trial:
                    return NotFound("", operation=position)
                if operation.if_match not in (None, trial[key][1]):
                    return PreconditionFailed("", operation=position)
            trial.pop(key, None)  # to the end of the order
            if not isinstance(operation, Delete):
                trial[key] = (operation.body, "")
        self.documents = trial
        return None


def build(model: Model, partition: tuple[str, ...], raw: list[Any]) -> list[Operation]:
    operations: list[Operation] = []
    for kind, id, extra, condition in raw:
        stored = model.documents.get((partition, id))
        right = stored[1] if stored else "999999"
        etag = {"any": None, "right": right, "stale": "0"}[condition]
        body = {"id": id, "tenantId": partition[0], "executionId": partition[1], **extra}
        if kind is Delete:
            operations.append(Delete(id, etag))
        elif kind is Replace:
            operations.append(Replace(body, etag))
        else:
            operations.append(kind(body))
    return operations


async def check(store: DocumentStore, model: Model, cursor: str | None) -> None:
    feed: list[Document] = []
    while True:
        page = await store.changes(EXECUTIONS, cursor, 1000)
        if not page.documents:
            break
        feed += page.documents
        cursor = page.cursor
    for partition in PARTITIONS:
        mine = {id: held for (place, id), held in model.documents.items() if place == partition}
        found = await store.query(EXECUTIONS, Query(partition=partition))
        assert found == [Document(id, *mine[id]) for id in sorted(mine)]
        assert await store.read_many(EXECUTIONS, partition, IDS) == {
            id: Document(id, *held) for id, held in mine.items()
        }
        # Oldest change first, which Cosmos promises within a logical partition only.
        assert [
            document
            for document in feed
            if (document.body["tenantId"], document.body["executionId"]) == partition
        ] == [Document(id, *held) for id, held in mine.items()]
    assert len(feed) == len(model.documents)

    def number(body: dict[str, Any], name: str) -> bool:
        return isinstance(body.get(name), int | float) and not isinstance(body[name], bool)

    for name in ("sweepAt", "n"):
        expected = sorted(
            (held[0][name], id, held[1])
            for (_, id), held in model.documents.items()
            if number(held[0], name) and held[0][name] <= 2
        )
        query = Query(where=(Where(name, "<=", 2),), order_by=name)
        found = await store.query(EXECUTIONS, query)
        got = [(document.body[name], document.id, document.etag) for document in found]
        assert sorted(got) == expected
        assert [row[:2] for row in got] == [row[:2] for row in expected]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps)
async def test_random_operations_agree_with_a_dictionary(
    open_store: OpenStore, script: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(Path(folder), ManualClock()) as store:
            model = Model()
            for partition, raw in script:
                operations = build(model, partition, raw)
                error = model.expected(partition, operations)
                if error is not None:
                    with pytest.raises(type(error)) as caught:
                        await store.batch(EXECUTIONS, partition, operations)
                    assert caught.value.operation == error.operation
                    continue
                etags = await store.batch(EXECUTIONS, partition, operations)
                for operation, etag in zip(operations, etags, strict=True):
                    if not isinstance(operation, Delete):
                        key = (partition, operation.body["id"])
                        if key in model.documents:
                            model.documents[key] = (model.documents[key][0], etag)
            await check(store, model, None)
