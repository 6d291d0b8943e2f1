"""Events through the real SDKs: an Event Grid topic over HTTPS, queues and topics over AMQP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from orchestrator.adapters.azure.event_sink import AzureEventSink
from orchestrator.adapters.azure.servicebus_transport import ServiceBusTransport
from orchestrator.adapters.local.system import SystemClock
from orchestrator.domain.topology import QueueSpec
from orchestrator.ports import OutMessage, Transport, TransportError
from orchestrator.ports_events import EventRefused
from tests.wire import tls
from tests.wire.http_service import TOKEN, HttpService, StaticCredential
from tests.wire.servicebus import ServiceBusBroker

EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "e1:announce",
    "source": "/weft/acme/flow",
    "type": "order.shipped",
    "time": "2027-01-15T08:00:00.000Z",
    "subject": "order-7",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "datacontenttype": "application/json",
    "data": {"id": 2**60, "ü": [1.5, None]},
}
BODY = json.dumps(EVENT).encode()


class NoTransport:
    """Must not be opened."""

    def __call__(self) -> Transport:
        raise AssertionError("nothing is to be sent over Service Bus")


class Recorder:
    """A transport that remembers."""

    def __init__(self) -> None:
        self.sent: list[OutMessage] = []
        self.opened = self.closed = 0

    def open(self) -> Transport:
        self.opened += 1
        return self

    async def send(self, messages: Any) -> None:
        self.sent += messages

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tls.certificate(tmp_path_factory.mktemp("tls"))


class Grid(HttpService):
    """An Event Grid topic: takes CloudEvents under the right token."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.received: list[Any] = []
        self.types: list[str] = []
        self.route("POST", "/api/events", self._post)

    async def _post(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401)
        self.types.append(request.headers["Content-Type"])
        self.received.append(await request.json())
        return web.Response(status=200)


@pytest.fixture
async def grid(certificate: Path) -> AsyncIterator[Grid]:
    async with Grid(tls.server_context(certificate)) as running:
        assert isinstance(running, Grid)
        yield running


@pytest.fixture
async def sink(grid: Grid, certificate: Path) -> AsyncIterator[AzureEventSink]:
    opened = AzureEventSink(
        {"shop": f"eventgrid:{grid.url}/api/events"},
        credential=StaticCredential(),
        open_transport=NoTransport(),
        connection_verify=str(certificate),
    )
    yield opened
    await opened.close()


async def test_event_grid_gets_the_event_as_it_is_under_the_apps_identity(
    sink: AzureEventSink, grid: Grid
) -> None:
    assert sink.targets() == {"shop"}
    await sink.publish("shop", BODY, EVENT["id"])
    [[received]] = grid.received
    received["time"] = received["time"].replace("08:00:00Z", "08:00:00.000Z")
    assert received == EVENT
    assert "application/cloudevents-batch+json" in grid.types[0]


@pytest.mark.parametrize("status", [400, 413, 415])
async def test_what_event_grid_refuses_for_good_is_refused(
    sink: AzureEventSink, grid: Grid, status: int
) -> None:
    grid.fail_next(status)
    with pytest.raises(EventRefused, match=str(status)):
        await sink.publish("shop", BODY, EVENT["id"])
    assert len(grid.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500, 503])
async def test_what_may_pass_is_a_transport_error_and_not_tried_again_here(
    sink: AzureEventSink, grid: Grid, status: int
) -> None:
    grid.fail_next(status)
    with pytest.raises(TransportError, match="Event Grid"):
        await sink.publish("shop", BODY, EVENT["id"])
    assert len(grid.requests) == 1
    await sink.publish("shop", BODY, EVENT["id"])
    assert len(grid.received) == 1


async def test_a_topic_that_cannot_be_reached(certificate: Path) -> None:
    sink = AzureEventSink(
        {"shop": "eventgrid:https://127.0.0.1:9/api/events"},
        credential=StaticCredential(),
        open_transport=NoTransport(),
        connection_verify=str(certificate),
    )
    with pytest.raises(TransportError):
        await sink.publish("shop", BODY, EVENT["id"])
    await sink.close()


async def test_queues_and_topics_share_one_transport_that_is_opened_when_needed() -> None:
    recorder = Recorder()
    sink = AzureEventSink(
        {"q": "queue:orders-out", "t": "topic:mail"},
        credential=StaticCredential(),
        open_transport=recorder.open,
    )
    assert recorder.opened == 0
    await sink.publish("q", BODY, "e1:announce")
    await sink.publish("t", BODY, "e" * 200)
    assert [message.queue for message in recorder.sent] == ["orders-out", "topic:mail"]
    assert recorder.sent[0].message_id == "e1:announce"
    assert len(recorder.sent[1].message_id) <= 128
    assert {message.content_type for message in recorder.sent} == {"application/cloudevents+json"}
    await sink.close()
    await sink.close()
    assert (recorder.opened, recorder.closed) == (1, 1)


async def test_a_topic_is_sent_to_over_amqp_like_a_queue() -> None:
    def spec(name: str) -> QueueSpec:
        return QueueSpec(
            name=name, lock_seconds=30, max_delivery_count=3, duplicate_window_seconds=60
        )

    broker = ServiceBusBroker(queues={"mail": spec("mail")}).start()
    try:
        transport = ServiceBusTransport.from_connection_string(
            broker.connection_string, clock=SystemClock(), queues=frozenset({"topic:mail"})
        )
        sink = AzureEventSink(
            {"t": "topic:mail"}, credential=StaticCredential(), open_transport=lambda: transport
        )
        for _ in range(2):  # the second one is a double, by its id
            await sink.publish("t", BODY, EVENT["id"])
        [message] = broker.messages("mail")
        assert json.loads(message.body) == EVENT
        await sink.close()
    finally:
        broker.stop()
