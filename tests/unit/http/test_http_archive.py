"""The archive over HTTP, and as the command line shows it."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from http_client import Client
from http_support import make_client

from orchestrator.functions.provider import EngineProvider
from tests.support.archives import archived
from tests.support.definitions import flow, task
from tests.support.world import FakeActivities, World

TENANT = "default"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path, FakeActivities(noop=lambda call: call.input)).open()
    yield made
    await made.close()


@pytest.fixture
async def api(world: World) -> Client:
    async def build() -> Any:
        return world.engine

    return make_client(EngineProvider(build))


async def _archived(world: World, api: Client, workflow: str = "flow") -> tuple[str, str]:
    await api("POST", "/v1/workflows", json=flow(workflow, a=task("noop", input="${input}")))
    started = await api("POST", f"/v1/workflows/{workflow}/start", json={"input": {"n": 1}})
    await world.settle()
    id = started.json()["id"]
    return id, await archived(world.engine, TENANT, id)


async def test_it_is_listed_shown_downloaded_restored_and_gone(world: World, api: Client) -> None:
    id, key = await _archived(world, api)
    assert (await api("GET", f"/v1/executions/{id}")).status == 404
    (item,) = (await api("GET", "/v1/archive?workflow=flow&status=COMPLETED")).json()["items"]
    assert (item["id"], item["execution"]) == (key, id)
    assert (await api("GET", f"/v1/archive/{key}")).json() == item
    got = await api("GET", f"/v1/archive/{key}/content")
    assert (got.status, got.media) == (200, "application/gzip")
    lines = [orjson.loads(line) for line in gzip.decompress(got.body).splitlines()]
    assert lines[-1]["id"] == id
    back = await api("POST", f"/v1/archive/{key}/restore", json={"reason": "asked for"})
    assert (back.status, back.headers["location"]) == (200, f"/v1/executions/{id}")
    assert (await api("GET", f"/v1/executions/{id}")).json()["input"] == {"n": 1}
    assert (await api("GET", f"/v1/archive/{key}")).error["code"] == "ARCHIVE_NOT_FOUND"


async def test_pages_by_cursor_and_filters_of_an_execution(world: World, api: Client) -> None:
    made = [await _archived(world, api, f"w{number}") for number in range(3)]
    first = (await api("GET", "/v1/archive?limit=2")).json()
    rest = await api("GET", f"/v1/archive?limit=2&cursor={first['nextCursor']}")
    found = [one["execution"] for one in (*first["items"], *rest.json()["items"])]
    assert sorted(found) == sorted(id for id, _ in made)
    one = (await api("GET", f"/v1/archive?execution={made[0][0]}")).json()["items"]
    assert [item["id"] for item in one] == [made[0][1]]
    assert (await api("GET", "/v1/archive?status=BUSY")).status == 400


async def test_only_ends_are_a_filter(api: Client) -> None:
    got = await api("GET", "/v1/archive?status=RUNNING")
    assert got.status == 400
    assert "CANCELLED, COMPLETED, FAILED" in got.error["message"]


async def test_removed_for_good_once(world: World, api: Client) -> None:
    _, key = await _archived(world, api)
    assert (await api("DELETE", f"/v1/archive/{key}")).status == 204
    assert (await api("DELETE", f"/v1/archive/{key}")).status == 404
    assert (await api("GET", f"/v1/archive/{key}/content")).status == 404
    assert (await api("POST", f"/v1/archive/{key}/restore")).status == 404
