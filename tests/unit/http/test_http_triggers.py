"""Event triggers and events over HTTP, over the real engine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from http_client import Client, Got
from http_support import make_client

from orchestrator.domain import cloudevents
from orchestrator.engine import catalog
from orchestrator.functions import http_events
from orchestrator.functions.provider import EngineProvider
from tests.support.definitions import flow, task
from tests.support.world import World

TENANT = "default"
RAW = {"workflow": "flow", "match": {"type": "order.placed"}, "input": "${event.data}"}
EVENT = {
    "specversion": "1.0",
    "id": "1",
    "source": "/shop",
    "type": "order.placed",
    "data": {"n": 5},
}
STRUCTURED = {"content-type": "application/cloudevents+json; charset=utf-8"}
BATCH = {"content-type": "application/cloudevents-batch+json"}
TRIGGERS = "/v1/triggers"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path).open()
    await catalog.publish(made.engine, TENANT, flow(a=task("weft.transform", input="${input}")))
    yield made
    await made.close()


@pytest.fixture
async def api(world: World) -> Client:
    async def build() -> Any:
        return world.engine

    made = make_client(EngineProvider(build))
    assert (await made("PUT", f"{TRIGGERS}/orders", json=RAW)).status == 201
    return made


def send(api: Client, body: Any, headers: dict[str, str] = STRUCTURED) -> Any:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return api("POST", "/v1/events", body=text, headers=headers)


def fields(got: Got) -> set[str]:
    return {detail["field"] for detail in got.error["details"]}


# --- triggers -------------------------------------------------------------------------------------


async def test_a_trigger_is_created_once_and_changed_under_its_etag(api: Client) -> None:
    raw = {"name": "second", **RAW}
    first = await api("POST", TRIGGERS, json=raw)
    assert (first.status, first.headers["location"]) == (201, f"{TRIGGERS}/second")
    again = await api("POST", TRIGGERS, json=raw)
    assert (again.status, again.json()) == (200, first.json())
    assert again.headers["etag"] == first.headers["etag"]
    other = await api("POST", TRIGGERS, json={**raw, "input": 1})
    assert (other.status, other.error["code"]) == (409, "TRIGGER_EXISTS")
    known = {"if-match": first.headers["etag"]}
    put = await api("PUT", f"{TRIGGERS}/second", json={**RAW, "input": 1}, headers=known)
    assert (put.status, put.json()["input"]) == (200, 1)
    for method, path, body in (
        ("PUT", "second", RAW),
        ("DELETE", "second", None),
        ("POST", "second/pause", None),
    ):
        stale = await api(method, f"{TRIGGERS}/{path}", json=body, headers=known)
        assert (stale.status, stale.error["code"]) == (412, "PRECONDITION_FAILED")
    bad = await api("DELETE", f"{TRIGGERS}/second", headers={"if-match": 'W/"x", "y"'})
    assert (bad.status, bad.error["code"]) == (400, "INVALID_HEADER")
    shown = await api("GET", f"{TRIGGERS}/second")
    assert shown.headers["etag"] == put.headers["etag"]
    names = [item["name"] for item in (await api("GET", TRIGGERS)).json()["items"]]
    assert names == ["orders", "second"]
    assert (await api("DELETE", f"{TRIGGERS}/second", headers={"if-match": "*"})).status == 204
    assert (await api("GET", f"{TRIGGERS}/second")).status == 404
    assert (await api("DELETE", f"{TRIGGERS}/second")).status == 404


async def test_lists_page(api: Client) -> None:
    for name in ("a", "b"):
        await api("POST", TRIGGERS, json={"name": name, **RAW})
    first = (await api("GET", f"{TRIGGERS}?limit=2")).json()
    second = (await api("GET", f"{TRIGGERS}?limit=2&cursor={first['nextCursor']}")).json()
    assert [one["name"] for one in first["items"] + second["items"]] == ["a", "b", "orders"]


async def test_every_problem_of_a_trigger_is_listed(api: Client) -> None:
    raw = {"name": "B", "match": {}, "filter": "${event.x", "input": "${input}", "x": 1}
    got = await api("POST", TRIGGERS, json=raw)
    assert got.status == 422
    assert fields(got) == {"$.name", "$.workflow", "$.filter", "$.input", "$.x"}
    yaml = b"name: late\nworkflow: nowhere\nmatch: {type: a}\n"
    got = await api("POST", TRIGGERS, body=yaml, headers={"content-type": "application/yaml"})
    assert (got.status, fields(got)) == (422, {"$.workflow"})


async def test_a_paused_trigger_starts_nothing_until_it_is_resumed(api: Client) -> None:
    assert (await api("POST", f"{TRIGGERS}/orders/pause")).json()["paused"] is True
    assert (await send(api, EVENT)).json()["items"][0]["unmatched"] is True
    assert (await api("POST", f"{TRIGGERS}/orders/resume")).json()["paused"] is False
    assert (await send(api, EVENT)).json()["items"][0]["executions"]
    assert (await api("POST", f"{TRIGGERS}/nope/pause")).status == 404


async def test_a_trial_says_what_would_happen_and_starts_nothing(world: World, api: Client) -> None:
    schema = {"type": "object", "required": ["n"]}
    definition = flow("strict", a=task("weft.transform"), input_schema=schema)
    await catalog.publish(world.engine, TENANT, definition)
    raw = {**RAW, "workflow": "strict", "filter": "${event.data.ok}", "tags": {"s": "${event.id}"}}
    await api("PUT", f"{TRIGGERS}/strict", json=raw)

    async def trial(**changes: Any) -> Any:
        body = json.dumps({**EVENT, **changes}).encode()
        got = await api("POST", f"{TRIGGERS}/strict/test", body=body, headers=STRUCTURED)
        assert got.status == 200
        return got.json()

    assert await trial(type="x") == {
        "starts": False,
        "stopped": "match",
        "input": None,
        "tags": {},
        "error": None,
    }
    assert (await trial(data={"ok": False}))["stopped"] == "filter"
    failed = await trial(data={})
    assert (failed["stopped"], failed["error"]["field"]) == ("filter", "$.filter")
    refused = await trial(data={"ok": True})
    assert (refused["stopped"], refused["error"]["type"]) == ("start", "INPUT_INVALID")
    fine = await trial(data={"ok": True, "n": 1})
    assert (fine["starts"], fine["input"], fine["tags"]) == (True, {"ok": True, "n": 1}, {"s": "1"})
    await catalog.archive(world.engine, TENANT, "strict")
    assert (await trial(data={"ok": True, "n": 1}))["error"]["type"] == "WORKFLOW_ARCHIVED"
    bad = await api("POST", f"{TRIGGERS}/strict/test", json={"id": "1"})
    assert bad.status == 400
    assert (await api("POST", f"{TRIGGERS}/nope/test", json=EVENT)).status == 404
    assert (await api("GET", "/v1/deadletters")).json()["items"] == []


# --- events ---------------------------------------------------------------------------------------


async def test_an_event_is_202_with_its_executions_and_again_the_same(
    world: World, api: Client
) -> None:
    first = await send(api, EVENT)
    assert first.status == 202
    (item,) = first.json()["items"]
    assert item == {
        "id": "1",
        "source": "/shop",
        "executions": item["executions"],
        "deadLetters": [],
        "unmatched": False,
        "error": None,
    }
    assert (await send(api, EVENT)).json() == first.json()
    await world.settle()
    shown = (await api("GET", f"/v1/executions/{item['executions'][0]}")).json()
    assert (shown["status"], shown["input"]) == ("COMPLETED", {"n": 5})
    assert shown["startedBy"] == "trigger:orders"
    assert shown["event"] == {
        "trigger": "orders",
        "id": "1",
        "source": "/shop",
        "type": EVENT["type"],
    }


async def test_the_three_forms_are_the_same_event(api: Client) -> None:
    binary = {
        "ce-specversion": "1.0",
        "Ce-Id": "1",
        "ce-source": "%2Fshop",
        "ce-type": '"order.placed"',
        "content-type": "application/json",
    }
    answers = [
        await send(api, EVENT),
        await send(api, [EVENT], BATCH),
        await send(api, EVENT["data"], binary),
    ]
    assert [answer.status for answer in answers] == [202] * 3
    assert len({answer.json()["items"][0]["executions"][0] for answer in answers}) == 1


async def test_a_batch_with_one_bad_event_takes_the_good_ones_and_names_the_bad(
    world: World, api: Client
) -> None:
    batch = [{**EVENT, "id": str(n)} for n in range(5)]
    del batch[3]["type"]
    got = await send(api, batch, BATCH)
    assert (got.status, got.json()["accepted"], got.json()["refused"]) == (202, 4, 1)
    items = got.json()["items"]
    assert [item["id"] for item in items] == ["0", "1", "2", None, "4"]
    assert items[3]["error"]["code"] == "INVALID_EVENT"
    assert [detail["field"] for detail in items[3]["error"]["details"]] == ["$[3].type"]
    assert all(item["executions"] for item in items if item["error"] is None)
    assert world.engine.metrics.value("weft_events_total", "invalid") == 1


@pytest.mark.parametrize(
    ("text", "field", "code"),
    [
        (b'{"n": 18446744073709551616}', "$[1].data.n", "NUMBER_OUT_OF_RANGE"),
        (b'{"n": 1, "n": 2}', "$[1].data.n", "DUPLICATE_KEY"),
        (b'{"n": NaN}', "$[1].data.n", "NOT_A_NUMBER"),
        (b"[" * 140 + b"]" * 140, "$[1].data", "TOO_DEEP"),
    ],
)
async def test_a_batch_with_one_event_that_json_cannot_keep_takes_the_others(
    api: Client, text: bytes, field: str, code: str
) -> None:
    good, late = (json.dumps({**EVENT, "id": id}).encode() for id in ("good", "late"))
    bad = json.dumps({**EVENT, "data": "HERE"}).encode().replace(b'"HERE"', text)
    got = await send(api, b"[" + good + b"," + bad + b"," + late + b"]", BATCH)
    assert (got.status, got.json()["accepted"], got.json()["refused"]) == (202, 2, 1)
    first, error, last = got.json()["items"]
    assert all((first["executions"], last["executions"]))
    [detail] = error["error"]["details"]
    assert detail["field"].startswith(field)
    assert detail["code"] == code


async def test_a_batch_of_bad_events_only_is_400(api: Client) -> None:
    got = await send(api, [{}, [EVENT], 1], BATCH)
    assert got.status == 400
    assert {"$[0].id", "$[1]", "$[2]"} <= fields(got)
    assert (await send(api, [], BATCH)).json() == {"accepted": 0, "refused": 0, "items": []}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ({**EVENT, "specversion": "0.3"}, STRUCTURED, 400),
        ({"specversion": "1.0", "source": "/", "type": "t"}, STRUCTURED, 400),
        ({**EVENT, "data_base64": "AA=="}, STRUCTURED, 400),
        ([EVENT], STRUCTURED, 400),
        (EVENT, BATCH, 400),
        ([EVENT] * 501, BATCH, 400),
        (b'{"id": "1", "id": "2"}', STRUCTURED, 400),
        (b'{"id": "\xff"}', STRUCTURED, 400),
        (b"{", STRUCTURED, 400),
        (b"", STRUCTURED, 400),
        (b'{"id": NaN}', STRUCTURED, 400),
        (b'{"data": 18446744073709551616}', STRUCTURED, 422),
        (b"[" * 200 + b"]" * 200, STRUCTURED, 422),
        ({**EVENT, "data": "x" * 2**20}, STRUCTURED, 413),
        (EVENT, {"content-type": "application/json"}, 415),
        (EVENT, {}, 415),
        (EVENT, {"content-type": "application/cloudevents+xml"}, 415),
        (EVENT, {"content-type": "application/cloudevents+xml", "ce-id": "1"}, 415),
        (EVENT, {"content-type": "application/cloudevents+json; charset=utf-16"}, 415),
        (1, {"content-type": "application/json", "ce-id": "1"}, 400),
        (1, {"content-type": "application/json", "ce-specversion": "1.0", "ce-id": "%FF"}, 400),
    ],
)
async def test_what_is_no_event_is_refused_and_starts_nothing(
    api: Client, body: Any, headers: dict[str, str], status: int
) -> None:
    got = await send(api, body, headers)
    assert got.status == status
    assert got.error["message"]
    assert (await api("GET", "/v1/executions")).json()["items"] == []


async def test_event_grids_own_deliveries_are_read(api: Client) -> None:
    event = {
        "id": "g-1",
        "topic": "/subscriptions/s",
        "subject": "b",
        "eventType": "order.placed",
        "eventTime": "2026-11-30T12:00:00.1234567Z",
        "dataVersion": "",
        "data": {"n": 5},
    }
    headers = {"content-type": "application/json", "aeg-event-type": "Notification"}
    got = await send(api, [event], headers)
    assert (got.status, len(got.json()["items"][0]["executions"])) == (202, 1)
    got = await send(api, [{**event, "topic": ""}], headers)
    assert (got.status, fields(got)) == (400, {"$[0].topic"})


async def test_event_grids_validation_is_answered(api: Client) -> None:
    event = {
        "id": "v",
        "topic": "/subscriptions/s",
        "subject": "",
        "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
        "eventTime": "2026-11-30T12:00:00Z",
        "data": {"validationCode": "512d38b6", "validationUrl": "https://x"},
    }
    headers = {"content-type": "application/json", "aeg-event-type": "SubscriptionValidation"}
    got = await send(api, [event], headers)
    assert (got.status, got.json()) == (200, {"validationResponse": "512d38b6"})
    for bad in ([], [{**event, "data": {}}], [{**event, "data": "x"}], [1]):
        assert (await send(api, bad, headers)).status == 400


async def test_the_webhook_handshake_names_who_asked(api: Client) -> None:
    asked = {"WebHook-Request-Origin": "eventgrid.azure.net", "WebHook-Request-Rate": "120"}
    got = await api("OPTIONS", "/v1/events", headers=asked)
    assert got.status == 204
    assert got.headers["webhook-allowed-origin"] == "eventgrid.azure.net"
    assert got.headers["webhook-allowed-rate"] == "120"
    plain = await api("OPTIONS", "/v1/events")
    assert plain.headers["allow"] == "POST, OPTIONS"
    assert "webhook-allowed-origin" not in plain.headers
    odd = {**asked, "WebHook-Request-Rate": "many"}
    got = await api("OPTIONS", "/v1/events", headers=odd)
    assert got.headers["webhook-allowed-rate"] == "*"
    bad = {"WebHook-Request-Origin": "x" * 300}
    assert (await api("OPTIONS", "/v1/events", headers=bad)).status == 400


async def test_a_dead_letter_of_an_event_is_listed_shown_and_retried(
    world: World, api: Client
) -> None:
    await api("PUT", f"{TRIGGERS}/orders", json={**RAW, "input": "${event.data.nothing}"})
    (item,) = (await send(api, EVENT)).json()["items"]
    (id,) = item["deadLetters"]
    (listed,) = (await api("GET", "/v1/deadletters?workflow=flow&status=OPEN")).json()["items"]
    assert (listed["id"], listed["kind"], listed["trigger"]) == (id, "event", "orders")
    assert listed["execution"] is None
    path = f"/v1/deadletters/{id}"
    assert (await api("GET", path)).json()["event"] == EVENT
    assert (await api("POST", f"{path}/skip", json={})).status == 409
    assert (await api("POST", f"{path}/fail", json={})).status == 409
    refused = await api("POST", f"{path}/retry", json={})
    assert (refused.status, refused.error["code"]) == (409, "CANNOT_RETRY")
    await api("PUT", f"{TRIGGERS}/orders", json=RAW)
    retried = (await api("POST", f"{path}/retry", json={"reason": "mended"})).json()
    assert retried["status"] == "RETRIED"
    await world.settle()
    shown = await api("GET", f"/v1/executions/{retried['execution']}")
    assert shown.json()["status"] == "COMPLETED"


def test_the_description_states_the_limits_of_the_code() -> None:
    said = http_events.send_events.__doc__ or ""
    assert f"at most {cloudevents.MAX_BATCH_EVENTS} events" in said
