"""The adapter of Durable Functions against a small server of the extension's RPC."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from aiohttp import web

from orchestrator.adapters.azure.durable_client import DurableClient
from orchestrator.ports import NotFound, StoreError, Throttled, Unavailable
from orchestrator.ports_durable import InstanceStatus
from tests.wire.http_service import HttpService

STATUS = {
    "name": "code_flow_v1",
    "instanceId": "e1",
    "runtimeStatus": "Completed",
    "input": None,
    "customStatus": {"step": 1},
    "output": '{"v":1,"output":2}',
    "createdTime": "2026-11-30T12:00:00.1234567Z",
    "lastUpdatedTime": "2026-11-30T12:00:01Z",
    "historyEvents": [{"EventType": "ExecutionStarted"}],
}


class Rpc(HttpService):
    """Answers everything with `status` and `body`, and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.status, self.body, self.asked, self.listed = 202, "", "", ""
        self.sent: Any = None
        self.all: list[str] = []
        self.pages: list[list[tuple[str, str]]] = []
        self.together = True  # the pages are of one list
        self.route("*", "/durabletask/{rest:.*}", self._answer)

    async def _answer(self, request: web.Request) -> web.Response:
        self.all.append(f"{request.method} {request.path.removeprefix('/durabletask')}")
        if request.method == "GET" and request.path.endswith("/instances/"):
            self.listed = request.raw_path.removeprefix("/durabletask")
            rows = self.pages.pop(0) if self.pages else []
            more = {"x-ms-continuation-token": "next"} if self.pages and self.together else {}
            body = [
                {"instanceId": id, "runtimeStatus": status, "name": id[0]} for id, status in rows
            ]
            return web.json_response(body, headers=more)
        self.asked = f"{request.method} {request.raw_path.removeprefix('/durabletask')}"
        text = await request.text()
        self.sent = json.loads(text) if text else None
        return web.Response(status=self.status, text=self.body, content_type="application/json")

    def binding(self) -> str:
        return json.dumps({"taskHubName": "weft", "rpcBaseUrl": f"{self.url}/durabletask/"})


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    service = Rpc()
    async with service:
        yield service


@pytest.fixture
async def client(rpc: Rpc) -> AsyncIterator[DurableClient]:
    made = DurableClient()
    made.learn(rpc.binding())
    yield made
    await made.close()


async def test_requests_are_those_of_the_librarys_client(rpc: Rpc, client: DurableClient) -> None:
    """Paths and bodies as azure-functions-durable sends them; bodies are JSON of JSON text."""
    await client.start("code_flow_v1", "e1", '{"a": 1}')
    assert (rpc.asked, rpc.sent) == ("POST /orchestrators/code_flow_v1/e1", '{"a": 1}')
    await client.raise_event("e1", "go", '{"id": "s"}')
    assert (rpc.asked, rpc.sent) == ("POST /instances/e1/raiseEvent/go", '{"id": "s"}')
    for verb in ("terminate", "suspend", "resume", "rewind"):
        await getattr(client, verb)("e 1", "it's over")
        assert rpc.asked == f"POST /instances/e%201/{verb}?reason=it%27s+over"
        assert rpc.sent is None
    rpc.status = 200
    await client.purge("e1")
    assert rpc.asked == "DELETE /instances/e1"


async def test_those_below_an_instance_end_and_go_with_it(rpc: Rpc, client: DurableClient) -> None:
    """Durable's own terminate and purge reach only the instance that they name."""
    below = (
        [("e1:0.1", "Running"), ("e1:0.2", "Completed")],
        [("e1:0.1:0.1", "Pending"), ("e10", "Running"), ("e1:main:2", "Running")],
    )
    rpc.pages = [list(page) for page in below]
    await client.terminate("e1", "over")
    ended = [one for one in rpc.all if "terminate" in one]
    assert ended == [f"POST /instances/{id}/terminate" for id in ("e1", "e1:0.1", "e1:0.1:0.1")]
    rpc.pages, rpc.status = [list(page) for page in below], 200
    await client.purge("e1")
    gone = [one for one in rpc.all if one.startswith("DELETE")]
    assert gone == [f"DELETE /instances/{id}" for id in ("e1", "e1:0.1", "e1:0.2", "e1:0.1:0.1")]


async def test_those_below_rest_and_go_on_with_it(rpc: Rpc, client: DurableClient) -> None:
    """Itself last: what it shows says that all was done; and what it started meanwhile."""
    rests, runs, ended = ("e1:0.1", "Suspended"), ("e1:0.2", "Running"), ("e1:0.3", "Failed")
    rpc.pages = [[rests, runs, ended], [("e1:0.4", "Pending"), rests]]
    rpc.together = False
    await client.suspend("e1", "rest")
    done = [one for one in rpc.all if one.startswith("POST")]
    assert done == [f"POST /instances/{id}/suspend" for id in ("e1:0.2", "e1", "e1:0.4")]
    rpc.pages, rpc.all = [[rests, runs, ended]], []
    await client.resume("e1", "go on")
    done = [one for one in rpc.all if one.startswith("POST")]
    assert done == [f"POST /instances/{id}/resume" for id in ("e1:0.1", "e1")]


async def test_what_goes_on_below_is_ended_before_it_is_deleted(
    rpc: Rpc, client: DurableClient
) -> None:
    """Its parent did not wait for it to the end, so nobody else will."""
    rpc.pages, rpc.status = [[("e1:0.1", "Running"), ("e1:0.2", "Failed")]], 200
    await client.purge("e1")
    assert [one for one in rpc.all if not one.startswith("GET")] == [
        "POST /instances/e1:0.1/terminate",
        "DELETE /instances/e1",
        "DELETE /instances/e1:0.1",
        "DELETE /instances/e1:0.2",
    ]
    rpc.status = 412  # the extension ends and deletes in its own time
    with pytest.raises(Unavailable, match="1 instances of e1 have not ended"):
        await client.purge("e1")


async def test_open_instances_are_told_by_their_function(rpc: Rpc, client: DurableClient) -> None:
    rpc.pages = [[("a:1", "Running"), ("b:1", "Pending")], [("a:2", "Suspended"), ("c", "Running")]]
    assert await client.open_of({"a", "b", "d"}) == {"a": ["a:1", "a:2"], "b": ["b:1"]}
    assert rpc.listed == (
        "/instances/?runtimeStatus=Pending%2CRunning%2CSuspended%2CContinuedAsNew&showInput=false"
    )


async def test_a_status_is_translated(rpc: Rpc, client: DurableClient) -> None:
    rpc.status, rpc.body = 200, json.dumps(STATUS)
    found = await client.status("e1", history=True)
    assert rpc.asked == ("GET /instances/e1?showHistory=true&showHistoryOutput=true&showInput=true")
    assert found is not None
    assert (found.id, found.name, found.status) == ("e1", "code_flow_v1", InstanceStatus.COMPLETED)
    assert json.loads(found.output or "") == '{"v":1,"output":2}'
    assert found.custom_status == '{"step": 1}'
    assert found.updated_at - found.created_at == 877
    assert found.history == ({"EventType": "ExecutionStarted"},)
    plain = await client.status("e1")
    assert plain is not None
    assert plain.history is None
    assert rpc.asked == "GET /instances/e1?showInput=false"


@pytest.mark.parametrize("status", [200, 202, 400, 500])
async def test_a_failed_instance_is_told_whatever_the_status(
    rpc: Rpc, client: DurableClient, status: int
) -> None:
    rpc.status = status
    rpc.body = json.dumps({**STATUS, "runtimeStatus": "Failed", "output": "A: no"})
    found = await client.status("e1")
    assert found is not None
    assert (found.status, found.output) == (InstanceStatus.FAILED, '"A: no"')


async def test_what_is_not_there_is_told_apart_from_what_does_not_answer(
    rpc: Rpc, client: DurableClient
) -> None:
    rpc.status = 404
    assert await client.status("e1") is None
    await client.purge("e1")
    for status in (404, 410):
        rpc.status = status
        for call in (
            client.raise_event("e1", "go", "1"),
            client.suspend("e1", ""),
            client.resume("e1", ""),
            client.rewind("e1", ""),
        ):
            with pytest.raises(NotFound):
                await call
    await client.terminate("e1", "")  # 410: it has ended
    rpc.status = 404
    with pytest.raises(NotFound):
        await client.terminate("e1", "")


async def test_a_start_says_what_is_wrong(rpc: Rpc, client: DurableClient) -> None:
    rpc.status, rpc.body = 400, '{"ExceptionMessage": "The function code_x_v1 doesn\'t exist"}'
    with pytest.raises(NotFound, match="no orchestrator function code_x_v1"):
        await client.start("code_x_v1", "e1", "1")
    rpc.status = 409
    await client.start("code_x_v1", "e1", "1")  # runs already: left alone


@pytest.mark.parametrize(
    ("status", "kind"),
    [(500, Unavailable), (503, Unavailable), (401, Unavailable), (429, Throttled)],
)
async def test_trouble_becomes_a_port_error_that_may_pass(
    rpc: Rpc, client: DurableClient, status: int, kind: type[StoreError]
) -> None:
    for call in (
        client.start("f", "e1", "1"),
        client.status("e1"),
        client.raise_event("e1", "go", "1"),
        client.purge("e1"),
    ):
        rpc.fail_next(status, body="secret payload", headers={"Retry-After": "7"})
        with pytest.raises(kind) as caught:
            await call
        assert "secret" not in str(caught.value)
        if isinstance(caught.value, Throttled):
            assert caught.value.retry_after_ms == 7000


async def test_an_answer_that_is_none_is_trouble(rpc: Rpc, client: DurableClient) -> None:
    rpc.status, rpc.body = 200, "<html>"
    with pytest.raises(Unavailable):
        await client.status("e1")


async def test_nobody_listening_is_unavailable() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    client = DurableClient(transport=httpx.MockTransport(refuse))
    with pytest.raises(Unavailable, match="has been called yet"):
        await client.status("e1")
    client.learn('{"rpcBaseUrl": "http://127.0.0.1:1/durabletask"}')
    with pytest.raises(Unavailable, match="ConnectError"):
        await client.status("e1")
    await client.close()


@pytest.mark.parametrize("binding", ["", "[]", "{}", '{"rpcBaseUrl": null}', '{"rpcBaseUrl": ""}'])
def test_a_binding_without_an_address_is_refused(binding: str) -> None:
    with pytest.raises(ValueError, match=r"binding|RPC"):
        DurableClient().learn(binding)


async def test_closing_releases_the_connections_and_may_come_twice(rpc: Rpc) -> None:
    client = DurableClient()
    client.learn(rpc.binding())
    await client.raise_event("e1", "go", "1")
    http = client._http
    assert http is not None
    await client.close()
    await client.close()
    assert http.is_closed
    await client.raise_event("e1", "go", "1")  # an app whose build failed builds again
    await client.close()
