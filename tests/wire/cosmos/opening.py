"""Stores for the contract suite: on this package's server, on the emulator, or on a real account.

By default each folder of a test is an account of its own in memory. To run the very same suite
elsewhere, set

    WEFT_TEST_COSMOS_ENDPOINT   https://localhost:8081/ or https://NAME.documents.azure.com:443/
    WEFT_TEST_COSMOS_KEY        the account key; left out: DefaultAzureCredential (the identity
                                then also needs the right to create databases and containers)

    pytest tests/contract -k cosmos

Each folder of a test then becomes a database `weft-contract-…`, created with the containers of
`cosmos_containers` and deleted when the session ends; 400 RU/s are enough, an account with the
"free tier" will do. Tests that move the clock (time to live) are skipped there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import azure.cosmos
import azure.identity
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.identity.aio import DefaultAzureCredential

from orchestrator.adapters.azure.cosmos_containers import definition, definitions
from orchestrator.adapters.azure.cosmos_store import CosmosStore
from orchestrator.domain.topology import CATALOG, CONTAINERS, CONTROL, EXECUTIONS, VISIBILITY
from tests.wire.cosmos.server import CosmosServer
from tests.wire.cosmos.state import Account

DATABASE = "weft"
KEY = "a2V5"  # the server checks no signatures; the SDK wants base64

_USED = (EXECUTIONS, CATALOG, CONTROL, VISIBILITY)
_NAMES = ("tag:region", "tag:app.kubernetes.io-name", "a.b", "é ü", "x') OR ('1' = '1", "$", "[0]")
_TAGS = ("tag:env", "tag:app.kubernetes.io", "tag:_", "tag:0", "tag:-")
_ORDERED = {EXECUTIONS: ("n", *_NAMES, *_TAGS), CATALOG: ("n",)}
"""What the suite orders by, beside our own."""
_last: dict[Path, Account] = {}  # the data of the test that runs
_databases: set[str] = set()  # to delete from a real account


def _definitions() -> list[dict[str, Any]]:
    return [definition(CONTAINERS[name], ordered=_ORDERED.get(name, ())) for name in _USED]


@asynccontextmanager
async def cosmos_store(folder: Path, clock: Any) -> AsyncIterator[CosmosStore]:
    """An open store whose data lives as long as `folder` is used; `clock.now()` decides expiry."""
    endpoint = os.environ.get("WEFT_TEST_COSMOS_ENDPOINT")
    if endpoint:
        async with _real_store(endpoint, folder, clock) as store:
            yield store
        return
    if folder not in _last:
        _last.clear()
        _last[folder] = account = Account(clock.now)
        account.create(DATABASE, *_definitions())
    async with CosmosServer(_last[folder]) as server:
        store = CosmosStore(server.endpoint, DATABASE, KEY)
        await store.open()
        try:
            yield store
        finally:
            await store.close()


@asynccontextmanager
async def wire_store(
    account: Account | None = None, **options: Any
) -> AsyncIterator[tuple[CosmosServer, CosmosStore]]:
    """A server with all our containers, and an open store on it; `options` are the store's."""
    if account is None:
        account = Account()
        account.create(DATABASE, *definitions())
    async with CosmosServer(account) as server:
        store = CosmosStore(server.endpoint, DATABASE, KEY, **options)
        await store.open()
        try:
            yield server, store
        finally:
            await store.close()


@asynccontextmanager
async def _real_store(endpoint: str, folder: Path, clock: Any) -> AsyncIterator[CosmosStore]:
    clock.advance = lambda **_: pytest.skip("time cannot be moved in a real account")
    database = f"weft-contract-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    credential = _credential()
    try:
        if database not in _databases:
            _databases.add(database)
            await _provision(endpoint, credential, database)
        store = CosmosStore(endpoint, database, credential)
        await store.open()
        try:
            yield store
        finally:
            await store.close()
    finally:
        if not isinstance(credential, str):
            await credential.close()


def _credential() -> Any:
    return os.environ.get("WEFT_TEST_COSMOS_KEY") or DefaultAzureCredential()


async def _provision(endpoint: str, credential: Any, database: str) -> None:
    async with CosmosClient(endpoint, credential) as client:
        proxy = await client.create_database_if_not_exists(database, offer_throughput=400)
        for one in _definitions():
            key = one["partitionKey"]
            paths: Any = key["paths"] if key["kind"] == "MultiHash" else key["paths"][0]
            await proxy.create_container_if_not_exists(
                one["id"],
                PartitionKey(path=paths, kind=key["kind"]),
                indexing_policy=one["indexingPolicy"],
                default_ttl=one["defaultTtl"],
            )


def delete_databases() -> None:
    """What the suite created on a real account; called when the test session ends."""
    if not _databases:
        return
    credential = os.environ.get("WEFT_TEST_COSMOS_KEY") or azure.identity.DefaultAzureCredential()
    with azure.cosmos.CosmosClient(os.environ["WEFT_TEST_COSMOS_ENDPOINT"], credential) as client:
        while _databases:
            client.delete_database(_databases.pop())
