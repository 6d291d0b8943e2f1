"""The Bicep files against the code that relies on them, and against what must never be deployed.

Every rule is shown to fail: `test_a_broken_template_is_noticed` breaks a copy for each.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from infra.outputs import named as outputs_of_arm
from orchestrator.engine.metrics_catalog import METRICS
from orchestrator.settings import load_settings
from tests.infra import lint, rules, rules_durable
from tests.infra.bicep import BicepError, Template, deployment

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
PARAMETERS = ("main.bicepparam", "main.dev.bicepparam", "main.prod.bicepparam")
ENVIRONMENT = {
    "AZURE_ENV_NAME": "test",
    "AZURE_PRINCIPAL_ID": "11111111-1111-4111-8111-111111111111",
    "BUDGET_START": "2027-01-01",
    "ALERT_EMAILS": "ops@example.com,owner@example.com",
}
FILES = sorted(path for path in INFRA.rglob("*.bicep"))
Rule = Callable[[Template], Iterator[str]]
ALWAYS: list[Rule] = [
    rules.queue_faults,
    rules.container_faults,
    rules.settings_faults,
    rules.function_faults,
    rules.key_faults,
    rules.role_faults,
    rules.operation_faults,
    rules_durable.hub_faults,
]


@cache
def deployed(parameters: str) -> Template:
    return deployment(INFRA, parameters, ENVIRONMENT)


@pytest.mark.parametrize("parameters", PARAMETERS)
@pytest.mark.parametrize("rule", ALWAYS, ids=lambda rule: rule.__name__)
def test_the_deployment_holds_what_the_code_relies_on(rule: Rule, parameters: str) -> None:
    assert list(rule(deployed(parameters))) == []


@pytest.mark.parametrize("parameters", PARAMETERS)
@pytest.mark.parametrize("rule", ALWAYS, ids=lambda rule: rule.__name__)
def test_so_does_one_with_a_durable_task_scheduler(rule: Rule, parameters: str) -> None:
    assert list(rule(with_scheduler(INFRA, parameters))) == []


@cache
def with_scheduler(infra: Path, parameters: str) -> Template:
    return deployment(infra, parameters, {**ENVIRONMENT, "DURABLE_BACKEND": "scheduler"})


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("app/scheduler", "name: hubName", "name: 'default'"),
        ("app/scheduler", "scope: scheduler", "scope: hub"),
        ("app/api", "'azureManaged'", "'mssql'"),
        ("app/api", "ClientID=${clientId}", "ClientID=x"),
        ("app/api", ": 'DURABLE_TASK_SCHEDULER_CONNECTION_STRING'", ": 'OTHER'"),
        ("app/rbac", "= if (hubInStorage)", "= if (!empty(principalId))"),
        ("main", "['0.0.0.0/0']", "['']"),
    ],
)
def test_a_hub_that_nobody_finds_is_noticed(
    module: str, old: str, new: str, tmp_path: Path
) -> None:
    copy = tmp_path / "infra"
    shutil.copytree(INFRA, copy)
    path = copy / f"{module}.bicep"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    assert list(rules_durable.hub_faults(with_scheduler(copy, "main.prod.bicepparam")))


def test_prod_is_closed() -> None:
    assert list(rules.public_faults(deployed("main.prod.bicepparam"))) == []


def test_the_network_of_azd_closes_everything_but_the_api() -> None:
    closed = deployment(INFRA, "main.bicepparam", {**ENVIRONMENT, "VNET_ENABLED": "true"})
    (site,) = rules.of_type(closed, rules.SITE)
    assert list(rules.public_faults(closed)) == [
        f"{rules.SITE} {site.name} can be reached from outside"
    ]


def test_prod_is_the_size_that_is_promised() -> None:
    prod = deployed("main.prod.bicepparam")
    (account,) = rules.of_type(prod, "Microsoft.DocumentDB/databaseAccounts")
    (bus,) = rules.of_type(prod, "Microsoft.ServiceBus/namespaces")
    (site,) = rules.of_type(prod, rules.SITE)
    (plan,) = rules.of_type(prod, "Microsoft.Web/serverfarms")
    config = site.properties["functionAppConfig"]
    assert account.properties["locations"][0]["isZoneRedundant"] is True
    assert account.properties["capabilities"] == []  # autoscale, not serverless
    assert bus.body["sku"] == {"name": "Premium", "tier": "Premium", "capacity": 1}
    assert plan.body["sku"]["name"] == "FC1"
    assert plan.properties["zoneRedundant"] is True
    assert config["siteUpdateStrategy"] == {"type": "RollingUpdate"}
    assert {one["name"] for one in config["scaleAndConcurrency"]["alwaysReady"]} == {
        "http",
        "function:orchestration",
    }
    assert rules.of_type(prod, "Microsoft.Consumption/budgets")


def test_dev_is_pay_per_use() -> None:
    dev = deployed("main.dev.bicepparam")
    (account,) = rules.of_type(dev, "Microsoft.DocumentDB/databaseAccounts")
    (bus,) = rules.of_type(dev, "Microsoft.ServiceBus/namespaces")
    assert account.properties["capabilities"] == [{"name": "EnableServerless"}]
    assert all(
        one.properties["options"] == {}
        for one in dev.deployed
        if one.type.startswith("Microsoft.DocumentDB/databaseAccounts/sqlDatabases")
    )
    assert bus.body["sku"]["name"] == "Standard"
    assert bus.body["sku"]["capacity"] is None
    assert not rules.of_type(dev, "Microsoft.Network/virtualNetworks")


def test_closing_the_network_later_does_not_ask_azure_for_another_tier_of_the_same_bus() -> None:
    """It refuses that, and the whole deployment with it."""
    tiers = {}
    for closed in ("false", "true"):
        made = deployment(INFRA, "main.bicepparam", {**ENVIRONMENT, "VNET_ENABLED": closed})
        (bus,) = rules.of_type(made, "Microsoft.ServiceBus/namespaces")
        tiers[bus.name] = bus.body["sku"]["name"]
    assert sorted(tiers.values()) == ["Premium", "Standard"]


def test_azd_finds_the_app_by_its_tags() -> None:
    (site,) = rules.of_type(deployed("main.bicepparam"), rules.SITE)
    assert site.body["tags"]["azd-service-name"] == "api"
    assert site.body["tags"]["azd-env-name"] == "test"


def test_the_outputs_are_the_settings_of_a_developer() -> None:
    """With them in the environment the same code runs on a developer's or an operator's machine:
    `weft reconcile` after a loss needs nothing else."""
    outputs = deployed("main.bicepparam").outputs
    settings = rules.app_settings(deployed("main.bicepparam"))
    shared = outputs.keys() & settings.keys()
    assert {"Cosmos__accountEndpoint", "ServiceBus__fullyQualifiedNamespace"} <= shared
    assert {name: outputs[name] for name in shared} == {name: settings[name] for name in shared}
    found = load_settings(outputs)
    assert found.backend == "azure"
    assert found.azure is not None
    assert not found.azure.managed_identity  # there is none on that machine
    lines = outputs_of_arm({name: {"value": value} for name, value in outputs.items()})
    assert lines == outputs


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_a_variable_that_a_pipeline_sets_to_nothing_is_as_if_it_were_not_set(
    parameters: str,
) -> None:
    """`${{ vars.NAME }}` of a variable that nobody gave is an empty text, which counts as set."""
    optional = dict.fromkeys(("AUTH_AUDIENCE", "BUDGET_START", "ALERT_EMAILS"), "")
    given = {**ENVIRONMENT, **optional}
    absent = {name: value for name, value in ENVIRONMENT.items() if name not in optional}
    empty, unset = (deployment(INFRA, parameters, one) for one in (given, absent))
    assert rules.app_settings(empty) == rules.app_settings(unset)
    assert [one.id for one in empty.deployed] == [one.id for one in unset.deployed]


def test_alerts_and_workbook_ask_for_metrics_that_exist() -> None:
    files = (INFRA / "app" / name for name in ("alerts.bicep", "workbook.json"))
    asked = {
        name for file in files for name in re.findall(r"weft_[a-z_]+", file.read_text("utf-8"))
    }
    assert {"weft_dead_letters_total", "weft_breaker_state"} <= asked
    assert asked - METRICS.keys() == set()


def test_alerts_and_workbook_read_what_the_exporter_sends() -> None:
    """Minimum and maximum are only sent for histograms; for a level they would be the ingestion's
    guess. `tests/unit/telemetry/test_exporters.py` shows what is sent."""
    for name in ("alerts.bicep", "workbook.json"):
        queries = re.findall(r"AppMetrics.*", (INFRA / "app" / name).read_text("utf-8"))
        assert queries
        assert [one for one in queries if re.search(r"\b(Max|Min)\b", one)] == []


def test_alerts_on_a_function_name_one_that_exists() -> None:
    text = (INFRA / "app" / "alerts.bicep").read_text("utf-8")
    asked = set(re.findall(r'AppRequests \| where Name == "(\w+)"', text))
    assert asked == {"start_execution"}
    assert asked <= rules.functions()


def test_no_two_resources_have_one_id() -> None:
    for parameters in PARAMETERS:
        ids = [one.id for one in deployed(parameters).deployed]
        assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_clean(path: Path) -> None:
    assert list(lint.faults(path)) == []


BROKEN: list[tuple[str, str, str, Rule | str]] = [
    ("bus", "name: 'tasks-standard'", "name: 'task-standard'", rules.queue_faults),
    ("bus", "lockDuration: 'PT5M'", "lockDuration: 'PT1M'", rules.queue_faults),
    ("bus", "duplicateWindow: 'PT10M'", "duplicateWindow: 'PT1H'", rules.queue_faults),
    ("bus", "requiresDuplicateDetection: true", "", rules.queue_faults),
    ("bus", "deadLetteringOnMessageExpiration: true", "", rules.queue_faults),
    ("bus", "maxDeliveryCount: 10", "maxDeliveryCount: 3", rules.queue_faults),
    ("bus", "disableLocalAuth: true", "disableLocalAuth: false", rules.key_faults),
    ("bus", "scope: bus", "scope: rules", rules.operation_faults),
    ("database", "['/tenantId', '/executionId']", "['/executionId']", rules.container_faults),
    ("database", "defaultTtl: -1", "defaultTtl: 60", rules.container_faults),
    ("database", "['/sweepAt', '/createdAt', ", "['/createdAt', ", rules.container_faults),
    (
        "database",
        "['/createdAt', '/dueAt']",
        "['/dueAt', '/createdAt', '/x']",
        rules.container_faults,
    ),
    ("database", "'/sweepAt/?', ", "", rules.container_faults),
    ("database", "name: 'leases'", "name: 'lease'", rules.container_faults),
    ("database", "disableLocalAuth: true", "", rules.key_faults),
    ("database", "type: 'Continuous'", "type: 'Periodic'", rules.operation_faults),
    ("storage", "allowSharedKeyAccess: false", "allowSharedKeyAccess: true", rules.key_faults),
    ("storage", "publicAccess ? 'Enabled' : 'Disabled'", "'Enabled'", rules.public_faults),
    ("vault", "enablePurgeProtection: true", "", rules.key_faults),
    ("vault", "enableRbacAuthorization: true", "", rules.key_faults),
    ("vault", "publicAccess ? 'Enabled' : 'Disabled'", "'Enabled'", rules.public_faults),
    ("monitoring", "DisableLocalAuth: true", "DisableLocalAuth: false", rules.key_faults),
    ("events", "deliveryWithResourceIdentity", "deliveryWithKey", rules.operation_faults),
    ("events", "deadLetterWithResourceIdentity", "deadLetter", rules.operation_faults),
    ("events", "disableLocalAuth: true", "", rules.key_faults),
    ("api", "ServiceBus__clientId: clientId", "", rules.settings_faults),
    ("api", "Cosmos__credential: 'managedidentity'", "", rules.settings_faults),
    ("api", "COSMOS_DATABASE: databaseName", "", rules.settings_faults),
    ("api", "COSMOS_DATABASE: databaseName", "COSMOS_DATABASE: 'other'", rules.settings_faults),
    ("api", "WEFT_BACKEND: 'azure'", "WEFT_BACKENDS: 'azure'", rules.settings_faults),
    (
        "api",
        "WEFT_BACKEND: 'azure'",
        "WEFT_BACKEND: 'azure'\nServiceBus: 'Endpoint=sb://x/;SharedAccessKey=k'",
        rules.key_faults,
    ),
    ("api", "AzureWebJobsStorage__clientId: clientId", "", rules.settings_faults),
    ("api", "version: '3.13'", "version: '3.12'", rules.function_faults),
    ("api", "http20Enabled: true", "alwaysOn: true", rules.function_faults),
    ("api", "'function:orchestration'", "'function:orchestrate'", rules.function_faults),
    ("api", "allow: false", "allow: true", rules.key_faults),
    ("api", "publicAccess ? 'Enabled' : 'Disabled'", "'Enabled'", rules.public_faults),
    (
        "rbac",
        "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0",
        "090c5cfd-751d-490a-894a-3ce6f1109419",
        rules.role_faults,
    ),
    ("api", "AzureWebJobsStorage__tableServiceUri: hostTableUri", "", rules_durable.hub_faults),
    (
        "rbac",
        "974c5e8b-45b9-4653-ba55-5f855dd0fb88",
        "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39",
        rules_durable.hub_faults,
    ),
    ("network", "'privatelink.queue.", "'privatelink.queues.", rules.public_faults),
    (
        "rbac",
        "b7e6dc6d-f1e8-4753-8033-0f276bb0955b",
        "8e3af657-a8ff-443c-a75c-2fe8c4bcb635",
        rules.role_faults,
    ),
    ("rbac", "scope: queues[index]", "scope: bus", rules.role_faults),
    ("rbac", "scope: '${cosmos.id}/dbs/${databaseName}'", "scope: cosmos.id", rules.role_faults),
    ("rbac", "  scope: vault\n", "", rules.role_faults),
    ("alerts", "name: 'outbox-age'", "name: 'outbox'", rules.operation_faults),
    (
        "endpoints",
        "{ name: 'vault', id: vaultId,",
        "{ name: 'vault', id: topicId,",
        rules.public_faults,
    ),
    (
        "network",
        "'privatelink.documents.azure.com'",
        "'privatelink.documents.azure.net'",
        rules.public_faults,
    ),
    ("endpoint", "parent: endpoint", "parent: zone", rules.public_faults),
    (
        "vault",
        "param publicAccess bool",
        "param publicAccess bool\nparam unused string = ''",
        "unused",
    ),
    ("vault", "param publicAccess bool", "param publicAccess bool\nvar unused = ''", "unused"),
    ("network", "${environment().suffixes.storage}", "core.windows.net", "core.windows.net"),
    ("vault", "2025-05-01", "2025-05-01-preview", "preview"),
    ("vault", "2025-05-01", "2023-07-01", "an old version"),
    ("workbook", "2023-06-01", "2022-04-01", "an old version"),
]


@pytest.mark.parametrize(
    ("module", "old", "new", "rule"), BROKEN, ids=[f"{one[0]}-{n}" for n, one in enumerate(BROKEN)]
)
def test_a_broken_template_is_noticed(
    module: str, old: str, new: str, rule: Rule | str, tmp_path: Path
) -> None:
    copy = tmp_path / "infra"
    shutil.copytree(INFRA, copy)
    path = copy / "app" / f"{module}.bicep"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    if isinstance(rule, str):
        assert [fault for fault in lint.faults(path) if rule in fault]
    else:
        assert list(rule(deployment(copy, "main.prod.bicepparam", ENVIRONMENT)))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "location: location\n    tags: tags\n    sku: serviceBusSku",
            "tags: tags\n    sku: serviceBusSku",
            "missing",
        ),
        ("capacity: serviceBusCapacity", "capacities: serviceBusCapacity", "no parameters"),
        ("sku: serviceBusSku", "sku: 'Basic'", "breaks @allowed"),
        ("vault.outputs.uri", "vault.outputs.address", "nothing at"),
        ("sku: storageSku", "sku: storageSize", "not declared"),
        (
            "abbreviations.vault}${token}",
            "abbreviations.vault}${token}-${token}",
            "breaks @maxLength",
        ),
        ("param location string\n", "param location string = 1\n", "not of type"),
        ("module vault ", "module = ", "not understood"),
    ],
)
def test_the_reader_refuses_what_the_compiler_would(
    old: str, new: str, fault: str, tmp_path: Path
) -> None:
    copy = tmp_path / "infra"
    shutil.copytree(INFRA, copy)
    main = copy / "main.bicep"
    assert old in main.read_text("utf-8")
    main.write_text(main.read_text("utf-8").replace(old, new), "utf-8")
    if fault == "not of type":
        (copy / "main.bicepparam").write_text("param environmentName = 'x'\n", "utf-8")
    with pytest.raises(BicepError, match=fault):
        deployment(copy, "main.bicepparam", ENVIRONMENT)


@pytest.mark.skipif(shutil.which("bicep") is None, reason="the Bicep CLI is not installed")
@pytest.mark.parametrize("name", ["main.bicep", *PARAMETERS])
def test_the_bicep_compiler_has_nothing_to_say(name: str, tmp_path: Path) -> None:
    """CI has the compiler; a warning of it is an error here."""
    verb = "build" if name.endswith(".bicep") else "build-params"
    done = subprocess.run(
        ["bicep", verb, str(INFRA / name), "--outfile", str(tmp_path / "out.json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")
