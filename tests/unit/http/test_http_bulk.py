"""Bulk operations over HTTP: submitted, repeated, refused, over the real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from http_client import Client
from http_support import make_client

from orchestrator.domain.priority import Priority
from orchestrator.domain.tenant_limits import TenantLimits
from orchestrator.engine import inspect
from orchestrator.engine.core import Tunables
from orchestrator.functions.provider import EngineProvider
from tests.support.bulks import registry
from tests.support.world import World

TENANT = "default"
URL = "/v1/executions/bulk"
CANCEL = {"action": "cancel", "filter": {"workflow": "flow", "tag": "a=b"}, "reason": "wrong"}
PREFER = {"Prefer": "respond-async"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    strict = Tunables(limits=TenantLimits(open_executions=1, starts_per_second=1))
    made = await World(tmp_path, tunables=strict).open()
    made.engine.code = registry()
    yield made
    await made.close()


@pytest.fixture
def api(world: World) -> Client:
    async def build() -> Any:
        return world.engine

    return make_client(EngineProvider(build))


async def shown(world: World, id: str) -> Any:
    return await inspect.execution(world.engine, TENANT, id)


async def test_it_is_an_execution_of_its_own(world: World, api: Client) -> None:
    got = await api("POST", URL, json=CANCEL, headers={"Idempotency-Key": "k"})
    assert got.status == 202
    id = got.json()["id"]
    assert got.headers["location"] == f"/v1/executions/{id}"
    view = await shown(world, id)
    assert (view.workflow, view.status) == ("weft-bulk", "PENDING")
    assert view.input == {"target": "executions", **CANCEL}
    again = await api("POST", URL, json=CANCEL, headers={"Idempotency-Key": "k"})
    assert (again.status, again.json()["id"]) == (200, id)
    other = {**CANCEL, "action": "pause"}
    refused = await api("POST", URL, json=other, headers={"Idempotency-Key": "k"})
    assert (refused.status, refused.error["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_limits_of_the_tenant_do_not_hold_operators_back(api: Client) -> None:
    for _ in range(5):
        assert (await api("POST", URL, json=CANCEL)).status == 202


async def test_dead_letters_are_decided_about_at_once_or_later(world: World, api: Client) -> None:
    body = {"action": "skip", "filter": {"createdAfter": "2026-01-01T00:00:00Z"}, "output": 3}
    url = "/v1/deadletters/bulk"
    assert (await api("POST", url, json=body)).json()["done"] == 0
    for prefer in ("respond-async", "wait=5, Respond-Async"):
        got = await api("POST", url, json=body, headers={"Prefer": prefer})
        assert got.status == 202
        view = await shown(world, got.json()["id"])
        assert view.input == {
            "target": "deadletters",
            "action": "skip",
            "filter": {"createdAfter": 1_767_225_600_000},
            "reason": "",
            "output": 3,
        }
    got = await api("POST", url, json={**body, "limit": 7}, headers=PREFER)
    assert (await shown(world, got.json()["id"])).input["limit"] == 7


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"action": "skip"}, "action"),
        ({"filter": {}}, "filter"),
        ({"filter": {"status": "OVER"}}, "filter.status"),
        ({"filter": {"tag": "nothing"}}, "filter.tag"),
        ({"filter": {"createdAfter": 5}}, "filter.createdAfter"),
        ({"filter": {"task": "a"}}, "filter.task"),
        ({"action": "pause", "compensate": True}, ""),
        ({"limit": 0}, "limit"),
        ({"reason": "x" * 1_001}, "reason"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_field(
    api: Client, change: dict[str, Any], field: str
) -> None:
    got = await api("POST", URL, json={**CANCEL, **change})
    assert got.status == 422
    assert field in str(got.error["details"])


async def test_lists_of_workflows_do_not_show_it(api: Client) -> None:
    assert (await api("GET", "/v1/workflows")).json()["items"] == []
    assert (await api("GET", "/v1/workflows/weft-bulk")).status == 404
    (found,) = (await api("GET", "/v1/code-workflows")).json()["items"]
    assert (found["name"], found["builtIn"]) == ("weft-bulk", True)
    assert (await api("POST", "/v1/workflows/weft-bulk/start", json={"input": {}})).status == 404


async def test_it_goes_before_other_work(world: World, api: Client) -> None:
    id = (await api("POST", URL, json=CANCEL)).json()["id"]
    found = await inspect.aggregate(world.engine, TENANT, id)
    assert found.header["priority"] == Priority.HIGH.value


async def test_an_app_without_it_says_so(world: World, api: Client) -> None:
    from orchestrator.ports_durable import Empty

    world.engine.code = Empty()
    got = await api("POST", URL, json=CANCEL)
    assert (got.status, got.error["code"]) == (503, "NOT_DEPLOYED")
