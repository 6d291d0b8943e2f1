"""The circuit breaker routes over the real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from http_client import Client
from http_support import make_client

from orchestrator.domain.breakers import Verdict
from orchestrator.engine.breakers import Breakers
from orchestrator.functions.provider import EngineProvider
from tests.support.world import World

PATH = "/v1/breakers/pay.example:8443"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path).open()
    yield made
    await made.close()


@pytest.fixture
def api(world: World) -> Client:
    async def build() -> Any:
        return world.engine

    return make_client(EngineProvider(build))


async def test_a_breaker_that_opened_by_failures_is_listed_with_counts_and_errors(
    world: World, api: Client
) -> None:
    breakers = world.engine.part(Breakers)
    await breakers.report("default", "pay.example", Verdict.SUCCESS)
    for _ in range(10):
        await breakers.report("default", "pay.example", Verdict.FAILURE, error="HttpTimeout")
    [found] = (await api("GET", "/v1/breakers")).json()["items"]
    assert found["dependency"] == "pay.example"
    assert (found["status"], found["failures"], found["successes"]) == ("open", 10, 1)
    assert found["errors"] == ["HttpTimeout"]
    assert found["until"].endswith("Z")
    assert (await api("GET", "/v1/breakers/pay.example")).json() == found


async def test_open_and_close_are_idempotent(world: World, api: Client) -> None:
    body = {"reason": "maintenance", "for": "90m"}
    first = await api("POST", f"{PATH}/open", json=body)
    assert (first.status, first.json()["status"], first.json()["manual"]) == (200, "open", True)
    await world.clock.advance(5)
    assert (await api("POST", f"{PATH}/open", json=body)).json() == first.json()
    stays = (await api("POST", f"{PATH}/open")).json()
    assert (stays["until"], stays["reason"]) == (None, "")
    for _ in range(2):
        closed = await api("POST", f"{PATH}/close", json={"reason": "done"})
        assert (closed.status, closed.json()["status"]) == (200, "closed")
    assert (await api("GET", PATH)).json()["by"] == "developer"


async def test_a_name_is_one_in_any_case(api: Client) -> None:
    await api("POST", "/v1/breakers/Pay.Example/open")
    assert (await api("GET", "/v1/breakers/pay.example")).json()["status"] == "open"


async def test_what_never_failed_is_404_to_look_at_and_closed_to_close(api: Client) -> None:
    got = await api("GET", PATH)
    assert (got.status, got.error["code"]) == (404, "BREAKER_NOT_FOUND")
    assert (await api("POST", f"{PATH}/close")).json()["status"] == "closed"
    assert (await api("GET", "/v1/breakers")).json() == {"items": []}


@pytest.mark.parametrize(
    "body",
    [
        {"for": "soon"},
        {"for": "0s"},
        {"for": "31d"},
        {"for": True},
        {"for": 5},
        {"nope": 1},
        {"reason": "x" * 1_001},
    ],
)
async def test_a_wrong_body_is_422_and_changes_nothing(api: Client, body: Any) -> None:
    assert (await api("POST", f"{PATH}/open", json=body)).status == 422
    assert (await api("GET", PATH)).status == 404


async def test_a_wrong_time_is_explained_in_the_users_terms(api: Client) -> None:
    for given, said in (("31d", "at most 30d"), (5, "as text"), ("soon", "not a duration")):
        got = await api("POST", f"{PATH}/open", json={"for": given})
        assert said in got.error["message"]
        assert "Value error" not in got.error["message"]


@pytest.mark.parametrize("name", ["a%20b", "a%25b", "x" * 201])
async def test_a_name_that_cannot_be_one_is_400(api: Client, name: str) -> None:
    got = await api("POST", f"/v1/breakers/{name}/open")
    assert (got.status, got.error["code"]) == (400, "INVALID_PARAMETER")
