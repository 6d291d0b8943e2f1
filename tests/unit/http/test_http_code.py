"""Code workflows over HTTP, and the events inside their orchestrations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from http_client import Client
from http_support import make_client

from orchestrator.domain.failure import Failure
from orchestrator.domain.orchestration_result import failure_text
from orchestrator.engine import orchestrations
from orchestrator.functions.provider import EngineProvider
from tests.support.fake_orchestrations import FakeCode, FakeOrchestrations
from tests.support.world import World

TENANT = "default"
HISTORY: list[dict[str, Any]] = [
    {
        "EventType": "ExecutionStarted",
        "Timestamp": "2027-01-15T08:00:00.1234567Z",
        "FunctionName": "code_ship_v2",
    },
    {"EventType": "OrchestratorStarted", "Timestamp": "2027-01-15T08:00:00.2Z"},
    {
        "EventType": "TaskCompleted",
        "Timestamp": "2027-01-15T08:00:01Z",
        "ScheduledTime": "2027-01-15T08:00:00.5Z",
        "FunctionName": "weft_activity",
        "Input": '{"activity": "orders.pay", "input": "{\\"card\\": \\"4111-private\\"}"}',
        "Result": {"card": "4111-private"},
    },
    {
        "EventType": "SubOrchestrationInstanceFailed",
        "Timestamp": "2027-01-15T08:00:01.5Z",
        "FunctionName": "weft_call",
        "Input": ['{"kind": "activity", "call": {"activity": "orders.pack"}}'],
        "Reason": "Orchestrator function failed: "
        + failure_text(Failure(type="OutOfStock", message="none left")),
    },
    {
        "EventType": "SubOrchestrationInstanceCompleted",
        "Timestamp": "2027-01-15T08:00:01.6Z",
        "FunctionName": "code_send_v1",
    },
    {
        "EventType": "TimerCreated",
        "Timestamp": "2027-01-15T08:00:02Z",
        "FireAt": "2027-01-15T09:00:00Z",
    },
    {
        "EventType": "EventRaised",
        "Timestamp": "2027-01-15T08:00:03Z",
        "Name": "go",
        "Input": "4111-private",
    },
    {
        "EventType": "ExecutionCompleted",
        "Timestamp": "2027-01-15T08:00:04Z",
        "OrchestrationStatus": "Failed",
    },
]


@pytest.fixture
async def place(tmp_path: Path) -> Any:
    """(client, world, hub)."""
    world = await World(tmp_path).open()
    hub = FakeOrchestrations(world.clock)
    world.engine.orchestrations, world.engine.code = hub, FakeCode({"ship": [1, 2]})

    async def build() -> Any:
        return world.engine

    yield make_client(EngineProvider(build)), world, hub
    await world.close()


async def begun(api: Client, world: World) -> str:
    """An execution of `ship`."""
    id: str = (await api("POST", "/v1/workflows/ship/start", json={"input": 1})).json()["id"]
    await world.settle()
    return id


async def test_they_are_listed_and_recorded(place: Any) -> None:
    api, _, _ = place
    found = (await api("GET", "/v1/code-workflows")).json()
    assert [(one["version"], one["published"]) for one in found["items"]] == [
        (1, False),
        (2, False),
    ]
    recorded = await api("POST", "/v1/code-workflows")
    assert (recorded.status, recorded.json()["publishedBy"]) == (200, "developer")
    assert [one["published"] for one in recorded.json()["items"]] == [True, True]


async def test_a_version_in_use_is_409_with_every_place(place: Any) -> None:
    api, world, _ = place
    await api("POST", "/v1/code-workflows")
    await begun(api, world)
    world.engine.code.registered["ship"] = [1]
    got = await api("POST", "/v1/code-workflows")
    assert (got.status, got.json()["error"]["code"]) == (409, "CODE_VERSION_IN_USE")
    assert [one["field"] for one in got.json()["error"]["details"]] == ["ship v2"]


async def test_an_execution_shows_its_orchestration(place: Any) -> None:
    api, world, hub = place
    id = await begun(api, world)
    hub.instances[id].custom = '"packing"'
    seen = (await api("GET", f"/v1/executions/{id}")).json()["orchestration"]
    assert (seen["instance"], seen["status"], seen["customStatus"]) == (id, "Running", "packing")
    task = (await api("GET", f"/v1/executions/{id}/tasks/main")).json()
    assert (task["instance"], task["orchestration"]["name"]) == (id, "code_ship_v2")
    assert task["attempts"][0]["instance"] == id


async def test_its_events_follow_the_history(place: Any) -> None:
    """In our words, behind the last page, without payloads."""
    api, world, hub = place
    id = await begun(api, world)
    hub.instances[id].history = HISTORY
    hub.fail(id)
    await orchestrations.ended(world.engine, TENANT, id, "main")
    await world.settle()
    own = (await api("GET", f"/v1/executions/{id}/history")).json()["items"]
    both = await api("GET", f"/v1/executions/{id}/history?include=orchestration")
    inside = both.json()["items"][len(own) :]
    assert both.json()["items"][: len(own)] == own
    assert [one["type"] for one in inside] == [
        "executionStarted",
        "taskCompleted",
        "childFailed",
        "childCompleted",
        "taskWaiting",
        "signalReceived",
        "executionFailed",
    ]
    assert {one["source"] for one in inside} == {"durable"}
    assert inside[0] | {"seq": 0} == {
        "seq": 0,
        "type": "executionStarted",
        "at": "2027-01-15T08:00:00.123Z",
        "orchestrator": "code_ship_v2",
        "source": "durable",
        "task": "main",
        "instance": id,
    }
    assert inside[1]["output"] == {"bytes": 23}
    assert [one.get("activity") for one in inside[1:3]] == ["orders.pay", "orders.pack"]
    assert (inside[3]["workflow"], inside[3]["version"]) == ("send", 1)
    assert inside[2]["reason"] == "OutOfStock: none left"
    assert inside[4]["dueAt"] == "2027-01-15T09:00:00.000Z"
    assert inside[5]["signal"] == "go"
    assert b"4111" not in both.body
    first = await api("GET", f"/v1/executions/{id}/history?include=orchestration&limit=1")
    assert [one.get("source") for one in first.json()["items"]] == [None]


async def test_a_history_says_so_where_durable_does_not_answer(place: Any) -> None:
    api, world, _ = place
    id = await begun(api, world)
    world.engine.orchestrations = None
    got = await api("GET", f"/v1/executions/{id}/history?include=orchestration")
    last = got.json()["items"][-1]
    assert (last["type"], last["note"]) == (
        "orchestrationUnknown",
        "Durable Functions does not answer",
    )
    refused = await api("GET", f"/v1/executions/{id}/history?include=everything")
    assert refused.status == 400
