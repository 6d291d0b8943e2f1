"""The whole embedded platform in one process: HTTP in, queues, engine, SQLite, HTTP out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

from orchestrator import bootstrap
from orchestrator.engine.core import Engine
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from orchestrator.local.host.host import HostOptions, LocalHost
from orchestrator.local.host.host_json import WEFT
from orchestrator.settings import load_settings

DEFINITION = {
    "name": "squares",
    "tasks": {
        "numbers": {"type": "transform", "output": "${[1, 2, 3, 4]}"},
        "square": {
            "type": "map",
            "needs": ["numbers"],
            "items": "${tasks.numbers.output}",
            "do": {"type": "transform", "output": "${item * item}"},
        },
    },
    "output": "${tasks.square.output}",
}


@contextlib.asynccontextmanager
async def running(data: Path) -> AsyncIterator[tuple[LocalHost, httpx.AsyncClient]]:
    async def build() -> Engine:
        return engine

    engine = await bootstrap.build(load_settings({"WEFT_DATA_DIR": str(data)}))
    provider = EngineProvider(build)
    await provider.get()
    host = LocalHost(
        compose(provider),
        provider=provider,
        broker=engine.transport,  # type: ignore[arg-type]
        store=engine.store,
        clock=engine.clock,
        host_json=WEFT,
        options=HostOptions(settings={"COSMOS_DATABASE": "weft"}),
    )
    await host.start()
    async with httpx.AsyncClient(base_url=host.url) as client:
        yield host, client
    await host.stop()


async def test_a_workflow_runs_through_the_triggers_and_is_there_after_a_restart(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (host, client):
        published = await client.post("/v1/workflows", json=DEFINITION)
        assert published.status_code in (200, 201), published.text
        started = await client.post("/v1/workflows/squares/start", json={"input": {}})
        assert started.status_code == 202, started.text
        await host.run_until_idle()
        path = started.headers["location"]
        seen = (await client.get(path)).json()
        assert (seen["status"], seen["output"]) == ("COMPLETED", [1, 4, 9, 16])
        counted = await client.get("/metrics")
        assert counted.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert 'weft_executions_total{status="COMPLETED"} 1\n' in counted.text
    async with running(tmp_path) as (host, client):
        await host.run_until_idle()
        assert (await client.get(path)).json() == seen
        assert (await client.get(f"{path}/verify")).json()["ok"]


async def test_lists_follow_the_executions_and_are_kept(tmp_path: Path) -> None:
    """`project_visibility` has its own place in the feed, beside the relay's."""

    async def listed(client: httpx.AsyncClient, query: str) -> list[str]:
        page = (await client.get(f"/v1/executions?{query}")).json()
        return [item["id"] for item in page["items"]]

    async with running(tmp_path) as (host, client):
        await client.post("/v1/workflows", json=DEFINITION)
        starting = [
            client.post("/v1/workflows/squares/start", json={"tags": {"n": str(n % 2)}})
            for n in range(6)
        ]
        started = [answer.json()["id"] for answer in await asyncio.gather(*starting)]
        await host.run_until_idle()
        done = "workflow=squares&status=COMPLETED"
        while len(await listed(client, done)) < 6:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)
        assert sorted(await listed(client, done)) == sorted(started)
        odd = await listed(client, "tag=n=1&limit=10")
        assert len(odd) == 3
        (page,) = [(await client.get("/v1/executions?limit=1&search=" + odd[0])).json()]
        view = (await client.get(f"/v1/executions/{odd[0]}")).json()
        assert page["items"] == [{name: view[name] for name in page["items"][0]}]
    async with running(tmp_path) as (_, client):
        assert await listed(client, "tag=n=1&limit=10") == odd


async def test_unknown_paths_and_encoded_slashes_are_answered_by_the_app(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, client):
        for path in ("/v1/nowhere", "/v1/executions/a%2Fb", "/nowhere"):
            answer = await client.get(path)
            assert answer.status_code in (400, 404, 422), path
            assert answer.json()["error"]["code"], path
