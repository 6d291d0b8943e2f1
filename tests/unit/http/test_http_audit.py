"""The audit's routes over the real engine: every change that a request makes is in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from http_client import Client
from http_support import make_client

from orchestrator.domain.topology import AUDIT
from orchestrator.functions.provider import EngineProvider
from orchestrator.ports import Query, Where
from tests.support.definitions import flow, retry, task
from tests.support.world import FakeActivities, World

TENANT = "default"
WAITING = flow(s={"type": "signal", "signal": "approved"})
BROKEN = flow("broken", a=task("boom", retry=retry(1)))
SCHEDULE = {"name": "nightly", "workflow": "flow", "cron": "0 3 * * *"}
TRIGGER = {"name": "placed", "workflow": "flow", "match": {"type": "order.placed"}, "input": {}}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    def boom(call: Any) -> Any:
        raise RuntimeError("no")

    made = await World(tmp_path, FakeActivities(boom=boom)).open()
    yield made
    await made.close()


@pytest.fixture
def api(world: World) -> Client:
    async def build() -> Any:
        return world.engine

    return make_client(EngineProvider(build))


async def records(api: Client, query: str = "") -> list[dict[str, Any]]:
    got = await api("GET", f"/v1/audit{query}")
    assert got.status == 200, got.body
    return got.json()["items"]


async def publish(api: Client, definition: Any) -> None:
    assert (await api("POST", "/v1/workflows", json=definition)).status in (200, 201)


async def start(api: Client, world: World, name: str) -> str:
    got = await api("POST", f"/v1/workflows/{name}/start", json={})
    await world.run_until_quiet()
    return got.json()["id"]


async def test_every_change_is_in_the_audit_with_who_and_what(world: World, api: Client) -> None:
    await publish(api, WAITING)
    await publish(api, WAITING)  # changes nothing
    await publish(api, {**WAITING, "description": "another"})
    await publish(api, BROKEN)
    id = await start(api, world, "flow")
    for verb in ("pause", "resume", "pause", "resume"):
        await api("POST", f"/v1/executions/{id}/{verb}", json={"reason": "why"})
    signal = {"name": "approved", "payload": {"secret": "s3cr3t"}, "id": "s-1"}
    for _ in range(2):
        await api("POST", f"/v1/executions/{id}/signals", json=signal)
    await world.run_until_quiet()
    await api("POST", f"/v1/executions/{id}/replay", json={})
    other = await start(api, world, "flow")
    await api("POST", f"/v1/executions/{other}/cancel", json={})
    another = await start(api, world, "flow")
    await api("POST", f"/v1/executions/{another}/terminate", json={})
    failed = await start(api, world, "broken")
    await api("POST", f"/v1/executions/{failed}/retry", json={})
    await world.run_until_quiet()
    letter, _ = (await api("GET", f"/v1/deadletters?execution={failed}")).json()["items"]
    await api("POST", f"/v1/deadletters/{letter['id']}/discard", json={})
    await api("POST", "/v1/breakers/pay.example/open", json={})
    await api("POST", "/v1/breakers/pay.example/close", json={})
    await api("POST", "/v1/schedules", json=SCHEDULE)
    for verb in ("pause", "resume", "run"):
        await api("POST", f"/v1/schedules/nightly/{verb}", json={})
    await api("PUT", "/v1/schedules/nightly", json={**SCHEDULE, "cron": "0 4 * * *"})
    await api("DELETE", "/v1/schedules/nightly")
    await api("POST", "/v1/triggers", json=TRIGGER)
    await api("PUT", "/v1/triggers/placed", json={**TRIGGER, "match": {"type": "other"}})
    for verb in ("pause", "resume"):
        await api("POST", f"/v1/triggers/placed/{verb}", json={})
    await api("DELETE", "/v1/triggers/placed")
    await api("DELETE", "/v1/workflows/flow")
    await api("DELETE", "/v1/workflows/flow")

    found = [(one["action"], one["resource"]) for one in reversed(await records(api))]
    flow_, breaker = ("workflow:flow", "breaker:pay.example")
    one = f"execution:{id}"
    assert found == [
        ("workflow.publish", flow_),
        ("workflow.publish", flow_),
        ("workflow.publish", "workflow:broken"),
        *((verb, one) for verb in ("pause", "resume", "pause", "resume")),
        ("signal", one),
        ("replay", one),
        ("cancel", f"execution:{other}"),
        ("terminate", f"execution:{another}"),
        ("deadletter.retry", found[11][1]),
        ("deadletter.discard", f"deadletter:{letter['id']}"),
        ("openBreaker", breaker),
        ("closeBreaker", breaker),
        ("schedule.create", "schedule:nightly"),
        *((f"schedule.{verb}", "schedule:nightly") for verb in ("pause", "resume", "run")),
        ("schedule.update", "schedule:nightly"),
        ("schedule.delete", "schedule:nightly"),
        ("trigger.create", "trigger:placed"),
        *((f"trigger.{verb}", "trigger:placed") for verb in ("put", "pause", "resume", "delete")),
        ("workflow.archive", flow_),
    ]
    assert {one["by"] for one in await records(api)} == {"developer"}
    check = (await api("GET", "/v1/audit/verify")).json()
    assert (check["ok"], check["checked"]) == (True, len(found))
    everything = await world.sqlite.query(AUDIT, Query(partition=(TENANT,), limit=1_000))
    assert "s3cr3t" not in str(everything)


async def test_a_publication_has_the_hashes_before_and_after(api: Client) -> None:
    await publish(api, WAITING)
    await publish(api, {**WAITING, "description": "another"})
    second, first = await records(api, "?action=workflow.publish")
    versions = [(await api("GET", f"/v1/workflows/flow/versions/{n}")).json() for n in (1, 2)]
    assert first["details"] == {"version": 1, "after": versions[0]["hash"]}
    assert second["details"] == {
        "version": 2,
        "after": versions[1]["hash"],
        "before": versions[0]["hash"],
    }


async def test_a_record_says_where_the_request_came_from(api: Client) -> None:
    headers = {
        "X-Forwarded-For": "6.6.6.6, 203.0.113.7:51234",
        "User-Agent": "curl/8\x1b[2J " + "x" * 1_000,
        "traceparent": f"00-{'a' * 32}-{'b' * 16}-01",
    }
    await api("POST", "/v1/workflows", json=WAITING, headers=headers)
    (record,) = await records(api)
    origin = record["origin"]
    assert (origin["address"], origin["trace"]) == ("203.0.113.7:51234", "a" * 32)
    assert origin["agent"].startswith("curl/8[2J")
    assert len(origin["agent"]) == 200
    await publish(api, BROKEN)  # nothing of the request before
    assert (await records(api))[0]["origin"]["address"] == ""


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("ticket 4711", "ticket 4711"),
        ("weil%20n%C3%B6tig%0A", "weil nötig"),
        ("y" * 1_200, "y" * 1_000),
    ],
)
async def test_why_may_be_said_of_everything(api: Client, sent: str, kept: str) -> None:
    """In a header; what the body says goes first."""
    headers = {"X-Weft-Reason": sent}
    await api("POST", "/v1/workflows", json=WAITING, headers=headers)
    await api("PUT", "/v1/tenants/default/limits", json={"schedules": 4}, headers=headers)
    path = "/v1/breakers/pay.example/open"
    await api("POST", path, json={"reason": "slow"}, headers=headers)
    await publish(api, BROKEN)
    assert [one["reason"] for one in await records(api)] == ["", "slow", kept, kept]
    said = (await api("GET", "/openapi.json")).json()["paths"]
    named = {
        (path, verb)
        for path, item in said.items()
        for verb, one in item.items()
        if any(param.get("name") == "X-Weft-Reason" for param in one.get("parameters", ()))
    }
    assert ("/v1/workflows", "post") in named
    assert not [verb for _, verb in named if verb == "get"]


async def test_schedules_triggers_and_breakers_say_what_was_before(
    world: World, api: Client
) -> None:
    await publish(api, WAITING)
    await api("POST", "/v1/schedules", json=SCHEDULE)
    await api("PUT", "/v1/schedules/nightly", json={**SCHEDULE, "cron": "0 4 * * *"})
    await api("DELETE", "/v1/schedules/nightly")
    await api("POST", "/v1/triggers", json=TRIGGER)
    await api("PUT", "/v1/triggers/placed", json={**TRIGGER, "match": {"type": "other"}})
    await api("DELETE", "/v1/triggers/placed")
    await api("POST", "/v1/breakers/pay.example/open", json={})
    found = [one["details"] for one in reversed(await records(api))][1:]
    for created, changed, deleted in (found[:3], found[3:6]):
        assert changed["before"] == created["after"] != changed["after"] == deleted["before"]
        assert "before" not in created
        assert "after" not in deleted
    assert found[6] == {"before": "closed", "after": "open"}


async def test_lists_are_paged_and_filtered(world: World, api: Client) -> None:
    for name in ("a", "b", "c"):
        await publish(api, {**WAITING, "name": name})
        await world.clock.advance(1_000)
    first = (await api("GET", "/v1/audit?limit=2")).json()
    assert [one["n"] for one in first["items"]] == [3, 2]
    second = (await api("GET", f"/v1/audit?limit=2&cursor={first['nextCursor']}")).json()
    assert ([one["n"] for one in second["items"]], second["nextCursor"]) == ([1], None)
    assert [one["n"] for one in await records(api, "?resource=workflow:b")] == [2]
    middle = first["items"][1]["at"]
    assert [one["n"] for one in await records(api, f"?from={middle}&to={middle}")] == [2]
    assert await records(api, "?by=nobody") == []
    assert (await api("GET", "/v1/audit?who=me")).status == 400


async def test_a_broken_chain_is_named_and_checked_in_parts(world: World, api: Client) -> None:
    for name in ("a", "b", "c"):
        await publish(api, {**WAITING, "name": name})
    part = (await api("GET", "/v1/audit/verify?limit=2")).json()
    assert (part["ok"], part["first"], part["last"], part["next"]) == (True, 1, 2, 3)
    rest = (await api("GET", "/v1/audit/verify?from=3&limit=2")).json()
    assert (rest["ok"], rest["checked"], rest["head"], rest["next"]) == (True, 1, 3, None)
    known = f"{rest['head']}:{rest['headHash']}"
    assert (await api("GET", f"/v1/audit/verify?known={known}")).json()["ok"]
    assert (await api("GET", "/v1/audit/verify?known=abc")).status == 400
    assert (await api("GET", "/v1/audit/verify?from=0")).status == 400
    second = Query(partition=(TENANT,), where=(Where("n", "=", 2), Where("type", "=", "audit")))
    (found,) = await world.sqlite.query(AUDIT, second)
    await world.sqlite.delete(AUDIT, (TENANT,), found.id)
    check = (await api("GET", "/v1/audit/verify")).json()
    assert (check["ok"], check["checked"]) == (False, 1)
    assert (check["finding"]["n"], check["finding"]["fault"]) == (2, "MISSING")


async def test_erasing_is_for_ended_executions_and_is_audited(world: World, api: Client) -> None:
    await publish(api, BROKEN)
    await publish(api, WAITING)
    waiting = await start(api, world, "flow")
    refused = await api("POST", f"/v1/executions/{waiting}/erase", json={})
    assert (refused.status, refused.error["code"]) == (409, "CANNOT_ERASE")
    id = await start(api, world, "broken")
    path = f"/v1/executions/{id}"
    got = await api("POST", f"{path}/erase", json={"reason": "ticket 4711"})
    assert (got.status, got.json()["error"]["message"]) == (200, "(erased)")
    assert got.json()["erasedAt"] is not None
    assert (await api("POST", f"{path}/erase", json={})).json() == got.json()
    replayed = await api("POST", f"{path}/replay", json={})
    assert (replayed.status, replayed.error["code"]) == (409, "ERASED")
    (record,) = await records(api, "?action=erase")
    assert (record["resource"], record["reason"]) == (f"execution:{id}", "ticket 4711")
