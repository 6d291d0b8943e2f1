"""The adapters under contract, and what the suites share.

A new adapter adds one entry to the tables below and runs the very same tests. An adapter that is
listed and cannot start is an error, never a skip: an emulator that ignores `If-Match` must fail
loudly.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from orchestrator.adapters.azure.blob_payloads import BlobPayloads
from orchestrator.adapters.azure.keyvault_secrets import KeyVaultSecrets, secret_name
from orchestrator.adapters.local.env_secrets import EnvSecrets
from orchestrator.adapters.local.file_payloads import FilePayloads
from orchestrator.adapters.local.sqlite_broker import SqliteBroker
from orchestrator.adapters.local.sqlite_store import SqliteStore
from orchestrator.ports import DocumentStore, OutMessage, PayloadStore, Receiver, Secrets, Transport
from tests.simulation.broker import MemoryBroker
from tests.simulation.store import MemoryStore
from tests.wire import tls
from tests.wire.blob.server import BlobServer
from tests.wire.cosmos.opening import cosmos_store
from tests.wire.http_service import StaticCredential
from tests.wire.keyvault.server import KeyVaultServer

TENANT = "t"
START = 4_000_000_000_000
"""Epoch ms of the tests' clock: in 2096, because SDKs compare times on the wire with the machine's
clock and refuse to settle a message whose lock has ended by that."""


class ManualClock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> int:
        return self.time

    async def sleep(self, ms: int) -> None:
        self.time += ms

    def advance(self, *, seconds: float) -> None:
        self.time += int(seconds * 1000)


class Broker(Transport, Receiver, Protocol):
    """Both halves, as a broker under test has them."""


OpenStore = Callable[[Path, ManualClock], AbstractAsyncContextManager[DocumentStore]]
OpenBroker = Callable[[Path, ManualClock], AbstractAsyncContextManager[Broker]]
OpenPayloads = Callable[[Path], AbstractAsyncContextManager[PayloadStore]]
SecretValues = dict[str, dict[str, str]]  # tenant -> name -> value
OpenSecrets = Callable[[Path, SecretValues], AbstractAsyncContextManager[Secrets]]


@asynccontextmanager
async def sqlite_store(folder: Path, clock: ManualClock) -> AsyncIterator[DocumentStore]:
    store = SqliteStore(folder / "weft.db", clock=clock)
    await store.open()
    yield store
    await store.close()


@asynccontextmanager
async def sqlite_broker(folder: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    broker = SqliteBroker(folder / "broker.db", clock=clock)
    await broker.open()
    yield broker
    await broker.close()


_memories: dict[Path, MemoryStore] = {}


@asynccontextmanager
async def memory_store(folder: Path, clock: ManualClock) -> AsyncIterator[DocumentStore]:
    """The simulation's store; opening the same folder again finds the same documents."""
    store = _memories.setdefault(folder, MemoryStore(clock.now))
    store.closed = False
    yield store
    await store.close()


@asynccontextmanager
async def memory_broker(folder: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    """The simulation's broker."""
    yield MemoryBroker(clock.now)


@asynccontextmanager
async def file_payloads(folder: Path) -> AsyncIterator[PayloadStore]:
    yield FilePayloads(folder / "payloads")


@asynccontextmanager
async def wire_payloads(folder: Path) -> AsyncIterator[PayloadStore]:
    async with BlobServer() as server:
        payloads = BlobPayloads(
            container=server.container, connection_string=server.connection_string
        )
        yield payloads
        await payloads.close()


@asynccontextmanager
async def env_secrets(folder: Path, values: SecretValues) -> AsyncIterator[Secrets]:
    yield EnvSecrets(
        {
            f"WEFT_SECRET_{tenant.upper()}_{name.upper()}": value
            for tenant, names in values.items()
            for name, value in names.items()
        }
    )


@asynccontextmanager
async def wire_secrets(folder: Path, values: SecretValues) -> AsyncIterator[Secrets]:
    file = tls.certificate(folder)
    async with KeyVaultServer(tls.server_context(file)) as server:
        for tenant, names in values.items():
            for name, value in names.items():
                server.set(secret_name(tenant, name), value)
        secrets = KeyVaultSecrets(
            vault_url=server.url,
            credential=StaticCredential(),
            connection_verify=str(file),
            verify_challenge_resource=False,
        )
        yield secrets
        await secrets.close()


STORES: dict[str, OpenStore] = {
    "sqlite": sqlite_store,
    "cosmos": cosmos_store,
    "memory": memory_store,
}
BROKERS: dict[str, OpenBroker] = {"sqlite": sqlite_broker, "memory": memory_broker}
PAYLOADS: dict[str, OpenPayloads] = {"files": file_payloads, "blob": wire_payloads}
SECRETS: dict[str, OpenSecrets] = {"environment": env_secrets, "keyvault": wire_secrets}


def doc(execution: str, id: str, *, tenant: str = TENANT, **fields: Any) -> dict[str, Any]:
    """A body for container `executions`."""
    return {"id": id, "tenantId": tenant, "executionId": execution, **fields}


def message(id: str, queue: str = "orchestration", **fields: Any) -> OutMessage:
    """A message whose body names it."""
    return OutMessage(queue=queue, body=fields.pop("body", id.encode()), message_id=id, **fields)
