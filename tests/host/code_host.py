"""The whole embedded platform with code workflows, in this process: HTTP in, Durable's protocol,
HTTP out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from activities.code.driver import functions
from activities.code.registry import CodeRegistry
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


@contextlib.asynccontextmanager
async def running(
    data: Path, workflows: CodeRegistry, activities: Mapping[str, Callable[..., Any]]
) -> AsyncIterator[tuple[LocalHost, httpx.AsyncClient]]:
    """A platform with these on the files in `data`, and a client of it."""
    registry, hub = Registry(), DurableClient()
    for name, fn in activities.items():
        registry.register(name, fn)
    engine = await bootstrap.build(
        load_settings({"WEFT_DATA_DIR": str(data)}),
        activities=Runner(registry),
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
            yield host, client
    finally:
        await host.stop()


async def start(client: httpx.AsyncClient, name: str, input: Any = None) -> str:
    """The path of a new execution."""
    answer = await client.post(f"/v1/workflows/{name}/start", json={"input": input})
    assert answer.status_code == 202, answer.text
    return answer.headers["location"]


async def until(client: httpx.AsyncClient, path: str, good: Callable[[Any], bool]) -> Any:
    """What is at `path` once it is good; pytest's own limit ends it."""
    while True:
        seen = (await client.get(path)).json()
        if good(seen):
            return seen
        await asyncio.sleep(0.02)


def ended(seen: Any) -> bool:
    """Whether an execution has ended."""
    return seen["status"] in ("COMPLETED", "FAILED", "CANCELLED")
