"""The emulators' set-up: one list of queues, one table of containers, nothing open to the network.

No Docker here, so what is tested is the files and the code that fills the emulators.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from azure.core.exceptions import AzureError

from infra.emulator import create, servicebus_config
from orchestrator import bootstrap_azure
from orchestrator.adapters.local.system import SystemClock
from orchestrator.domain.topology import CONTAINERS, EXECUTIONS, QUEUES
from orchestrator.engine.metrics import Metrics
from orchestrator.settings import load_settings
from orchestrator.settings_azure import AzureSettings
from tests.wire.blob.server import BlobServer
from tests.wire.cosmos.server import CosmosServer
from tests.wire.cosmos.state import Account
from tests.wire.servicebus import ServiceBusBroker

ROOT = Path(__file__).parents[2]
SAMPLE: dict[str, str] = json.loads((ROOT / "local.settings.sample.json").read_text())["Values"]


def services() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


# --- Service Bus ----------------------------------------------------------------------------------


def test_the_emulators_queues_are_those_of_the_topology() -> None:
    file = ROOT / "infra" / "emulator" / "servicebus-config.json"
    assert file.read_text() == servicebus_config.text()
    (namespace,) = servicebus_config.config()["UserConfig"]["Namespaces"]
    assert [queue["Name"] for queue in namespace["Queues"]] == list(QUEUES)


def test_the_emulators_queues_are_within_its_limits_and_as_strict_as_they_allow() -> None:
    (namespace,) = servicebus_config.config()["UserConfig"]["Namespaces"]
    for queue in namespace["Queues"]:
        spec, properties = QUEUES[queue["Name"]], queue["Properties"]
        assert properties["RequiresDuplicateDetection"] is True
        assert properties["RequiresSession"] is False
        assert properties["MaxDeliveryCount"] == min(spec.max_delivery_count, 10)
        assert seconds(properties["LockDuration"]) == min(spec.lock_seconds, 300)
        window = seconds(properties["DuplicateDetectionHistoryTimeWindow"])
        assert window == min(spec.duplicate_window_seconds, 300)


def seconds(duration: str) -> int:
    match = re.fullmatch(r"PT(\d+)S", duration)
    assert match, duration
    return int(match[1])


# --- the compose file -----------------------------------------------------------------------------


def test_the_emulators_are_the_official_ones_and_reachable_from_this_machine_only() -> None:
    found = services()
    assert {name: one["image"].split(":")[0] for name, one in found.items()} == {
        "cosmos": "mcr.microsoft.com/cosmosdb/linux/azure-cosmos-emulator",
        "servicebus": "mcr.microsoft.com/azure-messaging/servicebus-emulator",
        "sql": "mcr.microsoft.com/mssql/server",
        "azurite": "mcr.microsoft.com/azure-storage/azurite",
    }
    for name, one in found.items():
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", ())), name
    assert "ports" not in found["sql"]
    assert found["servicebus"]["depends_on"] == ["sql"]
    (volume,) = found["servicebus"]["volumes"]
    assert (ROOT / volume.split(":")[0]).is_file()


def test_nobody_accepts_a_licence_or_chooses_a_password_for_the_user() -> None:
    for name in ("servicebus", "sql"):
        environment = services()[name]["environment"]
        for variable in ("ACCEPT_EULA", "MSSQL_SA_PASSWORD"):
            assert re.match(r"\$\{(ACCEPT_EULA|SQL_PASSWORD):\?", environment[variable])


def test_the_sample_settings_point_at_the_published_ports() -> None:
    ports = {port.split(":")[1] for one in services().values() for port in one.get("ports", ())}
    cosmos, key = bootstrap_azure.cosmos_parts(SAMPLE["Cosmos"])
    assert cosmos == "https://localhost:8081/"
    assert key.endswith("==")
    assert {"8081", "5672", "10000", "10001", "10002"} <= ports
    assert SAMPLE["ServiceBus"].startswith("Endpoint=sb://localhost;")  # the standard port


# --- what Bicep does in Azure ---------------------------------------------------------------------


def settings(cosmos: CosmosServer, blob: BlobServer, bus: str = "") -> AzureSettings:
    azure = load_settings(
        SAMPLE
        | {
            "Cosmos": f"AccountEndpoint={cosmos.endpoint};AccountKey=a2V5;",
            "Payloads": blob.connection_string,
            **({"ServiceBus": bus} if bus else {}),
        }
    ).azure
    assert azure is not None
    return azure


async def test_create_makes_everything_the_app_expects_and_may_be_repeated() -> None:
    account = Account(SystemClock().now)
    async with CosmosServer(account) as cosmos, BlobServer(container="") as blob:
        given = settings(cosmos, blob)
        await create.create(given, tries=1)
        await create.create(given, tries=1)
        made = account.databases["weft"]
        assert set(made) == set(CONTAINERS)
        definition = made[EXECUTIONS].to_json()
        assert definition["partitionKey"]["paths"] == ["/tenantId", "/executionId"]
        assert definition["defaultTtl"] == -1
        assert definition["indexingPolicy"]["compositeIndexes"]
        assert blob.container == "payloads"

        broker = ServiceBusBroker().start()
        ports = await bootstrap_azure.open_ports(
            settings(cosmos, blob, broker.connection_string),
            secrets_file=None,
            clock=SystemClock(),
            metrics=Metrics(),
        )
        body = {"id": "e", "tenantId": "t", "executionId": "e"}
        await ports.store.create(EXECUTIONS, ("t", "e"), body)
        assert await ports.payloads.get(await ports.payloads.put("t", "e", "n", b"x")) == b"x"
        for port in (ports.transport, ports.store, *ports.others):
            await port.close()
        broker.stop()


async def test_create_waits_for_an_emulator_that_starts() -> None:
    account = Account(SystemClock().now)
    async with CosmosServer(account) as cosmos, BlobServer(container="") as blob:
        blob.fail_next(409)  # exists: fine
        blob.fail_next(400, times=2)
        await create.create(settings(cosmos, blob), tries=1)
        with pytest.raises(AzureError):
            await create.create(settings(cosmos, blob), tries=1)
        await create.create(settings(cosmos, blob), tries=2, wait_s=0)
        assert blob.container == "payloads"


def test_create_refuses_settings_that_name_no_emulator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.json"
    identity = {
        "WEFT_BACKEND": "azure",
        "WEFT_AUTH_EASY": "true",
        "Cosmos__accountEndpoint": "https://a.documents.azure.com/",
        "ServiceBus__fullyQualifiedNamespace": "n.servicebus.windows.net",
        "Payloads__blobServiceUri": "https://a.blob.core.windows.net/",
        "COSMOS_DATABASE": "weft",
    }
    for values in (identity, {"WEFT_BACKEND": "local"}, {"WEFT_BACKEND": "azure"}):
        file.write_text(json.dumps({"Values": values}))
        assert create.main([str(file)]) == 2
    assert "Bicep" in capsys.readouterr().err
    assert create.main([str(tmp_path / "missing.json")]) == 2
