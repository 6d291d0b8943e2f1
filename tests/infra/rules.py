"""What must hold of a deployment, each rule as a function: a template in, its faults out.

Names and properties are compared with the code that relies on them, so neither side can drift.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from orchestrator.adapters.azure import cosmos_containers
from orchestrator.domain.topology import QUEUES
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from orchestrator.settings import PREFIX, Settings, SettingsError, load_settings
from orchestrator.settings_azure import IDENTITY_SETTINGS, AzureSettings
from orchestrator.settings_rules import CLOUD_HOST
from tests.infra.bicep import Resource, Template

QUEUE: Final = "Microsoft.ServiceBus/namespaces/queues"
CONTAINER: Final = "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers"
SITE: Final = "Microsoft.Web/sites"
ROLE: Final = "Microsoft.Authorization/roleAssignments"
COSMOS_ROLE: Final = "Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments"

ROLES: Final = {
    "b7e6dc6d-f1e8-4753-8033-0f276bb0955b": "Storage Blob Data Owner",
    "ba92f5b4-2d11-453d-a403-e96b0029c9fe": "Storage Blob Data Contributor",
    "974c5e8b-45b9-4653-ba55-5f855dd0fb88": "Storage Queue Data Contributor",
    "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3": "Storage Table Data Contributor",
    "0ad04412-c4d5-4796-b79c-f76d14c8d402": "Durable Task Data Contributor",
    "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39": "Service Bus Data Sender",
    "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0": "Service Bus Data Receiver",
    "4633458b-17de-408a-b874-0445c86b69e6": "Key Vault Secrets User",
    "3913510d-42f4-4e42-8a64-420c390055eb": "Monitoring Metrics Publisher",
}
"""The only roles that anybody gets. None of them manages a resource or gives out roles."""
HOST_SETTINGS: Final = {
    "AzureWebJobsStorage__blobServiceUri",
    "AzureWebJobsStorage__credential",
    "AzureWebJobsStorage__clientId",
    "APPLICATIONINSIGHTS_CONNECTION_STRING",
    "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
}
"""Read by the Functions host, not by us."""
HUB_SETTINGS: Final = {
    "AzureWebJobsStorage__queueServiceUri",
    "AzureWebJobsStorage__tableServiceUri",
    "AzureFunctionsJobHost__extensions__durableTask__storageProvider__type",
    "AzureFunctionsJobHost__extensions__durableTask__storageProvider__connectionStringName",
    "DURABLE_TASK_SCHEDULER_CONNECTION_STRING",
}
"""Read by the Durable extension; which of them is `rules_durable`'s to say."""
NOT_ON_FLEX: Final = frozenset(
    {
        *("alwaysOn", "containerSize", "ftpsState", "functionAppScaleLimit", "isReserved"),
        *("isXenon", "javaVersion", "linuxFxVersion", "netFrameworkVersion", "powerShellVersion"),
        *("preWarmedInstanceCount", "pythonVersion", "use32BitWorkerProcess"),
        *("vnetRouteAllEnabled", "windowsFxVersion"),
    }
)
"""Properties of a site or its configuration that Flex Consumption replaced or does not know."""
KEYS_OFF: Final = {
    "Microsoft.Storage/storageAccounts": ("allowSharedKeyAccess", False),
    "Microsoft.ServiceBus/namespaces": ("disableLocalAuth", True),
    "Microsoft.DocumentDB/databaseAccounts": ("disableLocalAuth", True),
    "Microsoft.EventGrid/topics": ("disableLocalAuth", True),
    "Microsoft.Insights/components": ("DisableLocalAuth", True),
    "Microsoft.KeyVault/vaults": ("enableRbacAuthorization", True),
    "Microsoft.Web/sites/basicPublishingCredentialsPolicies": ("allow", False),
}
"""Type -> the property that switches keys and passwords off."""
REACHABLE: Final = (
    "Microsoft.Storage/storageAccounts",
    "Microsoft.ServiceBus/namespaces",
    "Microsoft.DocumentDB/databaseAccounts",
    "Microsoft.KeyVault/vaults",
    "Microsoft.EventGrid/topics",
    SITE,
)
"""Types that have a public address unless it is switched off."""
LOGGED: Final = (
    "Microsoft.ServiceBus/namespaces",
    "Microsoft.DocumentDB/databaseAccounts",
    "Microsoft.KeyVault/vaults",
    "Microsoft.EventGrid/topics",
    SITE,
)


def of_type(deployed: Template, kind: str) -> list[Resource]:
    return [one for one in deployed.deployed if one.type == kind]


def app_settings(deployed: Template) -> dict[str, str]:
    """The app settings of the one site."""
    (site,) = of_type(deployed, SITE)
    pairs = [(one["name"], one["value"]) for one in site.properties["siteConfig"]["appSettings"]]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def _seconds(duration: str) -> int:
    hours, minutes, seconds = re.fullmatch(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?", duration).groups(  # type: ignore[union-attr]
        "0"
    )
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds)


def queue_faults(deployed: Template) -> Iterator[str]:
    """Queues against `topology.QUEUES`: the same names, the same properties."""
    found = {one.name: one.properties for one in of_type(deployed, QUEUE)}
    for name in found.keys() ^ QUEUES.keys():
        yield f"queue {name} is only in {'Bicep' if name in found else 'topology.py'}"
    for name in found.keys() & QUEUES.keys():
        spec, given = QUEUES[name], found[name]
        window = "duplicateDetectionHistoryTimeWindow"
        wanted = {
            "lockDuration": (_seconds(given["lockDuration"]), spec.lock_seconds),
            "maxDeliveryCount": (given["maxDeliveryCount"], spec.max_delivery_count),
            "requiresDuplicateDetection": (given.get("requiresDuplicateDetection"), True),
            window: (_seconds(given[window]), spec.duplicate_window_seconds),
            "deadLetteringOnMessageExpiration": (
                given.get("deadLetteringOnMessageExpiration"),
                spec.dead_letter_on_expiration,
            ),
            "requiresSession": (given.get("requiresSession", False), False),
        }
        for key, (actual, expected) in wanted.items():
            if actual != expected:
                yield f"queue {name}: {key} is {actual}, the code relies on {expected}"


def _comparable(container: dict[str, Any]) -> dict[str, Any]:
    """A container definition without what has no order."""
    policy = container["indexingPolicy"]
    return {
        "partition": container["partitionKey"],
        "ttl": container["defaultTtl"],
        "mode": (policy["indexingMode"], policy["automatic"]),
        "included": {one["path"] for one in policy["includedPaths"]},
        "excluded": {one["path"] for one in policy["excludedPaths"]},
        "composite": {
            tuple((one["path"], one["order"]) for one in index)
            for index in policy["compositeIndexes"]
        },
    }


def container_faults(deployed: Template) -> Iterator[str]:
    """Containers against `cosmos_containers.definitions()`, index by index."""
    wanted = {one["id"]: _comparable(one) for one in cosmos_containers.definitions()}
    found = {
        one.name: _comparable(one.properties["resource"]) for one in of_type(deployed, CONTAINER)
    }
    for name in found.keys() ^ wanted.keys():
        yield f"container {name} is only in {'Bicep' if name in found else 'topology.py'}"
    for name in found.keys() & wanted.keys():
        for key, expected in wanted[name].items():
            if found[name][key] != expected:
                yield f"container {name}: {key} is {found[name][key]}, the code wants {expected}"


def settings_faults(deployed: Template) -> Iterator[str]:
    """App settings: known to somebody, complete, and accepted by the settings code itself."""
    given = app_settings(deployed)
    azure = {field.alias for field in AzureSettings.model_fields.values() if field.alias}
    identity = {f"{name}{end}" for name in ("Cosmos", "ServiceBus") for end in IDENTITY_SETTINGS}
    own = {
        f"{PREFIX}{name.upper()}"
        for name in Settings.model_fields
        if name not in ("azure", "telemetry")
    }
    for name in given.keys() - azure - identity - own - HOST_SETTINGS - HUB_SETTINGS:
        yield f"app setting {name} is read by nobody"
    needed = identity | HOST_SETTINGS | {"AZURE_CLIENT_ID", "KeyVault__vaultUri"}
    for name in sorted(needed - given.keys()):
        yield f"app setting {name} is missing"
    try:
        settings = load_settings({**given, CLOUD_HOST: "x"})
    except SettingsError as error:
        yield str(error)
        return
    if settings.azure is None or not settings.azure.managed_identity:
        yield "the app would not run as the managed identity"
    containers = {
        one.name
        for one in of_type(deployed, "Microsoft.Storage/storageAccounts/blobServices/containers")
    }
    databases = of_type(deployed, "Microsoft.DocumentDB/databaseAccounts/sqlDatabases")
    if settings.azure and settings.azure.payloads_container not in containers:
        yield "PAYLOADS_CONTAINER names a container that is not created"
    if settings.azure and settings.azure.cosmos_database not in {one.name for one in databases}:
        yield "COSMOS_DATABASE names a database that is not created"


@cache
def functions() -> frozenset[str]:
    """The names of all functions, as the host logs them."""

    async def never() -> Any:
        raise AssertionError

    app = compose(EngineProvider(never))
    return frozenset(str(one.get_function_name()) for one in app.get_functions())


def function_faults(deployed: Template) -> Iterator[str]:
    """Always-ready instances name functions that exist; the runtime is the tested one."""
    known = functions()
    (site,) = of_type(deployed, SITE)
    config = site.properties["functionAppConfig"]
    for name in NOT_ON_FLEX & {*site.properties, *site.properties["siteConfig"]}:
        yield f"{name} has no place on Flex Consumption"
    for ready in config["scaleAndConcurrency"]["alwaysReady"]:
        if ready["name"] != "http" and ready["name"].removeprefix("function:") not in known:
            yield f"always-ready {ready['name']}: no such function"
    if (config["runtime"]["name"], config["runtime"]["version"]) != ("python", "3.13"):
        yield f"runtime {config['runtime']}"
    if config["deployment"]["storage"]["authentication"]["type"] != "UserAssignedIdentity":
        yield "the package is not read under the identity"


def key_faults(deployed: Template) -> Iterator[str]:
    """No key, password or access policy works anywhere, and no setting holds one."""
    for kind, (name, expected) in KEYS_OFF.items():
        if not of_type(deployed, kind):
            yield f"no {kind}"
        for one in of_type(deployed, kind):
            if one.properties.get(name) is not expected:
                yield f"{one.type} {one.name}: {name} must be {expected}"
    for one in of_type(deployed, "Microsoft.Storage/storageAccounts"):
        if one.properties.get("allowBlobPublicAccess") is not False:
            yield f"{one.name}: blobs may be public"
    for one in of_type(deployed, "Microsoft.KeyVault/vaults"):
        if one.properties.get("enablePurgeProtection") is not True:
            yield f"{one.name}: deleted secrets can be purged"
    for name, value in app_settings(deployed).items():
        if re.search(r"(AccountKey|SharedAccessKey|SharedAccessSignature|sig)=", value):
            yield f"app setting {name} holds a key"
    for one in of_type(deployed, "Microsoft.ServiceBus/namespaces/AuthorizationRules"):
        yield f"{one.name}: a key for the namespace"


def public_faults(deployed: Template) -> Iterator[str]:
    """Closed network: no public address, and each service has a private one with its name."""
    for one in deployed.deployed:
        if one.type in REACHABLE and one.properties.get("publicNetworkAccess") != "Disabled":
            yield f"{one.type} {one.name} can be reached from outside"
    endpoints = of_type(deployed, "Microsoft.Network/privateEndpoints")
    targets = {
        connection["properties"]["privateLinkServiceId"]
        for one in endpoints
        for connection in one.properties["privateLinkServiceConnections"]
    }
    called = [one for one in deployed.deployed if one.type in REACHABLE]
    for one in called:
        # Event Grid alone writes to this account, as a trusted service.
        if one.id not in targets and not one.name.startswith("stevt"):
            yield f"{one.type} {one.name} has no private endpoint"
    named = {
        one.id.rsplit("/privateDnsZoneGroups", 1)[0]
        for one in deployed.deployed
        if one.type.endswith("privateDnsZoneGroups")
    }
    for one in endpoints:
        if one.id not in named:
            yield f"endpoint {one.name} has no DNS zone group"
    zones = {one.id for one in of_type(deployed, "Microsoft.Network/privateDnsZones")}
    for group in of_type(deployed, "Microsoft.Network/privateEndpoints/privateDnsZoneGroups"):
        for entry in group.properties["privateDnsZoneConfigs"]:
            if entry["properties"]["privateDnsZoneId"] not in zones:
                yield f"{group.id}: its zone is not created"
    (site,) = of_type(deployed, SITE)
    if not site.properties["virtualNetworkSubnetId"]:
        yield "the app is outside of the network"


def role_faults(deployed: Template) -> Iterator[str]:
    """Least privilege: known data roles, each on the narrowest thing; nothing on a group."""
    granted: set[tuple[str, str]] = set()
    for one in of_type(deployed, ROLE):
        identifier = one.properties["roleDefinitionId"].rsplit("/", 1)[1]
        role = ROLES.get(identifier)
        if role is None:
            yield f"{one.file}: role {identifier} is not one of those that are needed"
            continue
        if one.scope.count("/providers/") != 1:
            yield f"{one.file}: {role} on more than one resource"
        if "Service Bus" in role and "/queues/" not in one.scope:
            yield f"{one.file}: {role} not on a queue"
        if "principalType" not in one.properties:
            yield f"{one.file}: {role} without principalType fails for a new identity"
        granted.add((role, one.scope.rpartition("/")[2]))
    for queue in QUEUES:
        for role in ("Service Bus Data Sender", "Service Bus Data Receiver"):
            if (role, queue) not in granted:
                yield f"nobody has {role} on {queue}"
    for one in of_type(deployed, COSMOS_ROLE):
        if not re.search(r"/dbs/[^/]+$", one.properties["scope"]):
            yield f"Cosmos DB role on {one.properties['scope']}, not on the database"
    if not of_type(deployed, COSMOS_ROLE):
        yield "nobody may read the documents"


def operation_faults(deployed: Template) -> Iterator[str]:
    """Logs, alerts, Event Grid by identity, backup."""
    logged = {one.scope for one in of_type(deployed, "Microsoft.Insights/diagnosticSettings")}
    for one in deployed.deployed:
        if one.type in LOGGED and one.id not in logged:
            yield f"{one.type} {one.name} has no diagnostic settings"
    rules = {one.name for one in of_type(deployed, "Microsoft.Insights/scheduledQueryRules")}
    metric = {one.name for one in of_type(deployed, "Microsoft.Insights/metricAlerts")}
    wanted = {
        "dead-letters",
        "queue-oldest",
        "outbox-age",
        "server-errors",
        "breaker-open",
        "silent",
    }
    wanted |= {
        f"{objective}-burn-{speed}"
        for objective in ("completion", "start-latency", "dispatch")
        for speed in ("fast", "slow")
    }
    for name in {f"weft-{one}" for one in wanted} - rules:
        yield f"no alert {name}"
    if "weft-stranded-messages" not in metric:
        yield "no alert on the dead-letter queues"
    for one in of_type(deployed, "Microsoft.EventGrid/topics/eventSubscriptions"):
        for part in ("deliveryWithResourceIdentity", "deadLetterWithResourceIdentity"):
            if part not in one.properties:
                yield f"Event Grid subscription without {part}"
        target = one.properties.get("deliveryWithResourceIdentity", {}).get("destination", {})
        if not target.get("properties", {}).get("resourceId", "").endswith("/queues/events"):
            yield "Event Grid does not deliver to the queue events"
    for one in of_type(deployed, "Microsoft.DocumentDB/databaseAccounts"):
        if one.properties["backupPolicy"]["type"] != "Continuous":
            yield "no continuous backup"
    for one in deployed.deployed:
        if one.body.get("location") not in (None, "global") and "tags" not in one.body:
            yield f"{one.type} {one.name} has no tags"
