"""Create what Bicep creates in Azure, in the emulators of `docker-compose.yml`.

    python -m infra.emulator.create [FILE]     FILE: local.settings.json, or the sample

Database, containers with their partition keys and indexes, blob container; the queues come with the
Service Bus emulator's configuration. Safe to repeat. An app never creates any of these itself: in
Azure its identity may not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any, Final

from azure.core.exceptions import AzureError, ResourceExistsError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.storage.blob.aio import BlobServiceClient

from orchestrator.adapters.azure.cosmos_containers import definitions
from orchestrator.bootstrap_azure import cosmos_parts
from orchestrator.settings import SettingsError, load_settings
from orchestrator.settings_azure import AzureSettings

SAMPLE: Final = Path(__file__).parents[2] / "local.settings.sample.json"
TRIES: Final = 60
WAIT_S: Final = 2.0  # the Cosmos DB emulator needs half a minute to start


async def create(settings: AzureSettings, *, tries: int = TRIES, wait_s: float = WAIT_S) -> None:
    """Create everything that is missing; waits for emulators that are still starting. Raises the
    SDKs' errors after `tries`."""
    for attempt in range(1, tries + 1):
        try:
            await _cosmos(settings)
            await _blob(settings)
        except AzureError:
            if attempt == tries:
                raise
            await asyncio.sleep(wait_s)
        else:
            return


async def _cosmos(settings: AzureSettings) -> None:
    endpoint, key = cosmos_parts(settings.cosmos_connection.get_secret_value())
    async with CosmosClient(endpoint, key) as client:
        database = await client.create_database_if_not_exists(settings.cosmos_database)
        for one in definitions():
            paths: Any = one["partitionKey"]["paths"]
            kind: Any = one["partitionKey"]["kind"]
            await database.create_container_if_not_exists(
                one["id"],
                PartitionKey(path=paths if kind == "MultiHash" else paths[0], kind=kind),
                indexing_policy=one["indexingPolicy"],
                default_ttl=one["defaultTtl"],
            )


async def _blob(settings: AzureSettings) -> None:
    connection = settings.payloads_connection.get_secret_value()
    async with BlobServiceClient.from_connection_string(connection) as service:
        with contextlib.suppress(ResourceExistsError):
            await service.create_container(settings.payloads_container)


def main(arguments: list[str]) -> int:
    """The exit code; 2 for settings that do not name emulators."""
    file = Path(arguments[0]) if arguments else SAMPLE
    try:
        azure = load_settings(json.loads(file.read_text())["Values"]).azure
    except (OSError, KeyError, ValueError, SettingsError) as error:
        sys.stderr.write(f"{file}: {error}\n")
        return 2
    if azure is None or not (
        azure.cosmos_connection.get_secret_value() and azure.payloads_connection.get_secret_value()
    ):
        sys.stderr.write(f"{file}: names no emulators; in Azure, Bicep creates the resources\n")
        return 2
    asyncio.run(create(azure))
    sys.stdout.write(f"database {azure.cosmos_database} and its containers are there\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
