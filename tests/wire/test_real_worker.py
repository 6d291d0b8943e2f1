"""`function_app.py` in the real Functions worker library: indexed and invoked by its own code.

Each scenario is a process of its own (`tests/wire/worker`), because the library and the app's
decorators keep module globals.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain import topology
from orchestrator.functions import http_operations

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 13),
    reason="azure-functions-runtime is the library of the Python 3.13 worker and needs that Python",
)


def test_the_library_is_installed() -> None:
    """An error, not a skip, where it could be: CI on 3.13 must not pass without these tests."""
    assert importlib.util.find_spec("azure_functions_runtime")


def worker(
    scenario: str, data: Path, *, app: Path = ROOT, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run a scenario; warnings are errors there too, so nothing may be left unclosed."""
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "FUNCTIONS_WORKER_RUNTIME": "python",
        "WEFT_AUTH_LOCAL": "true",
        "WEFT_DATA_DIR": str(data),
        **settings,
    }
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.wire.worker", scenario, str(app)],
        env=env,
        cwd=data,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


def result(scenario: str, data: Path, **settings: str) -> Any:
    """What a scenario found. Local adapters unless said otherwise."""
    done = worker(scenario, data, **{"WEFT_BACKEND": "local", **settings})
    assert done.returncode == 0, done.stderr
    assert "Unclosed" not in done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the library hands to the host."""
    return result("index", tmp_path_factory.mktemp("index"))


# --- indexing -------------------------------------------------------------------------------------

TRIGGERS: dict[str, dict[str, Any]] = {
    "orchestration": {
        "type": "serviceBusTrigger",
        "direction": "IN",
        "name": "messages",
        "queueName": topology.ORCHESTRATION_QUEUE,
        "connection": "ServiceBus",
        "cardinality": "MANY",
        "dataType": "BINARY",
    },
    "tasks_high": {
        "type": "serviceBusTrigger",
        "direction": "IN",
        "name": "message",
        "queueName": topology.TASKS_HIGH_QUEUE,
        "connection": "ServiceBus",
        "cardinality": "ONE",
        "dataType": "BINARY",
    },
    "tasks_standard": {
        "type": "serviceBusTrigger",
        "direction": "IN",
        "name": "message",
        "queueName": topology.TASKS_STANDARD_QUEUE,
        "connection": "ServiceBus",
        "cardinality": "ONE",
        "dataType": "BINARY",
    },
    "tasks_low": {
        "type": "serviceBusTrigger",
        "direction": "IN",
        "name": "message",
        "queueName": topology.TASKS_LOW_QUEUE,
        "connection": "ServiceBus",
        "cardinality": "ONE",
        "dataType": "BINARY",
    },
    "orchestration_dead": {
        "type": "serviceBusTrigger",
        "direction": "IN",
        "name": "message",
        "queueName": topology.ORCHESTRATION_QUEUE + topology.DEAD_LETTER_SUFFIX,
        "connection": "ServiceBus",
        "cardinality": "ONE",
        "dataType": "BINARY",
    },
    "tasks_high_dead": {
        "type": "serviceBusTrigger",
        "direction": "IN",
        "name": "message",
        "queueName": topology.TASKS_HIGH_QUEUE + topology.DEAD_LETTER_SUFFIX,
        "connection": "ServiceBus",
        "cardinality": "ONE",
        "dataType": "BINARY",
    },
    "tasks_standard_dead": {
        "type": "serviceBusTrigger",
        "direction": "IN",
        "name": "message",
        "queueName": topology.TASKS_STANDARD_QUEUE + topology.DEAD_LETTER_SUFFIX,
        "connection": "ServiceBus",
        "cardinality": "ONE",
        "dataType": "BINARY",
    },
    "tasks_low_dead": {
        "type": "serviceBusTrigger",
        "direction": "IN",
        "name": "message",
        "queueName": topology.TASKS_LOW_QUEUE + topology.DEAD_LETTER_SUFFIX,
        "connection": "ServiceBus",
        "cardinality": "ONE",
        "dataType": "BINARY",
    },
    "events": {
        "type": "serviceBusTrigger",
        "direction": "IN",
        "name": "message",
        "queueName": topology.EVENTS_QUEUE,
        "connection": "ServiceBus",
        "cardinality": "ONE",
        "dataType": "BINARY",
    },
    "events_dead": {
        "type": "serviceBusTrigger",
        "direction": "IN",
        "name": "message",
        "queueName": topology.EVENTS_QUEUE + topology.DEAD_LETTER_SUFFIX,
        "connection": "ServiceBus",
        "cardinality": "ONE",
        "dataType": "BINARY",
    },
    "event_grid": {"type": "eventGridTrigger", "direction": "IN", "name": "event"},
    "relay": {
        "type": "cosmosDBTrigger",
        "direction": "IN",
        "name": "documents",
        "connection": "Cosmos",
        "databaseName": "%COSMOS_DATABASE%",
        "containerName": topology.EXECUTIONS,
        "leaseContainerName": topology.LEASES,
        "leaseContainerPrefix": "relay",
        "createLeaseContainerIfNotExists": False,
    },
    "project_visibility": {
        "type": "cosmosDBTrigger",
        "direction": "IN",
        "name": "documents",
        "connection": "Cosmos",
        "databaseName": "%COSMOS_DATABASE%",
        "containerName": topology.EXECUTIONS,
        "leaseContainerName": topology.LEASES,
        "leaseContainerPrefix": "visibility",
        "createLeaseContainerIfNotExists": False,
        "startFromBeginning": True,
        "feedPollDelay": 1_000,
    },
    "sweeper": {
        "type": "timerTrigger",
        "direction": "IN",
        "name": "timer",
        "schedule": "*/15 * * * * *",
        "runOnStartup": False,
        "useMonitor": False,
    },
    "scheduler": {
        "type": "timerTrigger",
        "direction": "IN",
        "name": "timer",
        "schedule": "*/5 * * * * *",
        "runOnStartup": False,
        "useMonitor": False,
    },
    "retention": {
        "type": "timerTrigger",
        "direction": "IN",
        "name": "timer",
        "schedule": "0 */10 * * * *",
        "runOnStartup": False,
        "useMonitor": False,
    },
}
"""Every trigger that is not HTTP, as the host reads it. A new function gets its entry here."""


def test_the_worker_indexes_every_function_as_designed(indexed: Any) -> None:
    assert indexed["engines"] == 0  # nothing is built before the first trigger
    http = {name: raw for name, raw in indexed["bindings"].items() if len(raw) == 2}
    others = {name: raw for name, raw in indexed["bindings"].items() if name not in http}
    assert {name: trigger for name, (trigger,) in others.items()} == TRIGGERS
    routes = {(route.path, route.method) for route in http_operations.operations()}
    bound = {
        (trigger["route"], method)
        for name, (trigger, _) in http.items()
        if name != "zz_unmatched"
        for method in trigger["methods"]
    }
    assert bound == routes
    assert len(http) == len(routes) + 1
    for trigger, answer in http.values():
        assert (trigger["type"], trigger["name"]) == ("httpTrigger", "req")
        assert trigger["authLevel"] == "ANONYMOUS"
        assert (answer["type"], answer["name"], answer["direction"]) == ("http", "$return", "OUT")


def test_no_two_change_feed_functions_share_a_lease(indexed: Any) -> None:
    """They would share the checkpoint, and each would see only part of the feed."""
    found = indexed["bindings"].values()
    feeds = [raw[0] for raw in found if raw[0]["type"] == "cosmosDBTrigger"]
    leases = [(feed["containerName"], feed["leaseContainerPrefix"]) for feed in feeds]
    assert len(leases) == len(set(leases)) > 0


BROKEN = {
    "import": "import nowhere_to_be_found",
    "annotation": """
import azure.functions as func
app = func.FunctionApp()

@app.service_bus_queue_trigger(
    arg_name="messages", queue_name="q", connection="ServiceBus", cardinality="many"
)
async def bad(messages: list[func.ServiceBusMessage]) -> None: ...
""",
}


@pytest.mark.parametrize("fault", BROKEN)
def test_what_the_worker_refuses_fails_here(tmp_path: Path, fault: str) -> None:
    """The harness must be able to fail, or the tests above would say nothing."""
    (tmp_path / "function_app.py").write_text(BROKEN[fault])
    done = worker("index", tmp_path, app=tmp_path)
    assert done.returncode != 0
    assert "IndexingFailed" in done.stderr


# --- invoking -------------------------------------------------------------------------------------


def test_a_workflow_runs_from_http_start_to_output_through_the_worker(tmp_path: Path) -> None:
    """Three squares: HTTP start, batches of messages, single tasks, HTTP read."""
    found = result("run", tmp_path)
    assert found["engines"] == 1  # 20 and more invocations, one engine
    execution, handled = found["execution"], found["handled"]
    assert (execution["status"], execution["output"]) == ("COMPLETED", [1, 4, 9])
    assert handled["tasks"] == 5  # numbers, 3 items, and the map that gathers them
    assert handled["orchestration"] >= handled["batches"] >= 3
    assert len(set(handled["sent"])) == len(handled["sent"])
    # The caller's trace goes with every message, through the library's decoding.
    assert handled["traces"] == [execution["traceparent"]]
    assert execution["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c-")


def test_the_relay_sends_what_the_fast_path_could_not(tmp_path: Path) -> None:
    """A document that is none is passed over; the batch delivered twice sends nothing twice."""
    found = result("relay", tmp_path)
    assert found["status"] == "COMPLETED"
    assert found["outboxes"] == [1, 0]
    assert found["metrics"]["weft_fast_path_failures_total"] == 1
    assert found["metrics"]["weft_relay_poisoned_total"] == 1
    assert len(set(found["sent"])) == len(found["sent"])


def test_unreadable_messages_do_not_fail_the_batch(tmp_path: Path) -> None:
    found = result("garbage", tmp_path)
    assert found["status"] == "COMPLETED"
    assert found["metrics"]["weft_dead_letters_total{message}"] == 3


def test_an_event_is_one_execution_by_whichever_trigger_it_comes(tmp_path: Path) -> None:
    """The library decodes both schemas of Event Grid, and the time's seventh digit."""
    found = result("events", tmp_path)
    assert found["status"] == 202
    assert found["execution"]["status"] == "COMPLETED"
    assert found["execution"]["input"] == {"n": 5}
    counted = {name: count for name, count in found["metrics"].items() if "events_total" in name}
    assert counted == {
        "weft_events_total{started}": 1,
        "weft_events_total{duplicate}": 3,
        "weft_events_total{invalid}": 1,
    }
    assert found["letters"] == ["TooOften: it crashed (events/$DeadLetterQueue)", "unreadable"]


def test_unusable_settings_are_told_by_health_and_the_log(tmp_path: Path) -> None:
    """The app is indexed all the same: an app without functions would tell nobody anything."""
    found = result("unsettled", tmp_path, WEFT_BACKEND="azure", AZURE_CLIENT_ID="x")
    assert found["functions"] == len(TRIGGERS) + len(http_operations.operations()) + 1
    assert (found["status"], found["body"]["status"]) == (503, "down")
    for name in ("Cosmos__accountEndpoint", "ServiceBus__fully", "COSMOS_DATABASE", "AZURE_CLIENT"):
        assert name in found["failed"]
        assert name not in json.dumps(found["body"])
