"""The dead letter routes over the real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from http_client import Client
from http_support import make_client

from orchestrator.engine import catalog, submit
from orchestrator.functions.provider import EngineProvider
from orchestrator.ports import ActivityCall
from tests.support.definitions import flow, retry, task
from tests.support.world import FakeActivities, World

TENANT = "default"


def boom(call: ActivityCall) -> Any:
    if call.input is None:
        raise ValueError("no input")
    return call.input


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path, FakeActivities(boom=boom)).open()
    await catalog.publish(made.engine, TENANT, flow(a=task("boom", retry=retry(1))))
    yield made
    await made.close()


@pytest.fixture
def api(world: World) -> Client:
    async def build() -> Any:
        return world.engine

    return make_client(EngineProvider(build))


async def failed(world: World) -> str:
    started = await submit.start(world.engine, TENANT, "flow", None)
    await world.run_until_quiet()
    return started.id


async def test_a_letter_is_found_shown_and_retried_with_another_input(
    world: World, api: Client
) -> None:
    execution = await failed(world)
    (found,) = (await api("GET", "/v1/deadletters?status=OPEN&errorType=ValueError")).json()[
        "items"
    ]
    path = f"/v1/deadletters/{found['id']}"
    assert (await api("GET", path)).json()["error"]["message"] == "no input"
    body = {"reason": "fixed", "input": {"n": 1}}
    for _ in range(2):
        got = await api("POST", f"{path}/retry", json=body)
        assert (got.status, got.json()["status"]) == (200, "RETRIED")
        assert got.json()["resolved"]["reason"] == "fixed"
    refused = await api("POST", f"{path}/skip", json={"output": 1})
    assert (refused.status, refused.error["code"]) == (409, "DEAD_LETTER_RESOLVED")
    await world.run_until_quiet()
    shown = await api("GET", f"/v1/executions/{execution}")
    assert shown.json()["status"] == "COMPLETED"
    assert (await api("GET", "/v1/deadletters?status=OPEN")).json()["items"] == []


async def test_null_is_an_edited_input_and_left_out_is_none(world: World, api: Client) -> None:
    await failed(world)
    (found,) = (await api("GET", "/v1/deadletters")).json()["items"]
    path = f"/v1/deadletters/{found['id']}/retry"
    assert (await api("POST", path, json={"input": None})).status == 200
    assert (await api("POST", path)).status == 409


async def test_bulk_and_the_retry_of_an_execution(world: World, api: Client) -> None:
    ids = [await failed(world) for _ in range(3)]
    got = await api("POST", f"/v1/executions/{ids[0]}/retry", json={"reason": "again"})
    assert (got.status, got.json()["status"]) == (200, "RUNNING")
    await world.run_until_quiet()
    since = {"createdAfter": "2020-01-01T00:00:00Z"}
    body = {"action": "skip", "output": 5, "filter": since, "limit": 2}
    got = await api("POST", "/v1/deadletters/bulk", json=body)
    assert (got.status, got.json()["done"], got.json()["more"]) == (200, 2, True)
    assert (await api("POST", "/v1/deadletters/bulk", json=body)).json()["done"] == 1
    await world.run_until_quiet()
    for id in ids:
        assert (await api("GET", f"/v1/executions/{id}")).json()["status"] == "COMPLETED"


async def test_bulk_goes_on_behind_what_it_refused(world: World, api: Client) -> None:
    """However often the same call came, it met the same newest letters and did nothing."""
    id = await failed(world)
    tolerant = flow("soft", a=task("boom", retry=retry(1), continueOnError=True))
    await catalog.publish(world.engine, TENANT, tolerant)
    for _ in range(3):
        await world.clock.advance(1_000)
        await submit.start(world.engine, TENANT, "soft", None)
        await world.run_until_quiet()
    body = {"action": "retry", "limit": 2}
    first = (await api("POST", "/v1/deadletters/bulk", json=body)).json()
    assert (first["done"], len(first["refused"]), first["more"]) == (0, 2, True)
    body["cursor"] = first["nextCursor"]
    second = (await api("POST", "/v1/deadletters/bulk", json=body)).json()
    assert (second["done"], len(second["refused"])) == (1, 1)
    assert (await api("GET", f"/v1/executions/{id}")).json()["status"] == "RUNNING"
    last = await api("POST", "/v1/deadletters/bulk", json=body | {"cursor": second["nextCursor"]})
    assert (last.json()["done"], last.json()["more"], last.json()["nextCursor"]) == (0, False, None)
    other = await api("POST", "/v1/deadletters/bulk", json={**body, "filter": {"task": "a"}})
    assert (other.status, other.json()["error"]["code"]) == (400, "INVALID_CURSOR")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"action": "eat"},
        {"action": "retry", "limit": 1001},
        {"action": "retry", "filter": {"nope": 1}},
        {"action": "retry", "filter": {"createdAfter": "yesterday"}},
        {"action": "retry", "filter": {"createdAfter": True}},
        {"action": "retry", "filter": {"createdAfter": 1800000000000}},
    ],
)
async def test_a_bulk_request_that_is_wrong_is_422(api: Client, body: Any) -> None:
    assert (await api("POST", "/v1/deadletters/bulk", json=body)).status == 422


async def test_an_unknown_letter_is_404(api: Client) -> None:
    got = await api("GET", "/v1/deadletters/other~a~1")
    assert (got.status, got.error["code"]) == (404, "DEAD_LETTER_NOT_FOUND")
    assert (await api("POST", "/v1/deadletters/other~a~1/retry")).status == 404


async def test_a_replay_is_202_once_and_200_after(world: World, api: Client) -> None:
    id = await failed(world)
    path = f"/v1/executions/{id}/replay"
    body = {"from": "a", "version": "same", "reason": "again"}
    first = await api("POST", path, json=body, headers={"idempotency-key": "k"})
    assert first.status == 202
    assert first.headers["location"] == f"/v1/executions/{first.json()['id']}"
    second = await api("POST", path, json=body, headers={"idempotency-key": "k"})
    assert (second.status, second.json()["id"]) == (200, first.json()["id"])
    shown = (await api("GET", f"/v1/executions/{first.json()['id']}")).json()
    assert (shown["replayOf"], shown["replayFrom"]) == (id, "a")
    assert (await api("POST", path, json={"version": "v2"})).status == 422
    assert (await api("POST", path, json={"from": "nope"})).status == 404
