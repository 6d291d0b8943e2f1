"""Events through the whole embedded platform: over HTTP, over the queue, and the sample."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import azure.functions as func
import httpx
import yaml
from azure.functions import EventGridEvent
from test_host_end_to_end import running

from orchestrator.domain.topology import EVENTS_QUEUE
from orchestrator.engine import event_queue
from orchestrator.functions import event_grid
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from orchestrator.local.host.host import LocalHost
from orchestrator.local.host.indexing import index
from orchestrator.ports import OutMessage

SAMPLE = Path(__file__).parents[2] / "samples/big-order"
EVENT = {
    "specversion": "1.0",
    "id": "1",
    "source": "/shop",
    "type": "numbers",
    "data": [1, 2, 3],
}
FLOW = {
    "name": "sum",
    "tasks": {"a": {"type": "transform", "output": "${size(input)}"}},
    "output": "${tasks.a.output}",
}
TRIGGER = {"name": "numbers", "workflow": "sum", "match": {"type": "numbers"}}


async def prepare(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/workflows", json=FLOW)).status_code in (200, 201)
    assert (await client.post("/v1/triggers", json=TRIGGER)).status_code in (200, 201)


async def by_broker(host: LocalHost, body: bytes, id: str) -> None:
    broker: Any = host._broker
    await broker.send([OutMessage(queue=EVENTS_QUEUE, body=body, message_id=id)])
    await host.run_until_idle()


async def test_an_event_posted_completes_an_execution_once(tmp_path: Path) -> None:
    async with running(tmp_path) as (host, client):
        await prepare(client)
        headers = {"content-type": "application/cloudevents+json"}
        ids = set()
        for _ in range(2):
            got = await client.post("/v1/events", json=EVENT, headers=headers)
            assert got.status_code == 202, got.text
            ids |= set(got.json()["items"][0]["executions"])
        binary = {f"ce-{name}": EVENT[name] for name in ("specversion", "id", "source", "type")}
        got = await client.post("/v1/events", json=EVENT["data"], headers=binary)
        ids |= set(got.json()["items"][0]["executions"])
        await by_broker(host, json.dumps(EVENT).encode(), "m1")
        (id,) = ids
        await host.run_until_idle()
        seen = (await client.get(f"/v1/executions/{id}")).json()
        assert (seen["status"], seen["output"]) == ("COMPLETED", 3)
        asked = {"WebHook-Request-Origin": "shop.example"}
        answer = await client.options("/v1/events", headers=asked)
        assert answer.headers["webhook-allowed-origin"] == "shop.example"


async def test_messages_on_the_queue_start_executions_or_become_dead_letters(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (host, client):
        await prepare(client)
        broker: Any = host._broker
        await by_broker(host, json.dumps([{**EVENT, "id": "q"}, {}]).encode(), "m1")
        await by_broker(host, b"\xff", "m2")
        executed = (await client.get("/v1/deadletters")).json()["items"]
        assert [letter["reason"] for letter in executed] == ["unreadable"] * 2
        counts = await broker.counts(EVENTS_QUEUE)
        assert (counts.active, counts.dead) == (0, 0)
    async with running(tmp_path) as (host, client):
        broker = host._broker
        again = await client.post(
            "/v1/events",
            json={**EVENT, "id": "q"},
            headers={"content-type": "application/cloudevents+json"},
        )
        (id,) = again.json()["items"][0]["executions"]
        assert (await client.get(f"/v1/executions/{id}")).json()["status"] == "COMPLETED"


async def test_what_the_broker_gave_up_of_the_queue_becomes_a_letter(tmp_path: Path) -> None:
    async with running(tmp_path) as (host, client):
        await prepare(client)
        broker: Any = host._broker
        for listener in host._receiving:
            listener.cancel()  # so that the test takes the message
        body = json.dumps(EVENT).encode()
        await broker.send([OutMessage(queue=EVENTS_QUEUE, body=body, message_id="m")])
        (message,) = await broker.receive(EVENTS_QUEUE, 1, 0)
        await broker.dead_letter(message, "TooOften", "it crashed")
    async with running(tmp_path) as (host, client):
        await host.run_until_idle()
        (letter,) = (await client.get("/v1/deadletters")).json()["items"]
        assert letter["kind"] == "event"
        done = await client.post(f"/v1/deadletters/{letter['id']}/retry", json={})
        await host.run_until_idle()
        seen = (await client.get(f"/v1/executions/{done.json()['execution']}")).json()
        assert seen["status"] == "COMPLETED"


async def test_the_sample_does_what_its_page_says(tmp_path: Path) -> None:
    async with running(tmp_path) as (host, client):
        workflow = (SAMPLE / "workflow.yaml").read_bytes()
        typed = {"content-type": "application/yaml"}
        assert (await client.post("/v1/workflows", content=workflow, headers=typed)).is_success
        trigger = (SAMPLE / "trigger.yaml").read_bytes()
        name = yaml.safe_load(trigger)["name"]
        assert (await client.post("/v1/triggers", content=trigger, headers=typed)).is_success
        event = (SAMPLE / "event.json").read_bytes()
        headers = {"content-type": "application/cloudevents+json"}
        trial = await client.post(f"/v1/triggers/{name}/test", content=event, headers=headers)
        assert trial.json()["starts"] is True
        got = await client.post("/v1/events", content=event, headers=headers)
        (id,) = got.json()["items"][0]["executions"]
        await host.run_until_idle()
        seen = (await client.get(f"/v1/executions/{id}")).json()
        assert (seen["status"], seen["output"]) == (
            "COMPLETED",
            {"orderId": "A-17", "review": True, "quantities": [1, 4, 2]},
        )
        small = {**json.loads(event), "id": "small"}
        small["data"] = {**small["data"], "total": 5.0}
        got = await client.post("/v1/events", json=small, headers=headers)
        assert got.json()["items"][0]["unmatched"] is True


# --- the Event Grid trigger -----------------------------------------------------------------------


async def test_the_event_grid_trigger_hands_over_the_event_as_it_was_sent(
    monkeypatch: Any,
) -> None:
    taken: list[Any] = []
    engine = SimpleNamespace(events_tenant="acme")

    async def take(engine: Any, tenant: str, value: Any) -> None:
        taken.append((engine, tenant, value))

    async def build() -> Any:
        return engine

    monkeypatch.setattr(event_queue, "take", take)
    found = index(compose(EngineProvider(build)), {"COSMOS_DATABASE": "weft"})
    function = next(f for f in found if f.name == "event_grid")
    moment = datetime(2026, 11, 30, 12, tzinfo=UTC)
    await function.call(
        event=EventGridEvent(
            id="1",
            data={"a": 1},
            topic="/t",
            subject="s",
            event_type="k",
            event_time=moment,
            data_version="1",
        )
    )
    await function.call(
        event=func.CloudEvent(
            id="1",
            source="/s",
            type="k",
            specversion="1.0",
            time=moment,
            data=None,
            sequence="7",
            data_base64="AA==",
        )
    )
    assert taken == [
        (
            engine,
            "acme",
            {
                "id": "1",
                "topic": "/t",
                "subject": "s",
                "eventType": "k",
                "eventTime": "2026-11-30T12:00:00+00:00",
                "dataVersion": "1",
                "data": {"a": 1},
            },
        ),
        (
            engine,
            "acme",
            {
                "id": "1",
                "source": "/s",
                "type": "k",
                "specversion": "1.0",
                "subject": None,
                "datacontenttype": None,
                "dataschema": None,
                "time": "2026-11-30T12:00:00+00:00",
                "data": None,
                "sequence": "7",
                "data_base64": "AA==",
            },
        ),
    ]


def test_a_time_without_an_offset_is_left_out() -> None:
    """The worker library drops the offset of times that are not in UTC."""
    event = EventGridEvent(
        id="1",
        data={},
        topic="/t",
        subject="s",
        event_type="k",
        event_time=datetime(2026, 11, 30, 12),
        data_version="1",
    )
    assert event_grid.as_json(event)["eventTime"] is None
