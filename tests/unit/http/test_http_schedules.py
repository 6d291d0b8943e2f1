"""The schedule routes over the real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from http_client import Client
from http_support import make_client

from orchestrator.engine import catalog, schedule, schedules
from orchestrator.functions.provider import EngineProvider
from tests.support.definitions import flow, task
from tests.support.schedules import HOUR, MINUTE
from tests.support.world import FakeActivities, World

TENANT = "default"
SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
SPEC = {
    "name": "s",
    "workflow": "flow",
    "cron": "0 9 * * *",
    "timeZone": "Europe/Berlin",
    "input": {"n": 1},
}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path, FakeActivities(noop=lambda call: None)).open()
    await catalog.publish(made.engine, TENANT, flow(a=task("noop"), input_schema=SCHEMA))
    yield made
    await made.close()


@pytest.fixture
def api(world: World) -> Client:
    async def build() -> Any:
        return world.engine

    return make_client(EngineProvider(build))


async def test_creating_is_idempotent_by_name_and_shows_the_next_five(api: Client) -> None:
    got = await api("POST", "/v1/schedules", json=SPEC)
    assert got.status == 201
    assert got.headers["location"] == "/v1/schedules/s"
    assert got.headers["etag"] == '"1"'
    assert [one["local"] for one in got.json()["next"]] == [
        f"2027-01-{day}T09:00:00+01:00" for day in range(16, 21)
    ]
    assert got.json()["next"][0]["at"] == "2027-01-16T08:00:00.000Z"
    again = await api("POST", "/v1/schedules", json={**SPEC, "input": {"n": 1}})
    assert (again.status, again.json()["createdAt"]) == (200, got.json()["createdAt"])
    other = await api("POST", "/v1/schedules", json={**SPEC, "cron": "0 8 * * *"})
    assert (other.status, other.error["code"]) == (409, "SCHEDULE_EXISTS")
    shown = await api("GET", "/v1/schedules/s")
    assert shown.json() == again.json()


async def test_yaml_is_read_too(api: Client) -> None:
    text = "name: y\nworkflow: flow\ninterval: 90s\nmisfire: {catchUp: 3}\ninput: {n: 2}\n"
    got = await api(
        "POST", "/v1/schedules", body=text.encode(), headers={"content-type": "application/yaml"}
    )
    assert got.status == 201
    assert got.json()["definition"]["misfire"] == {"catchUp": 3}


@pytest.mark.parametrize(
    ("change", "status", "code", "field"),
    [
        ({"cron": "0 0 30 2 *"}, 422, "BAD_SCHEDULE", "$.cron"),
        ({"cron": "0 0 9 * * *"}, 422, "BAD_SCHEDULE", "$.cron"),
        ({"timeZone": "Europe/Berln"}, 422, "BAD_SCHEDULE", "$.timeZone"),
        ({"cron": None, "interval": "10ms"}, 422, "BAD_SCHEDULE", "$.interval"),
        (
            {"start": "2028-01-02T00:00:00Z", "end": "2028-01-01T00:00:00Z"},
            422,
            "BAD_SCHEDULE",
            "$.end",
        ),
        ({"end": "2027-01-15T08:30:00Z"}, 422, "NEVER_FIRES", "$"),
        ({"cron": None, "at": "2020-01-01T00:00:00Z"}, 422, "NEVER_FIRES", "$"),
        ({"workflow": "flows"}, 422, "WORKFLOW_NOT_FOUND", "$.workflow"),
        ({"version": 9}, 422, "VERSION_NOT_FOUND", "$.version"),
        ({"input": {"n": "x"}}, 422, "INPUT_INVALID", "$.input.n"),
        ({"input": {}}, 422, "INPUT_INVALID", "$.input"),
        ({"input": {"n": "${tick}"}}, 422, "INPUT_INVALID", "$.input.n"),
        ({"input": {"n": "${schedule.nope}"}}, 422, "INVALID", "$.input.n"),
    ],
)
async def test_bad_input_is_refused_and_nothing_is_stored(
    api: Client, change: dict[str, Any], status: int, code: str, field: str
) -> None:
    got = await api("POST", "/v1/schedules", json={**SPEC, **change})
    assert (got.status, got.error["code"]) == (status, code), got.error
    assert field in [one["field"] for one in got.error["details"]]
    assert (await api("GET", "/v1/schedules")).json()["items"] == []


async def test_the_body_must_be_a_readable_object(api: Client) -> None:
    for body in (b"", b"{", b"[1, 2"):
        got = await api(
            "POST", "/v1/schedules", body=body, headers={"content-type": "application/json"}
        )
        assert got.status == 400
    for value in ([], "x", 1):
        assert (await api("POST", "/v1/schedules", json=value)).status == 422
    assert (await api("POST", "/v1/schedules", body=b"x")).status == 415


async def test_an_archived_workflow_cannot_be_scheduled(world: World, api: Client) -> None:
    await catalog.archive(world.engine, TENANT, "flow")
    got = await api("POST", "/v1/schedules", json=SPEC)
    assert (got.status, got.error["code"]) == (409, "WORKFLOW_ARCHIVED")


async def test_changing_it_with_and_without_if_match(api: Client) -> None:
    await api("POST", "/v1/schedules", json=SPEC)
    body = {**SPEC, "cron": "0 10 * * *"}
    got = await api("PUT", "/v1/schedules/s", json=body, headers={"if-match": '"1"'})
    assert (got.status, got.headers["etag"], got.json()["revision"]) == (200, '"2"', 2)
    late = await api("PUT", "/v1/schedules/s", json=SPEC, headers={"if-match": '"1"'})
    assert (late.status, late.error["code"]) == (412, "PRECONDITION_FAILED")
    for wrong in ("x", '"²"', "W/1", '"1", "2"'):
        got = await api("PUT", "/v1/schedules/s", json=body, headers={"if-match": wrong})
        assert (got.status, got.error["code"]) == (400, "INVALID_HEADER")
    same = await api("PUT", "/v1/schedules/s", json=body)
    assert same.json()["revision"] == 2
    nameless = {key: value for key, value in SPEC.items() if key != "name"}
    assert (await api("PUT", "/v1/schedules/s", json=nameless)).json()["revision"] == 3
    renamed = await api("PUT", "/v1/schedules/s", json={**SPEC, "name": "t"})
    assert (renamed.status, renamed.error["details"][0]["field"]) == (422, "$.name")
    assert (await api("PUT", "/v1/schedules/s", json={"cron": "@daily"})).status == 422


async def test_pause_resume_and_delete_are_plain(api: Client) -> None:
    await api("POST", "/v1/schedules", json=SPEC)
    for _ in range(2):
        got = await api("POST", "/v1/schedules/s/pause")
        assert (got.status, got.json()["status"], got.json()["revision"]) == (200, "PAUSED", 2)
        assert len(got.json()["next"]) == 5
    assert (await api("POST", "/v1/schedules/s/pause", json={"x": 1})).status == 422
    again = await api("POST", "/v1/schedules", json=SPEC)
    assert (again.status, again.json()["status"]) == (200, "PAUSED")
    kept = await api("PUT", "/v1/schedules/s", json={**SPEC, "tags": {"a": "b"}})
    assert kept.json()["status"] == "PAUSED"
    assert (await api("POST", "/v1/schedules/s/resume", json={})).json()["status"] == "ACTIVE"
    assert (await api("DELETE", "/v1/schedules/s")).status == 204
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/run"),
        ("GET", "/history"),
    ):
        got = await api(method, f"/v1/schedules/s{path}")
        assert (got.status, got.error["code"]) == (404, "SCHEDULE_NOT_FOUND"), path
    assert (await api("PUT", "/v1/schedules/s", json=SPEC)).status == 404


async def test_a_manual_run_is_idempotent_by_key(world: World, api: Client) -> None:
    await api("POST", "/v1/schedules", json=SPEC)
    await api("POST", "/v1/schedules/s/pause")
    key = {"idempotency-key": "k"}
    first = await api("POST", "/v1/schedules/s/run", headers=key)
    await world.clock.advance(MINUTE)
    second = await api("POST", "/v1/schedules/s/run", headers=key)
    third = await api("POST", "/v1/schedules/s/run")
    assert (first.status, second.status, third.status) == (202, 200, 202)
    assert first.headers["location"] == f"/v1/executions/{first.json()['id']}"
    assert second.json()["id"] == first.json()["id"] != third.json()["id"]
    history = (await api("GET", "/v1/schedules/s/history")).json()["items"]
    assert [(one["outcome"], one["by"]) for one in history] == [("manual", "developer")] * 2
    view = (await api("GET", f"/v1/executions/{first.json()['id']}")).json()
    assert (view["schedule"], view["scheduledFor"]) == ("s", None)


async def test_lists_and_history_are_paged(world: World, api: Client) -> None:
    for n in range(5):
        await api("POST", "/v1/schedules", json={**SPEC, "name": f"s{n}", "cron": "@hourly"})
    page = (await api("GET", "/v1/schedules?limit=3")).json()
    rest = (await api("GET", f"/v1/schedules?limit=3&cursor={page['nextCursor']}")).json()
    names = [one["name"] for one in page["items"] + rest["items"]]
    assert (names, rest["nextCursor"]) == ([f"s{n}" for n in range(5)], None)
    for _ in range(3):
        await world.clock.advance(HOUR)
        await schedule.run_due(world.engine)
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        more = f"&cursor={cursor}" if cursor else ""
        page = (await api("GET", f"/v1/schedules/s1/history?limit=2{more}")).json()
        seen += [one["tick"] for one in page["items"]]
        cursor = page["nextCursor"]
    assert seen == [f"2027-01-15T{hour}:00:00.000Z" for hour in (11, 10, "09")]
    assert (await api("GET", "/v1/schedules/s1/history?cursor=x")).status == 400


async def test_another_tenants_schedule_is_not_there(world: World, api: Client) -> None:
    await catalog.publish(world.engine, "other", flow(a=task("noop")))
    await schedules.create(
        world.engine, "other", {"name": "o", "workflow": "flow", "cron": "@daily"}
    )
    assert (await api("GET", "/v1/schedules/o")).status == 404
    assert (await api("GET", "/v1/schedules")).json()["items"] == []
