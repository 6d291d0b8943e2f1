"""The composition root in Azure mode: one client of each kind, all closed, none imported early."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from orchestrator import bootstrap, bootstrap_azure
from orchestrator.adapters.azure.blob_payloads import BlobPayloads
from orchestrator.adapters.azure.cosmos_containers import definitions
from orchestrator.adapters.azure.cosmos_store import CosmosStore
from orchestrator.adapters.azure.keyvault_secrets import KeyVaultSecrets
from orchestrator.adapters.azure.servicebus_transport import ServiceBusTransport
from orchestrator.adapters.local.env_secrets import EnvSecrets
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import health
from orchestrator.functions.provider import EngineProvider
from orchestrator.ports import StoreError, Unavailable
from orchestrator.settings import Settings, load_settings
from tests.wire.blob.server import BlobServer
from tests.wire.cosmos.server import CosmosServer
from tests.wire.http_service import StaticCredential

ROOT = Path(__file__).parents[2]
NOBODY = "Endpoint=sb://127.0.0.1:9;SharedAccessKeyName=k;SharedAccessKey=a2V5;"


class Closed:
    """Counts how often each kind of client was made and closed."""

    KINDS = (CosmosStore, ServiceBusTransport, BlobPayloads, KeyVaultSecrets)

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.order: list[str] = []
        self.credential = StaticCredential()
        for kind in self.KINDS:
            self._watch(monkeypatch, kind)
        monkeypatch.setattr(bootstrap_azure, "make_credential", self._make_credential)

    def _make_credential(self, **_: Any) -> StaticCredential:
        self.made.append("credential")
        return self.credential

    def _watch(self, monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
        init, close = kind.__init__, kind.close

        def made(this: Any, *args: Any, **options: Any) -> None:
            self.made.append(kind.__name__)
            init(this, *args, **options)

        async def closed(this: Any) -> None:
            self.order.append(kind.__name__)
            await close(this)

        monkeypatch.setattr(kind, "__init__", made)
        monkeypatch.setattr(kind, "close", closed)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Closed:
    return Closed(monkeypatch)


@pytest.fixture
async def settings() -> AsyncIterator[Settings]:
    async with CosmosServer() as cosmos, BlobServer() as blob:
        cosmos.account.create("weft", *definitions())
        yield load_settings(
            {
                "WEFT_BACKEND": "azure",
                "WEFT_AUTH_EASY": "true",
                "WEFT_WORKER": "w",
                "Cosmos": f"AccountEndpoint={cosmos.endpoint};AccountKey=a2V5;",
                "COSMOS_DATABASE": "weft",
                "ServiceBus": f"{NOBODY}UseDevelopmentEmulator=true;",
                "Payloads": blob.connection_string,
                "KeyVault__vaultUri": "https://vault.example/",
            }
        )


async def test_clients_of_200_invocations_are_one_of_each_kind_and_all_are_closed(
    settings: Settings, closed: Closed
) -> None:
    """azure-sdk-for-python#8990 and its like: sessions leaked per invocation. `ResourceWarning` is
    an error here, so one that is not closed fails the test."""
    provider = EngineProvider(lambda: bootstrap.build(settings))
    engines = await asyncio.gather(*(provider.get() for _ in range(200)))
    assert len({id(engine) for engine in engines}) == 1
    assert sorted(closed.made) == sorted(["credential", *(kind.__name__ for kind in Closed.KINDS)])
    engine = engines[0]
    found = await engine.store.read_many(EXECUTIONS, ("t", "e"), ["x"])
    assert found == {}
    assert engine.metrics.value("weft_cosmos_requests_total", "read") >= 1
    assert engine.metrics.value("weft_cosmos_request_milliunits_total", "read") > 0
    await provider.close()
    await provider.close()
    assert closed.order == ["ServiceBusTransport", "CosmosStore", "BlobPayloads", "KeyVaultSecrets"]
    assert closed.credential.closed == 1


async def test_a_build_that_fails_leaves_nothing_open(settings: Settings, closed: Closed) -> None:
    """A function app whose database is out of reach builds again with each request."""
    assert settings.azure is not None
    nowhere = load_settings(
        {
            "WEFT_BACKEND": "azure",
            "WEFT_AUTH_EASY": "true",
            "Cosmos": "AccountEndpoint=http://127.0.0.1:9/;AccountKey=a2V5;",
            "COSMOS_DATABASE": "weft",
            "ServiceBus": settings.azure.bus_connection.get_secret_value(),
            "Payloads": settings.azure.payloads_connection.get_secret_value(),
        }
    )
    with pytest.raises(StoreError):
        await bootstrap.build(nowhere)
    assert closed.order == ["CosmosStore"]
    assert closed.credential.closed == 1


async def test_one_that_fails_to_close_does_not_keep_the_others_open(
    settings: Settings, closed: Closed, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await bootstrap.build(settings)
    close = engine.transport.close

    async def failing() -> None:
        await close()
        raise OSError("gone")

    monkeypatch.setattr(engine.transport, "close", failing)
    with pytest.raises(OSError, match="gone"):
        await engine.close()
    assert closed.order[-2:] == ["BlobPayloads", "KeyVaultSecrets"]
    assert closed.credential.closed == 1


async def test_health_asks_every_service_by_itself(
    settings: Settings, closed: Closed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cosmos DB and Blob Storage are there, the broker and the vault are not."""
    monkeypatch.setattr(health, "PROBE_S", 20.0)  # of a busy machine
    monkeypatch.setattr(KeyVaultSecrets, "_ask", AsyncMock(side_effect=Unavailable("away")))
    engine = await bootstrap.build(settings)
    view = await health.check(engine)
    answers = {name: check.ok for name, check in view.checks.items()}
    assert answers == {
        "store": True,
        "broker": False,
        "payloads": True,
        "secrets": False,
        "backlog": True,
        "activities": True,
    }
    assert view.status == "degraded"
    assert engine.backlog is None  # Service Bus cannot say what waits in it
    await engine.close()


async def test_without_a_vault_secrets_come_from_the_environment(settings: Settings) -> None:
    assert settings.azure is not None
    azure = settings.azure.model_copy(update={"vault_uri": ""})
    engine = await bootstrap.build(settings.model_copy(update={"azure": azure}))
    assert isinstance(engine.secrets, EnvSecrets)
    await engine.close()


def test_the_embedded_mode_imports_no_sdk() -> None:
    """They take longer than all the rest, and a broken one must not stop a laptop."""
    code = (
        "import sys; from orchestrator import bootstrap; import orchestrator.settings; "
        "print(sorted(name for name in sys.modules if name.startswith(('azure.', 'aiohttp'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
