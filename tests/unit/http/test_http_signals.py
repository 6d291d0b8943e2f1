"""The signal routes over the real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from http_client import Client
from http_support import make_client

from orchestrator.engine import catalog, submit
from orchestrator.functions.provider import EngineProvider
from tests.support.definitions import flow
from tests.support.world import World

TENANT = "default"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path).open()
    schema = {"type": "object", "required": ["by"]}
    tasks: Any = {
        "s": {"type": "signal", "signal": "approved", "schema": schema},
        "t": {"type": "signal", "signal": "any"},
    }
    await catalog.publish(made.engine, TENANT, flow(**tasks))
    yield made
    await made.close()


@pytest.fixture
def api(world: World) -> Client:
    async def build() -> Any:
        return world.engine

    return make_client(EngineProvider(build))


@pytest.fixture
async def path(world: World) -> str:
    started = await submit.start(world.engine, TENANT, "flow", None)
    return f"/v1/executions/{started.id}/signals"


async def test_a_signal_is_202_its_repetition_200_and_another_content_409(
    world: World, api: Client, path: str
) -> None:
    body = {"name": "approved", "payload": {"by": "eve", "n": 2**53 + 1}, "id": "a-1"}
    first = await api("POST", path, json=body)
    assert (first.status, first.json()["created"], first.json()["id"]) == (202, True, "a-1")
    again = await api("POST", path, json=body)
    assert (again.status, again.json()) == (200, {**first.json(), "created": False})
    other = await api("POST", path, json={**body, "payload": {"by": "bob"}})
    assert (other.status, other.error["code"]) == (409, "SIGNAL_ID_REUSED")
    await world.settle()
    (shown,) = (await api("GET", path)).json()["items"]
    assert (shown["status"], shown["task"], shown["sentBy"]) == ("CONSUMED", "s", "developer")
    task = (await api("GET", path.replace("/signals", "/tasks/s"))).json()
    assert task["output"] == {"by": "eve", "n": 2**53 + 1}
    history = (await api("GET", path.replace("/signals", "/history"))).json()["items"]
    told = {one["type"]: one for one in history}
    assert told["signalReceived"] | {"seq": 0, "at": ""} == {
        "seq": 0,
        "at": "",
        "type": "signalReceived",
        "id": "a-1",
        "name": "approved",
    }
    assert told["signalAwaited"]["task"] in "st"
    assert [one["signal"] for one in history if one["type"] == "taskCompleted"] == ["a-1"]


async def test_the_idempotency_key_is_the_signals_id(api: Client, path: str) -> None:
    key = {"Idempotency-Key": "k 1/ü".encode().decode("latin-1")}
    body = {"name": "any"}
    assert (await api("POST", path, json=body, headers=key)).status == 202
    assert (await api("POST", path, json=body, headers=key)).status == 200
    clash = await api("POST", path, json={**body, "id": "x"}, headers=key)
    assert (clash.status, clash.json()["error"]["details"][0]["field"]) == (422, "$.id")
    assert (await api("POST", path, json=body)).status == 202
    assert (await api("POST", path, json=body)).status == 202, "without an id each is its own"
    assert len((await api("GET", f"{path}?limit=200")).json()["items"]) == 3


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({}, 422, "INVALID_BODY", "$.name"),
        ({"name": ""}, 422, "INVALID_BODY", "$.name"),
        ({"name": 7}, 422, "INVALID_BODY", "$.name"),
        ({"name": "any", "id": ""}, 422, "INVALID_BODY", "$.id"),
        ({"name": "any", "id": "x" * 256}, 422, "INVALID_BODY", "$.id"),
        ({"name": "any", "id": "a\nb"}, 422, "INVALID_BODY", "$.id"),
        ({"name": "any", "data": 1}, 422, "INVALID_BODY", "$.data"),
        ({"name": "anny"}, 422, "UNKNOWN_SIGNAL", "$.name"),
        ({"name": "approved"}, 422, "PAYLOAD_INVALID", "$.payload"),
        ({"name": "approved", "payload": {}}, 422, "PAYLOAD_INVALID", "$.payload"),
    ],
)
async def test_bad_signals_are_refused_with_the_field_and_nothing_is_stored(
    api: Client, path: str, body: Any, status: int, code: str, field: str
) -> None:
    got = await api("POST", path, json=body)
    assert (got.status, got.error["code"]) == (status, code)
    assert field in [detail["field"] for detail in got.error["details"]]
    assert (await api("GET", path)).json()["items"] == []


async def test_unknown_and_ended_executions(world: World, api: Client, path: str) -> None:
    unknown = await api("POST", "/v1/executions/nothing/signals", json={"name": "any"})
    assert (unknown.status, unknown.error["code"]) == (404, "EXECUTION_NOT_FOUND")
    assert (await api("GET", "/v1/executions/nothing/signals")).status == 404
    await api("POST", path.replace("/signals", "/cancel"))
    ended = await api("POST", path, json={"name": "any"})
    assert (ended.status, ended.error["code"]) == (409, "EXECUTION_ENDED")


async def test_the_list_is_paged(world: World, api: Client, path: str) -> None:
    for n in range(5):
        await api("POST", path, json={"name": "any", "id": f"n{n}"})
        world.clock.jump(n % 2)
    seen: list[str] = []
    cursor = ""
    while True:
        got = (await api("GET", f"{path}?limit=2{cursor}")).json()
        seen += [one["id"] for one in got["items"]]
        if got["nextCursor"] is None:
            break
        cursor = f"&cursor={got['nextCursor']}"
    assert sorted(seen) == [f"n{n}" for n in range(5)]
    assert len(seen) == 5
