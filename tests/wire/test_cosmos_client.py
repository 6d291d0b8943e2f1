"""The client's life: opened once, closed once, nothing left behind; and what it counts."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import warnings
from typing import Any

import pytest
from azure.core.credentials import AccessToken

from orchestrator.adapters.azure.cosmos_containers import definition, definitions
from orchestrator.adapters.azure.cosmos_store import CosmosStore
from orchestrator.domain.topology import CONTAINERS, EXECUTIONS
from orchestrator.ports import Create, Query, Unavailable
from tests.wire.cosmos.opening import DATABASE, KEY, wire_store


def doc(id: str, **fields: Any) -> dict[str, Any]:
    return {"id": id, "tenantId": "t", "executionId": "e1", **fields}


E1 = ("t", "e1")


async def test_200_operations_leave_no_unclosed_session(caplog: pytest.LogCaptureFixture) -> None:
    """Azure/azure-sdk-for-python#8990, #13242, #16757."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        async with wire_store() as (server, store):
            for n in range(50):
                await store.create(EXECUTIONS, E1, doc(f"d{n}"))
                await store.read(EXECUTIONS, E1, f"d{n}")
                await store.query(EXECUTIONS, Query(partition=E1, limit=1))
                await store.changes(EXECUTIONS, None, 1)
            assert server.counters.requests["account"] <= 2  # one client, opened once
            await store.close()
            await store.close()
            with pytest.raises(Unavailable, match="closed"):
                await store.read(EXECUTIONS, E1, "d0")
        gc.collect()
        await asyncio.sleep(0)
    assert [str(one.message) for one in seen if "nclosed" in str(one.message)] == []
    assert "nclosed" not in caplog.text
    assert all(record.levelno < logging.ERROR for record in caplog.records)


async def test_a_client_that_cannot_open_leaves_nothing_either() -> None:
    async with wire_store() as (server, _):
        endpoint = server.endpoint
    store = CosmosStore(endpoint, DATABASE, KEY)
    with pytest.raises(Unavailable):
        await store.open()
    with pytest.raises(Unavailable):
        await store.read(EXECUTIONS, E1, "a")
    await store.close()
    gc.collect()


class Credential:
    """A token credential, as a managed identity is."""

    def __init__(self) -> None:
        self.scopes: list[str] = []
        self.closed = False

    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.scopes += scopes
        return AccessToken("token", int(time.time()) + 3600)

    async def close(self) -> None:
        self.closed = True

    async def __aenter__(self) -> Credential:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def test_a_token_never_leaves_over_plain_http_and_stays_its_owners_to_close() -> None:
    """Managed identities need https; only keys (the emulator, these tests) go without."""
    async with wire_store() as (server, _):
        server.counters.clear()
        credential = Credential()
        store = CosmosStore(server.endpoint, DATABASE, credential)
        with pytest.raises(Unavailable):
            await store.open()
        assert server.counters.requests == {}
    assert not credential.closed


async def test_charges_and_requests_are_counted_per_operation() -> None:
    heard: list[tuple[str, float]] = []
    async with wire_store(on_charge=lambda name, units: heard.append((name, units))) as (
        server,
        store,
    ):
        await store.create(EXECUTIONS, E1, doc("a"))
        await store.batch(EXECUTIONS, E1, [Create(doc("b")), Create(doc("c", x="y" * 9_000))])
        await asyncio.gather(*(store.read(EXECUTIONS, E1, "a") for _ in range(5)))
        await store.read_many(EXECUTIONS, E1, ["a", "b", "nothing"])
        await store.query(EXECUTIONS, Query(partition=E1))
        meter = store.meter
        assert meter.calls == {"create": 1, "batch": 1, "read": 8, "query": 1}
        assert meter.requests["read"] == 8
        assert meter.charges["read"] == pytest.approx(8.0)  # a missing document costs one too
        asked = server.counters.charges
        # The container's properties are read by whoever comes first.
        assert meter.charges["create"] == pytest.approx(asked["create"] + asked["container"])
        assert meter.charges["batch"] == pytest.approx(asked["batch"])
        assert meter.charges["query"] == pytest.approx(asked["query"])
        total = sum(meter.charges.values())
        assert sum(units for _, units in heard) == pytest.approx(total)
        assert total == pytest.approx(sum(asked.values()))


async def test_errors_and_logs_name_the_operation_and_never_the_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = "s3cr3t-value"
    async with wire_store(throttle_budget_ms=1) as (server, store):
        with caplog.at_level(logging.DEBUG):
            await store.create(EXECUTIONS, E1, doc("a", x=secret))
            for options in ({"status": 429}, {"status": 503}, {"drop": True}):
                server.faults.add("upsert", **options)
                with pytest.raises(Exception, match="upsert executions") as caught:
                    await store.upsert(EXECUTIONS, E1, doc("a", x=secret))
                assert secret not in str(caught.value)
    assert secret not in caplog.text
    assert KEY not in caplog.text


def test_containers_are_defined_as_the_store_needs_them() -> None:
    by_name = {one["id"]: one for one in definitions()}
    assert set(by_name) == set(CONTAINERS)
    executions = by_name[EXECUTIONS]
    assert executions["partitionKey"] == {
        "paths": ["/tenantId", "/executionId"],
        "kind": "MultiHash",
        "version": 2,
    }
    assert {one["defaultTtl"] for one in by_name.values()} == {-1}
    policy = executions["indexingPolicy"]
    # Task map, events and payloads are not indexed: only what the sweeper and lists ask for.
    assert policy["excludedPaths"] == [{"path": "/*"}]
    included = {one["path"] for one in policy["includedPaths"]}
    names = ("tenantId", "executionId", "type", "sweepAt", "createdAt", "receivedAt")
    assert included == {f"/{name}/?" for name in names}
    first = [[part["path"] for part in one] for one in policy["compositeIndexes"]]
    assert first == [["/sweepAt", "/id"], ["/createdAt", "/id"], ["/receivedAt", "/id"]]
    assert definition(CONTAINERS["control"])["partitionKey"]["kind"] == "Hash"
