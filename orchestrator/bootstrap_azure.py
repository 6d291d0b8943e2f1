"""The Azure half of the composition root: one credential, one client per service and process.

Kept apart so that the embedded mode never imports an SDK: they take longer to import than all of
Weft. What was opened before something fails is closed again, because a function app whose build
fails is built again by the next request, and would leak its sessions each time.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Container, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from azure.core.credentials_async import AsyncTokenCredential

from orchestrator.adapters.azure.blob_payloads import BlobPayloads
from orchestrator.adapters.azure.cosmos_store import CosmosStore
from orchestrator.adapters.azure.credentials import make_credential
from orchestrator.adapters.azure.event_sink import AzureEventSink
from orchestrator.adapters.azure.keyvault_secrets import KeyVaultSecrets
from orchestrator.adapters.azure.servicebus_transport import ServiceBusTransport
from orchestrator.adapters.local.env_secrets import EnvSecrets
from orchestrator.domain.topology import QUEUES
from orchestrator.engine.core import Closing
from orchestrator.engine.metrics import Metrics
from orchestrator.ports import (
    Clock,
    DocumentStore,
    PayloadStore,
    Secrets,
    Transport,
    TransportError,
)
from orchestrator.ports_events import EventSink
from orchestrator.settings_azure import AzureSettings

_KEY: Final = re.compile(r"AccountKey=([^;]+)", re.IGNORECASE)
_ENDPOINT: Final = re.compile(r"AccountEndpoint=([^;]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AzurePorts:
    """The ports over Azure. Store and transport are the engine's to close; `others` too, after
    them: the credential last, since closing clients may still need a token."""

    store: DocumentStore
    transport: Transport
    payloads: PayloadStore
    secrets: Secrets
    sink: EventSink
    others: tuple[Closing, ...]


async def open_ports(
    settings: AzureSettings,
    *,
    secrets_file: Path | None,
    clock: Clock,
    metrics: Metrics,
    targets: Mapping[str, str] | None = None,
    store: DocumentStore | None = None,
    transport: Transport | None = None,
    payloads: PayloadStore | None = None,
    secrets: Secrets | None = None,
) -> AzurePorts:
    """Connect what is not given. `targets`: where events may be published to, by name. Raises
    `StoreError` if Cosmos DB refuses or cannot be reached."""
    async with AsyncExitStack() as opened:
        credential = make_credential(
            managed_identity=settings.managed_identity, client_id=settings.client_id
        )
        opened.push_async_callback(credential.close)
        others: list[Closing] = []
        if store is None:
            store = await _open_store(settings, credential, metrics, opened)
        if transport is None:
            transport = _transport(settings, credential, clock)
            opened.push_async_callback(transport.close)
        if payloads is None:
            payloads = BlobPayloads(
                container=settings.payloads_container,
                account_url=settings.payloads_uri,
                credential=credential,
                connection_string=settings.payloads_connection.get_secret_value(),
            )
            opened.push_async_callback(payloads.close)
            others.append(payloads)
        if secrets is None and settings.vault_uri:
            secrets = KeyVaultSecrets(vault_url=settings.vault_uri, credential=credential)
            opened.push_async_callback(secrets.close)
            others.append(secrets)
        sink = _sink(settings, credential, clock, targets or {})
        ports = AzurePorts(
            store=store,
            transport=transport,
            payloads=payloads,
            secrets=secrets or EnvSecrets(file=secrets_file),
            sink=sink,
            others=(*others, credential),
        )
        opened.pop_all()  # all is well: from here on the engine closes them
        return ports


async def warm_up(transport: Transport) -> None:
    """Open the links of a transport of ours ahead of the first send: that takes half a second,
    which the first caller need not wait for. Never raises; a broker that is down is met later."""
    if isinstance(transport, ServiceBusTransport):
        with contextlib.suppress(TransportError):
            await transport.warm_up()


async def _open_store(
    settings: AzureSettings,
    credential: AsyncTokenCredential,
    metrics: Metrics,
    opened: AsyncExitStack,
) -> CosmosStore:
    def charged(operation: str, units: float) -> None:
        metrics.count("weft_cosmos_requests_total", operation)
        metrics.count("weft_cosmos_request_milliunits_total", operation, round(units * 1000))

    endpoint, key = cosmos_parts(settings.cosmos_connection.get_secret_value())
    store = CosmosStore(
        endpoint or settings.cosmos_endpoint,
        settings.cosmos_database,
        key or credential,
        on_charge=charged,
        on_foreign_row=lambda: metrics.count("weft_foreign_rows_total"),
    )
    opened.push_async_callback(store.close)
    await store.open()
    return store


def cosmos_parts(connection: str) -> tuple[str, str]:
    """Endpoint and key of an emulator's connection string; empty without one."""
    endpoint, key = _ENDPOINT.search(connection), _KEY.search(connection)
    return (endpoint[1] if endpoint else "", key[1] if key else "")


def _transport(
    settings: AzureSettings,
    credential: AsyncTokenCredential,
    clock: Clock,
    queues: Container[str] = QUEUES,
) -> ServiceBusTransport:
    connection = settings.bus_connection.get_secret_value()
    if connection:
        return ServiceBusTransport.from_connection_string(connection, clock=clock, queues=queues)
    return ServiceBusTransport.from_credential(
        settings.bus_namespace, credential, clock=clock, queues=queues
    )


def _sink(
    settings: AzureSettings,
    credential: AsyncTokenCredential,
    clock: Clock,
    targets: Mapping[str, str],
) -> AzureEventSink:
    """A connection of its own: a target that cannot be reached must not hold up the platform's
    messages."""
    queues = frozenset(address.removeprefix("queue:") for address in targets.values())
    return AzureEventSink(
        targets,
        credential=credential,
        open_transport=lambda: _transport(settings, credential, clock, queues),
    )
