"""What holds for every POST and PUT alike: it may be repeated, and it takes nothing that it does
not know. Over the real engine; a new route must find its place in these tables."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from http_client import Client, Got
from http_support import make_client

from orchestrator.domain.topology import CATALOG, EXECUTIONS
from orchestrator.engine import schedules
from orchestrator.functions.provider import EngineProvider
from orchestrator.ports import Query
from tests.support.archives import archived
from tests.support.bulks import registry
from tests.support.definitions import flow, retry, task
from tests.support.world import FakeActivities, World

TENANT = "default"
EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "placed", "data": {"n": 5}}
SCHEDULE = {"name": "s", "workflow": "flow", "interval": "1h", "input": "${tick}"}
TRIGGER = {"name": "t", "workflow": "flow", "match": {"type": "placed"}}
FLOW = flow(a=task("noop", input="${input}"))
KEY = {"idempotency-key": "k-1"}

# Route -> a request that succeeds; `{…}` are ids that the fixture makes.
REQUESTS: dict[str, tuple[Any, dict[str, str]]] = {
    "POST v1/workflows": (flow("fresh", a=task("noop")), {}),
    "POST v1/workflows/{name}/start": ({"input": 1}, KEY),
    "POST v1/executions/{id}/pause": ({}, {}),
    "POST v1/executions/{id}/resume": ({}, {}),
    "POST v1/executions/{id}/cancel": ({}, {}),
    "POST v1/executions/{id}/terminate": ({}, {}),
    "POST v1/executions/{id}/replay": ({}, KEY),
    "POST v1/executions/{id}/retry": ({}, {}),
    "POST v1/executions/{id}/signals": ({"name": "go", "payload": 1}, KEY),
    "POST v1/executions/{id}/erase": ({}, {}),
    "POST v1/archive/{archiveId}/restore": ({}, {}),
    "POST v1/deadletters/{letterId}/retry": ({}, {}),
    "POST v1/deadletters/{letterId}/skip": ({"output": 1}, {}),
    "POST v1/deadletters/{letterId}/fail": ({}, {}),
    "POST v1/deadletters/{letterId}/discard": ({}, {}),
    "POST v1/deadletters/bulk": ({"action": "retry"}, {}),
    "POST v1/executions/bulk": ({"action": "cancel", "filter": {"status": "RUNNING"}}, KEY),
    "POST v1/schedules": ({**SCHEDULE, "name": "fresh"}, {}),
    "PUT v1/schedules/{schedule}": ({**SCHEDULE, "interval": "2h"}, {}),
    "POST v1/schedules/{schedule}/pause": ({}, {}),
    "POST v1/schedules/{schedule}/resume": ({}, {}),
    "POST v1/schedules/{schedule}/run": ({}, KEY),
    "POST v1/triggers": ({**TRIGGER, "name": "fresh"}, {}),
    "PUT v1/triggers/{triggerName}": ({**TRIGGER, "tags": {"a": "b"}}, {}),
    "POST v1/triggers/{triggerName}/pause": ({}, {}),
    "POST v1/triggers/{triggerName}/resume": ({}, {}),
    "POST v1/triggers/{triggerName}/test": (EVENT, {}),
    "POST v1/events": (EVENT, {"content-type": "application/cloudevents+json"}),
    "POST v1/breakers/{dependency}/open": ({}, {}),
    "POST v1/breakers/{dependency}/close": ({}, {}),
    "POST v1/code-workflows": ({}, {}),
    "PUT v1/tenants/{tenantId}/grants": (
        {"grants": [{"subjects": ["bob"], "role": "viewer"}]},
        {},
    ),
    "PUT v1/tenants/{tenantId}/egress": ({"networks": ["10.1.0.0/16"]}, {}),
    "PUT v1/tenants/{tenantId}/limits": ({"openExecutions": 7}, {}),
}
OPEN_ENDED = {"POST v1/events", "POST v1/triggers/{triggerName}/test"}
"""CloudEvents have extension attributes: unknown members are allowed there."""
WANTED = {  # what the execution of the request must be like
    "POST v1/executions/{id}/signals": "waiting",
    "POST v1/executions/{id}/replay": "done",
    "POST v1/executions/{id}/retry": "failed",
    "POST v1/executions/{id}/pause": "waiting",
    "POST v1/executions/{id}/resume": "waiting",
    "POST v1/executions/{id}/cancel": "waiting",
    "POST v1/executions/{id}/terminate": "waiting",
    "POST v1/executions/{id}/erase": "done",
}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    def boom(call: Any) -> Any:
        if call.attempt == 1:
            raise ValueError("boom")
        return "mended"

    made = await World(tmp_path, FakeActivities(noop=lambda call: call.input, boom=boom)).open()
    made.engine.code = registry()
    yield made
    await made.close()


@pytest.fixture
async def api(world: World) -> Client:
    async def build() -> Any:
        return world.engine

    return make_client(EngineProvider(build))


async def prepared(world: World, api: Client) -> dict[str, str]:
    """Something of every kind; the ids by their placeholders."""

    async def made(method: str, path: str, body: Any) -> Any:
        got = await api(method, path, json=body)
        assert got.status in (200, 201, 202), (path, got.body)
        return got.json()

    await made("POST", "/v1/workflows", FLOW)
    await made("POST", "/v1/workflows", flow("waiting", s={"type": "signal", "signal": "go"}))
    failing = flow("failed", a=task("boom", retry=retry(1)))
    await made("POST", "/v1/workflows", failing)
    hold = flow("hold", a=task("boom", retry=retry(1)), on_failure="hold")
    await made("POST", "/v1/workflows", hold)
    await made("POST", "/v1/schedules", SCHEDULE)
    await made("POST", "/v1/triggers", TRIGGER)
    ids = {"name": "flow", "schedule": "s", "triggerName": "t", "dependency": "pay.example"}
    ids["tenantId"] = TENANT
    for kind, workflow in (
        ("waiting", "waiting"),
        ("done", "flow"),
        ("failed", "failed"),
        ("hold", "hold"),
    ):
        ids[kind] = (await made("POST", f"/v1/workflows/{workflow}/start", {"input": 1}))["id"]
    await world.settle()
    found = (await api("GET", "/v1/deadletters")).json()["items"]
    old = (await made("POST", "/v1/workflows/flow/start", {"input": 2}))["id"]
    await world.settle()
    ids["archiveId"] = await archived(world.engine, TENANT, old)
    ids |= {f"letter of {one['workflow']}": one["id"] for one in found}
    return ids


def address(route: str, ids: dict[str, str]) -> tuple[str, str]:
    method, _, path = route.partition(" ")
    # Of an execution that has failed, a letter can be discarded; of one on hold, failed.
    letter = ids["letter of failed" if path.endswith("discard") else "letter of hold"]
    mine = {"id": ids[WANTED.get(route, "done")], "letterId": letter}
    for name, value in {**ids, **mine}.items():
        path = path.replace("{" + name + "}", value)
    return method, "/" + path


async def send(api: Client, route: str, ids: dict[str, str], body: Any, more: Any) -> Got:
    method, path = address(route, ids)
    headers = {"content-type": "application/json", **more}
    return await api(method, path, body=json.dumps(body).encode(), headers=headers)


async def everything(world: World) -> dict[str, Any]:
    """What is stored, without what only says when somebody looked."""
    found: dict[str, Any] = {}
    for container in (EXECUTIONS, CATALOG):
        for doc in await world.sqlite.query(container, Query(limit=1_000)):
            found[f"{container} {doc.body.get('executionId', '')} {doc.id}"] = doc.etag
    return found


def test_every_post_and_put_is_in_the_table(api: Client) -> None:
    bound = {
        f"{method} {one.route}"
        for one in api.bound
        if not one.catches_all
        for method in one.methods
        if method in ("POST", "PUT")
    }
    assert bound == set(REQUESTS)


@pytest.mark.parametrize("route", REQUESTS)
async def test_a_repeated_request_has_no_second_effect(
    world: World, api: Client, route: str
) -> None:
    ids = await prepared(world, api)
    body, more = REQUESTS[route]
    first = await send(api, route, ids, body, more)
    assert first.status in (200, 201, 202), first.body
    await world.settle()
    before, calls = await everything(world), len(world.activities.calls)
    await world.clock.advance(10)
    second = await send(api, route, ids, body, more)
    await world.settle()
    assert second.status in (200, 202, 409), second.body
    assert await everything(world) == before
    assert len(world.activities.calls) == calls


@pytest.mark.parametrize(
    "route",
    [
        route
        for route, (body, _) in REQUESTS.items()
        if body is not None and route not in OPEN_ENDED
    ],
)
async def test_an_unknown_field_is_refused_with_its_path_and_nothing_happens(
    world: World, api: Client, route: str
) -> None:
    ids = await prepared(world, api)
    body, more = REQUESTS[route]
    before = await everything(world)
    got = await send(api, route, ids, {**body, "bogus": 1}, more)
    assert (got.status, "$.bogus" in {one["field"] for one in got.error["details"]}) == (422, True)
    await world.settle()
    assert await everything(world) == before


async def test_two_manual_runs_with_one_key_at_two_instances_are_one_execution(
    world: World, api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes a little later, so its input names another time, and finds the first while
    it stores its own."""
    await prepared(world, api)
    other = world.another("worker-2")
    store, looked = world.engine.store, 0
    read_many = store.read_many

    async def overtaken(container: str, *rest: Any) -> Any:
        nonlocal looked
        found = await read_many(container, *rest)
        if container == EXECUTIONS and (looked := looked + 1) == 1:
            await schedules.run(other, TENANT, "s", key="k")
            world.clock.jump(7)
        return found

    monkeypatch.setattr(store, "read_many", overtaken)
    got = await api("POST", "/v1/schedules/s/run", headers={"idempotency-key": "k"})
    assert got.status == 200
    assert got.json()["id"] == schedules.manual_id(TENANT, "s", "k")
    history = (await api("GET", "/v1/schedules/s/history")).json()["items"]
    assert [one["outcome"] for one in history] == ["manual"]
