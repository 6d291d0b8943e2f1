"""Bulk operations on the whole embedded platform: HTTP in, Durable's protocol, HTTP out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from activities import Context
from activities.code.driver import functions
from activities.registry import Registry
from activities.runner import Runner
from orchestrator import bootstrap
from orchestrator.adapters.azure.durable_client import DurableClient
from orchestrator.engine.core import Engine
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from orchestrator.local.host.host import HostOptions, LocalHost
from orchestrator.local.host.host_json import WEFT
from orchestrator.settings import load_settings
from tests.support.bulks import registry
from tests.support.definitions import flow, retry, task

pytestmark = pytest.mark.filterwarnings("ignore:azure.functions df_loads:DeprecationWarning")
MENDED: list[bool] = []


def work(given: Any, ctx: Context) -> int:
    if not MENDED:
        raise ValueError("broken")
    return 1


@contextlib.asynccontextmanager
async def running(data: Path) -> AsyncIterator[httpx.AsyncClient]:
    activities, workflows, hub = Registry(), registry(), DurableClient()
    activities.register("work", work)
    engine = await bootstrap.build(
        load_settings({"WEFT_DATA_DIR": str(data)}),
        activities=Runner(activities),
        code=workflows,
        orchestrations=hub,
    )

    async def build() -> Engine:
        return engine

    provider = EngineProvider(build, learn=hub.learn)
    await provider.get()
    host = LocalHost(
        compose(provider, functions(workflows)),
        provider=provider,
        broker=engine.transport,  # type: ignore[arg-type]
        store=engine.store,
        clock=engine.clock,
        host_json=WEFT,
        options=HostOptions(settings={"COSMOS_DATABASE": "weft"}, data=data),
    )
    await host.start()
    try:
        async with httpx.AsyncClient(base_url=host.url) as client:
            yield client
    finally:
        await host.stop()


async def until(client: httpx.AsyncClient, path: str, good: Callable[[Any], bool]) -> Any:
    """What is at `path` once it is good; pytest's own limit ends it."""
    while True:
        seen = (await client.get(path)).json()
        if good(seen):
            return seen
        await asyncio.sleep(0.02)


async def test_executions_and_dead_letters_are_handled_by_the_platform_itself(
    tmp_path: Path,
) -> None:
    MENDED.clear()
    async with running(tmp_path) as client:
        await client.post("/v1/workflows", json=flow(a=task("work", retry=retry(1))))
        await client.post("/v1/workflows", json=flow("waits", a={"type": "signal", "signal": "go"}))
        for name in ("flow", "waits"):
            for _ in range(3):
                await client.post(f"/v1/workflows/{name}/start", json={})
        await until(client, "/v1/deadletters", lambda seen: len(seen["items"]) == 3)
        running_ones = "/v1/executions?workflow=waits&status=RUNNING"
        await until(client, running_ones, lambda seen: len(seen["items"]) == 3)
        MENDED.append(True)
        letters = {"action": "retry", "reason": "mended"}
        cancel = {"action": "cancel", "filter": {"workflow": "waits"}}
        prefer = {"Prefer": "respond-async"}
        for path, body in (("deadletters", letters), ("executions", cancel)):
            got = await client.post(f"/v1/{path}/bulk", json=body, headers=prefer)
            assert got.status_code == 202
            seen = await until(
                client,
                got.headers["location"],
                lambda seen: seen["status"] in ("COMPLETED", "FAILED"),
            )
            told = {"action": body["action"], "done": 3, "refused": 0, "more": False}
            assert seen["output"] == {**told, "refusals": []}, seen
            assert seen["orchestration"]["customStatus"] == told
        for name, status in (("flow", "COMPLETED"), ("waits", "CANCELLED")):
            ended = f"/v1/executions?workflow={name}&status={status}"
            await until(client, ended, lambda seen: len(seen["items"]) == 3)
