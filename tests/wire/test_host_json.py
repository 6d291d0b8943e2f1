"""`host.json`, bindings and local settings against the schemas that Azure's own tooling uses.

The published schema of `host.json` describes the Service Bus extension 4 and an older Cosmos DB
extension, while extension bundle 4 carries newer ones, which read other names. For these two
sections the names of the newer ones stand here, after their reference pages; everything else is
the published schema's word.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from tests.wire.published_schemas import schema

ROOT = Path(__file__).parents[2]
TIMESPAN = {"type": "string", "pattern": r"^(\d+\.)?([01]\d|2[0-3]):[0-5]\d:[0-5]\d$"}
COUNT = {"type": "integer", "minimum": 1}

SERVICE_BUS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "prefetchCount": {"type": "integer", "minimum": 0},
        "transportType": {"enum": ["amqpTcp", "amqpWebSockets"]},
        "webProxy": {"type": "string"},
        "autoCompleteMessages": {"type": "boolean"},
        "maxAutoLockRenewalDuration": TIMESPAN,
        "maxConcurrentCalls": COUNT,
        "maxConcurrentCallsPerSession": COUNT,
        "maxConcurrentSessions": COUNT,
        "maxMessageBatchSize": COUNT,
        "minMessageBatchSize": COUNT,
        "maxBatchWaitTime": TIMESPAN,
        "sessionIdleTimeout": TIMESPAN,
        "enableCrossEntityTransactions": {"type": "boolean"},
        "clientRetryOptions": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "mode": {"enum": ["exponential", "fixed"]},
                "tryTimeout": TIMESPAN,
                "delay": TIMESPAN,
                "maxDelay": TIMESPAN,
                "maxRetries": {"type": "integer", "minimum": 0},
            },
        },
    },
}
"""The Service Bus extension 5: `docs/…/functions-bindings-service-bus`, host.json settings."""
COSMOS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "connectionMode": {"enum": ["Gateway", "Direct"]},
        "userAgentSuffix": {"type": "string"},
    },
}
"""The Cosmos DB extension 4: `docs/…/functions-bindings-cosmosdb-v2`, host.json settings."""


DURABLE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["hubName", "overridableExistingInstanceStates"],
    "properties": {
        "hubName": {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9]{2,44}$"},
        "storageProvider": {"type": "object"},
        "maxConcurrentActivityFunctions": COUNT,
        "maxConcurrentOrchestratorFunctions": COUNT,
        "overridableExistingInstanceStates": {"enum": ["NonRunningStates", "AnyState"]},
        "useGracefulShutdown": {"type": "boolean"},
        # The library for Python knows no sessions: it replays from the beginning.
        "extendedSessionsEnabled": {"enum": [False]},
        "tracing": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                # Inputs and outputs are tenants' data, and would be in the log.
                "traceInputsAndOutputs": {"enum": [False]},
                "traceReplayEvents": {"type": "boolean"},
                "distributedTracingEnabled": {"type": "boolean"},
                "version": {"enum": ["V1", "V2"]},
            },
        },
    },
}
"""The Durable extension 3: `docs/…/durable-functions-host-json-settings`. The published schema has
none of the newer names."""


def host_schema() -> dict[str, Any]:
    """Version 2 of the published schema, with the newer sections."""
    whole = copy.deepcopy(schema("host"))
    extensions = whole["definitions"]["version-2"]["properties"]["extensions"]
    assert {"serviceBus", "cosmosDB"} <= set(extensions["properties"])
    newer = {"serviceBus": SERVICE_BUS, "cosmosDB": COSMOS, "durableTask": DURABLE}
    extensions["properties"] |= newer
    extensions["additionalProperties"] = False
    return {
        "$schema": whole["$schema"],
        "definitions": whole["definitions"],
        "$ref": "#/definitions/version-2",
    }


def host_json() -> dict[str, Any]:
    return json.loads((ROOT / "host.json").read_text())


def problems(rules: dict[str, Any], given: Any) -> list[str]:
    validator = jsonschema.Draft4Validator(rules)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(given)]


def test_host_json_is_what_the_published_schema_allows() -> None:
    assert problems(host_schema(), host_json()) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("functionTimeout",), "40m"),
        (("functionTimeOut",), "00:40:00"),
        (("extensions", "http", "routePrefix"), None),
        (("extensions", "http", "prefix"), ""),
        (("extensions", "serviceBus", "maxConcurrentCall"), 64),
        (("extensions", "serviceBus", "maxAutoLockRenewalDuration"), "35m"),
        (("extensions", "serviceBus", "messageHandlerOptions"), {}),  # extension 4
        (("extensions", "cosmosDB", "connectionMode"), "gateway"),
        (("extensions", "durableTask", "hubName"), "weft-hub"),
        (("extensions", "durableTask", "maxConcurrentActivities"), 8),
        (("extensions", "durableTask", "tracing", "traceInputsAndOutputs"), True),
        (("extensions", "servicebus"), {}),
        (("logging", "logLevel", "default"), "Info"),
        (("logging", "applicationInsights", "samplingSettings", "isEnabled"), "yes"),
        (("version",), "3"),
    ],
)
def test_a_mistake_in_host_json_is_found(path: tuple[str, ...], value: Any) -> None:
    """The host ignores names that it does not know, so a misspelt limit is no limit."""
    given = host_json()
    *above, last = path
    section = given
    for name in above:
        section = section[name]
    section[last] = value
    assert problems(host_schema(), given) != []


def test_an_instance_that_runs_is_never_replaced() -> None:
    """The engine starts an instance again when it does not know whether it did."""
    durable = host_json()["extensions"]["durableTask"]
    assert durable["overridableExistingInstanceStates"] == "NonRunningStates"


# --- bindings -------------------------------------------------------------------------------------

COSMOS_TRIGGER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["connection", "databaseName", "containerName", "leaseContainerName"],
    "properties": {
        **{name: {"type": "string"} for name in ("name", "connection", "databaseName")},
        "type": {"enum": ["cosmosDBTrigger"]},
        "direction": {"enum": ["in"]},
        "containerName": {"type": "string"},
        "leaseContainerName": {"type": "string"},
        "leaseContainerPrefix": {"type": "string", "minLength": 1},
        # Data-plane roles cannot create containers, so it would fail where nobody looks.
        "createLeaseContainerIfNotExists": {"enum": [False]},
        "maxItemsPerInvocation": COUNT,
        "feedPollDelay": COUNT,
        "startFromBeginning": {"type": "boolean"},
    },
}
"""The published schema of function.json knows the change feed's trigger only by its older names."""
ENUMS = ("direction", "dataType", "authLevel", "cardinality")


def bindings() -> dict[str, list[dict[str, Any]]]:
    """Every function's bindings as function.json would have them. The decorators write enum values
    in capitals, which the host reads alike."""

    async def never() -> Any:
        raise AssertionError

    found: dict[str, list[dict[str, Any]]] = {}
    for function in compose(EngineProvider(never)).get_functions():
        raw = [json.loads(text) for text in function.get_raw_bindings()]
        for binding in raw:
            binding |= {name: binding[name].lower() for name in ENUMS if name in binding}
            if "methods" in binding:
                binding["methods"] = [method.lower() for method in binding["methods"]]
        found[function.get_function_name()] = raw
    return found


def test_every_binding_is_what_the_published_schema_allows() -> None:
    rules, found = schema("function"), bindings()
    for name, raw in found.items():
        assert problems(rules, {"bindings": raw}) == [], name
    feeds = [raw[0] for raw in found.values() if raw[0]["type"] == "cosmosDBTrigger"]
    assert [problems(COSMOS_TRIGGER, feed) for feed in feeds] == [[]] * len(feeds)
    assert feeds


def test_a_mistake_in_a_binding_is_found() -> None:
    rules, found = schema("function"), bindings()
    timer = {**found["sweeper"][0], "schedule": "every 15 seconds"}
    queue = {**found["orchestration"][0], "direction": "out"}
    http = {**found["live"][0], "authLevel": "nobody"}
    for broken in (timer, queue, http):
        assert problems(rules, {"bindings": [broken]}) != []
    feed = {**found["relay"][0], "collectionName": "executions"}
    assert problems(COSMOS_TRIGGER, feed) != []


def test_every_connection_is_one_that_the_settings_know() -> None:
    used = {
        raw["connection"] for each in bindings().values() for raw in each if "connection" in raw
    }
    assert used == {"ServiceBus", "Cosmos"}


def test_the_sample_settings_are_what_the_published_schema_allows() -> None:
    sample = json.loads((ROOT / "local.settings.sample.json").read_text())
    assert problems(schema("local.settings"), sample) == []
