"""Limits of tenants over HTTP: who may see and set them, and what a refusal looks like."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from access_support import ACME, BETA, EVENT, TRIGGER, Place, place

from orchestrator.engine import breakers_act

LIMITS = f"/v1/tenants/{ACME}/limits"
START = "/v1/workflows/orders/start"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Place]:
    made = await place(tmp_path)
    yield made
    await made.world.close()


async def write(here: Place, **limits: Any) -> Any:
    got = await here.ask("platform", "PUT", LIMITS, json=limits)
    assert got.status == 200, got.body
    here.world.clock.jump(1_000)
    return got


# --- who may --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "tenant", "get", "put"),
    [
        ("root", ACME, 200, 403),  # a tenant's own administrator does not raise its limits
        ("only-operate", ACME, 200, 403),
        ("only-admin", ACME, 403, 403),
        ("nobody", ACME, 403, 403),
        ("billing", ACME, 403, 403),  # has everything for some workflows only
        ("root", BETA, 404, 404),
        ("beta", ACME, 404, 404),
        ("root", "missing-x", 404, 404),
        ("platform", ACME, 200, 200),
        ("platform", BETA, 200, 200),
        ("platform", "platform", 200, 200),
        ("platform", "_platform", 404, 404),
        ("platform", "A", 404, 404),
        ("platform-viewer", ACME, 404, 404),
        ("platform-viewer", "platform", 200, 403),
    ],
)
async def test_who_sees_and_who_sets_limits(
    here: Place, who: str, tenant: str, get: int, put: int
) -> None:
    url = f"/v1/tenants/{tenant}/limits"
    assert (await here.ask(who, "GET", url)).status == get
    assert (await here.ask(who, "PUT", url, json={"schedules": 4})).status == put


async def test_without_a_platform_tenant_nobody_sets_them(here: Place) -> None:
    here.world.engine.platform_tenant = ""
    for who in ("platform", "root"):
        assert (await here.ask(who, "PUT", LIMITS, json={})).status in (403, 404)


async def test_a_stored_grant_of_the_platforms_tenant_counts(here: Place) -> None:
    grants = {"grants": [{"subjects": ["eve"], "role": "admin"}]}
    assert (await here.ask("platform-viewer", "PUT", LIMITS, json={})).status == 404
    got = await here.ask("platform", "PUT", "/v1/tenants/platform/grants", json=grants)
    assert got.status == 200
    here.world.clock.jump(1_000)
    assert (await here.ask("platform-viewer", "PUT", LIMITS, json={})).status == 200


# --- what they are --------------------------------------------------------------------------------


async def test_they_are_shown_with_what_is_used(here: Place) -> None:
    await here.start("billing-run", "eve")
    await here.project()
    got = await write(here, startsPerSecond=2, openExecutions=None)
    assert (got.headers["etag"], got.json()["updatedBy"]) == ('"1"', "pat")
    shown = (await here.ask("root", "GET", LIMITS)).json()
    assert shown["limits"] == {"startsPerSecond": 2, "openExecutions": None}
    assert shown["effective"]["openExecutions"] is None
    assert shown["usage"] == {
        "startsLeft": 2,
        "openExecutions": 1,
        "storedDefinitions": 2,
        "schedules": 1,
    }
    stale = await here.ask("platform", "PUT", LIMITS, json={}, headers={"If-Match": '"0"'})
    assert (stale.status, stale.error["code"]) == (412, "PRECONDITION_FAILED")
    record = (await here.ask("root", "GET", "/v1/audit?action=limits.put")).json()["items"][0]
    assert (record["by"], record["resource"]) == ("pat", "limits:tenant")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"openExecutions": -1}, "$.openExecutions"),
        ({"openExecutions": "many"}, "$.openExecutions"),
        ({"startsPerSecond": 0}, "$.startsPerSecond"),
        ({"payloadBytes": 1}, "$.payloadBytes"),
        ({"openExecution": 1}, "$.openExecution"),
    ],
)
async def test_what_is_wrong_is_named(here: Place, body: Any, field: str) -> None:
    got = await here.ask("platform", "PUT", LIMITS, json=body)
    assert got.status == 422
    assert [one["field"] for one in got.error["details"]] == [field]
    assert (await here.ask("root", "GET", LIMITS)).json()["revision"] == 0


# --- what a refusal looks like --------------------------------------------------------------------


async def test_a_start_above_the_rate_is_429_with_retry_after(here: Place) -> None:
    await write(here, startsPerSecond=0.1, startsBurst=1)
    key = {"Idempotency-Key": "k"}
    assert (await here.ask("root", "POST", START, headers=key, json={})).status == 202
    got = await here.ask("root", "POST", START, json={})
    assert (got.status, got.error["code"]) == (429, "LIMIT_EXCEEDED")
    assert 10 <= int(got.headers["retry-after"]) <= 16
    (detail,) = got.error["details"]
    assert (detail["field"], detail["code"]) == ("startsPerSecond", "LIMIT_EXCEEDED")
    # The same request again is answered, whatever the limits say.
    assert (await here.ask("root", "POST", START, headers=key, json={})).status == 200
    replay = f"/v1/executions/{here.ids['id']}/replay"
    assert (await here.ask("root", "POST", replay, json={})).status == 429
    assert (await here.ask("root", "POST", "/v1/schedules/s/run", json={})).status == 429


async def test_above_a_count_it_is_429(here: Place) -> None:
    await write(here, openExecutions=0, storedDefinitions=2, schedules=1)
    new = {"name": "n", "tasks": {"a": {"type": "activity", "activity": "noop"}}}
    later = {"name": "n", "workflow": "orders", "cron": "@daily"}
    for url, body, limit in (
        (START, {}, "openExecutions"),
        ("/v1/workflows", new, "storedDefinitions"),
        ("/v1/schedules", later, "schedules"),
    ):
        got = await here.ask("root", "POST", url, json=body)
        assert (got.status, got.error["details"][0]["field"]) == (429, limit)
        assert 5 <= int(got.headers["retry-after"]) <= 8


async def test_events_are_429_and_the_same_again_does_the_rest(here: Place) -> None:
    await here.ask("root", "PUT", "/v1/triggers/t", json={**TRIGGER, "match": {"type": "t"}})
    await write(here, startsPerSecond=1, startsBurst=2)
    batch = [{**EVENT, "id": str(n)} for n in range(4)]
    kind = {"Content-Type": "application/cloudevents-batch+json"}
    seen: list[int] = []
    for _ in range(8):
        got = await here.ask("root", "POST", "/v1/events", json=batch, headers=kind)
        seen.append(got.status)
        if got.status == 202:
            break
        here.world.clock.jump(1_000)
    assert seen == [429, 429, 202]
    starts = {one["executions"][0] for one in got.json()["items"]}
    assert len(starts) == 4


async def test_above_the_size_it_is_413(here: Place) -> None:
    await write(here, payloadBytes=1024)
    got = await here.ask("root", "POST", START, json={"input": "x" * 1023})
    assert (got.status, got.error["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert got.error["details"][0]["field"] == "$.input"
    assert (await here.ask("root", "POST", START, json={"input": "x" * 1022})).status == 202
    kind = {"Content-Type": "application/cloudevents+json"}
    event = {**EVENT, "data": "x" * 1023}
    got = await here.ask("root", "POST", "/v1/events", json=event, headers=kind)
    assert (got.status, got.error["code"]) == (413, "PAYLOAD_TOO_LARGE")


async def test_metrics_name_no_other_tenants_dependencies(here: Place) -> None:
    """Their hosts are nobody else's business; who runs the platform sees all."""
    for tenant in (ACME, BETA):
        await breakers_act.open_(here.world.engine, tenant, f"pay.{tenant}.internal", by="x")
    for who, seen in (("root", {ACME}), ("beta", {BETA}), ("platform-viewer", {ACME, BETA})):
        told = (await here.ask(who, "GET", "/metrics")).body.decode()
        assert {one for one in (ACME, BETA) if one in told} == seen
        assert "weft_commits_total" in told
