"""Durable functions on the real host, with the library's own client, over real sockets."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import azure.durable_functions as df
import azure.functions as func
import pytest
from azure.durable_functions import OrchestrationRuntimeStatus as St
from azure.durable_functions.models.utils import http_utils

from orchestrator.adapters.local.system import SystemClock
from orchestrator.local.durable.service import DurableService
from orchestrator.local.host.errors import IndexingError
from orchestrator.local.host.host import LocalHost
from tests.host.host_fakes import local_host
from tests.support.durable_app import BROKEN, CALLS, CLIENTS, app

pytestmark = pytest.mark.filterwarnings("error:Potential duplicate", "ignore::DeprecationWarning")


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[Callable[[], Any]]:
    """Starts hosts on one data directory."""
    CALLS.clear()
    BROKEN.clear()
    async with AsyncExitStack() as stack:

        async def new() -> LocalHost:
            host = local_host(app, clock=SystemClock(), data=tmp_path)
            await host.start()
            stack.push_async_callback(host.stop)
            return host

        yield new
    await http_utils._close_session()  # the client's own, of this loop


async def begin(host: LocalHost, name: str, payload: Any = None, **query: str) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{host.url}/begin/{name}", json=payload, params=query) as response,
    ):
        text = await response.text()
        return response.status, json.loads(text)


async def ended(client: df.DurableOrchestrationClient, instance: str, **options: bool) -> Any:
    while True:
        status = await client.get_status(instance, **options)
        if status.runtime_status in (St.Completed, St.Failed, St.Terminated):
            return status
        await asyncio.sleep(0.005)


async def reached(client: df.DurableOrchestrationClient, instance: str, status: St) -> None:
    while True:
        if (await client.get_status(instance)).runtime_status is status:
            return
        await asyncio.sleep(0.005)


async def test_workflow_from_request_to_result(hosts: Callable[[], Any]) -> None:
    host = await hosts()
    code, links = await begin(host, "chain", 2)
    assert code == 202
    assert links["statusQueryGetUri"].startswith(f"{host.url}/runtime/webhooks/durabletask/")
    status = await ended(CLIENTS[0], links["id"], show_history=True, show_input=True)
    assert (status.runtime_status, status.output) == (St.Completed, 16)
    assert status.custom_status == {"at": 16}
    assert status.input_ == "2"
    assert [e["EventType"] for e in status.historyEvents] == [
        "ExecutionStarted",
        *["TaskCompleted"] * 3,
        "ExecutionCompleted",
    ]


async def test_a_request_that_comes_while_the_host_starts_has_its_client(
    hosts: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    early: list[asyncio.Task[tuple[int, Any]]] = []
    start = DurableService.start

    async def late(self: DurableService, data: Path, url: str, clock: Any) -> Any:
        early.append(asyncio.create_task(begin(SimpleNamespace(url=url), "chain", 2)))  # type: ignore[arg-type]
        for _ in range(300):  # a host that serves by now has answered
            await asyncio.sleep(0)
        return await start(self, data, url, clock)

    monkeypatch.setattr(DurableService, "start", late)
    await hosts()
    assert (await early[0])[0] == 202


async def test_the_client_does_all_that_it_can(hosts: Callable[[], Any]) -> None:
    host = await hosts()
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    await begin(host, "race", id="a")
    client = CLIENTS[0]
    with pytest.raises(Exception, match="already exists"):
        await client.start_new("race", "a")
    with pytest.raises(Exception, match="The function 'nobody' doesn't exist"):
        await client.start_new("nobody")
    await client.suspend("a", "a b/c")
    await reached(client, "a", St.Suspended)
    await client.raise_event("a", "Approval", {"yes": 1})
    await client.resume("a", "go on")
    status = await ended(client, "a")
    assert status.output == ['{"yes": 1}', "in time"]  # the client sends text of JSON as text

    assert not await client.get_status("none")
    for missing in (
        client.raise_event("none", "x"),
        client.terminate("none", ""),
        client.suspend("none", ""),
        client.rewind("none", ""),
    ):
        with pytest.raises(Exception, match="No instance with ID"):
            await missing
    with pytest.raises(Exception, match="is gone"):
        await client.raise_event("a", "x")
    with pytest.raises(Exception, match="can be rewound"):
        await client.rewind("a", "")
    await client.terminate("a", "of one that has ended is no error")

    await client.start_new("race", "b")
    with pytest.raises(Exception, match="412"):
        await client.purge_instance_history("b")
    await client.terminate("b", "enough")
    assert (await ended(client, "b")).output == "enough"

    BROKEN.update(mine=1)
    await client.start_new("two_tries", "c")
    assert "mine is broken" in (await ended(client, "c")).output
    await client.rewind("c", "repaired")
    assert (await ended(client, "c")).output == [42, "child done"]
    assert CALLS["double"] == 1

    again = await client.restart("c")
    assert list(again) == ["id"]  # no URL: it would hold the secret
    assert (await ended(client, again["id"])).output == [42, "child done"]
    every = {one.instance_id for one in await client.get_status_all()}
    assert {"a", "b", "c", again["id"]} < every  # and the sub-orchestrations
    some = await client.get_status_by(
        created_time_from=before, runtime_status=[St.Terminated], instance_id_prefix="b"
    )
    assert [one.instance_id for one in some] == ["b"]
    assert (await client.purge_instance_history("b")).instances_deleted == 1
    assert (await client.purge_instance_history("b")).instances_deleted == 0
    purged = await client.purge_instance_history_by(before, runtime_status=[St.Completed])
    assert purged.instances_deleted == len(every) - 1
    assert await client.get_status_all() == []


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # the client's
async def test_inputs_of_megabytes(hosts: Callable[[], Any]) -> None:
    host = await hosts()
    await begin(host, "race", id="a")
    await CLIENTS[0].raise_event("a", "Approval", "x" * 1_200_000)
    echoed, _ = (await ended(CLIENTS[0], "a")).output
    assert len(json.loads(echoed)) == 1_200_000


async def test_what_a_host_began_another_one_ends(hosts: Callable[[], Any]) -> None:
    first = await hosts()
    await begin(first, "race", id="a")
    await reached(CLIENTS[0], "a", St.Running)
    await first.stop()
    second, third = await hosts(), await hosts()
    await begin(second, "fan", id="b")
    client = CLIENTS[0]
    await client.raise_event("a", "Approval", 1)
    assert (await ended(client, "a")).output == ["1", "in time"]
    assert (await ended(client, "b")).output == 12
    await third.run_until_idle()


async def test_nobody_calls_the_rpc_without_its_secret(hosts: Callable[[], Any]) -> None:
    host = await hosts()
    await begin(host, "fan", id="a")
    base = CLIENTS[0]._orchestration_bindings.rpc_base_url
    origin, secret = base.split("/durabletask/")[0].rsplit("/", 1)
    assert origin.startswith("http://127.0.0.1:")
    async with aiohttp.ClientSession() as session:
        for url, code in (
            (f"{base}instances/", 200),
            (f"{origin}/durabletask/instances/", 404),
            (f"{origin}/{secret[:-1]}/durabletask/instances/", 404),
            (f"{host.url}/runtime/webhooks/durabletask/instances/", 404),
        ):
            async with session.get(url) as response:
                assert response.status == code, url


async def test_without_durable_functions_nothing_is_there(tmp_path: Path) -> None:
    plain = func.FunctionApp()

    @plain.route(route="x")
    def x(req: func.HttpRequest) -> func.HttpResponse:
        return func.HttpResponse("x")

    host = local_host(plain, data=tmp_path)
    await host.start()
    await host.stop()
    assert not (tmp_path / "durable.db").exists()


def test_entities_are_refused_with_the_reason(tmp_path: Path) -> None:
    entities = df.DFApp()

    @entities.entity_trigger(context_name="context")
    def counter(context: Any) -> None:
        pass

    with pytest.raises(IndexingError, match="counter function: entities are not in the embedded"):
        local_host(entities, data=tmp_path)


def test_names_of_activities_differ_in_more_than_case(tmp_path: Path) -> None:
    twice = df.DFApp()

    @twice.activity_trigger(input_name="n", activity="Same")
    def one(n: int) -> int:
        return n

    @twice.activity_trigger(input_name="n", activity="same")
    def two(n: int) -> int:
        return n

    @twice.activity_trigger(input_name="n", activity="not a name")
    def three(n: int) -> int:
        return n

    with pytest.raises(IndexingError) as refused:
        local_host(twice, data=tmp_path)
    assert refused.value.problems == (
        "cannot load the two function: one has the name 'same' already",
        "cannot load the three function: activity='not a name' is not a valid function name",
    )


def test_durable_functions_need_a_data_directory() -> None:
    with pytest.raises(IndexingError, match="data directory"):
        local_host(app)
