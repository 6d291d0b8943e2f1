"""Code workflows on the whole embedded platform: HTTP in, Durable's protocol, HTTP out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from activities import CodeContext, Context, PermanentError, Retry, TaskFailed
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

# The library tells of its stricter mode once a process, at whichever call comes first.
pytestmark = pytest.mark.filterwarnings("ignore:azure.functions df_loads:DeprecationWarning")
Flow = Generator[Any, Any, Any]
SEEN: list[tuple[str, int]] = []


class Order(BaseModel):
    id: str
    lines: int = 1


class Receipt(BaseModel):
    order: str
    charge: str
    packed: list[int]
    by: str


def charge(order: Order, ctx: Context) -> str:
    SEEN.append((ctx.idempotency_key, ctx.attempt))
    if ctx.attempt < 2:
        raise ValueError("try again")
    return f"charge-{order.id}"


async def pack(line: int) -> int:
    return line * 10


def refuse(given: Any) -> None:
    raise PermanentError("stolen", type="CardRefused")


def order_flow(ctx: CodeContext, order: Order) -> Flow:
    ctx.set_status({"step": "charge"})
    again = Retry(max_attempts=3, initial_interval="1ms")
    charged = yield ctx.call_activity("orders.charge", order, retry=again)
    packed = yield ctx.all([ctx.call_activity("orders.pack", n) for n in range(order.lines)])
    yield ctx.sleep("1ms")
    ctx.set_status({"step": "approve"})
    said = yield ctx.wait_for_signal("approved", timeout="1h")
    shipped = yield ctx.call_workflow("ship", said)
    return Receipt(order=order.id, charge=charged, packed=packed, by=shipped)


def ship_flow(ctx: CodeContext, said: Any) -> Flow:
    yield ctx.sleep("0s")
    return said["by"]


def refused_flow(ctx: CodeContext) -> Flow:
    try:
        yield ctx.call_activity("orders.refuse")
    except TaskFailed as error:
        ctx.log.info("refused")
        raise PermanentError(f"no order: {error.failure.message}", type="OrderRefused") from error


def code() -> CodeRegistry:
    made = CodeRegistry()
    made.register("order", 1, order_flow, input=Order, output=Receipt)
    made.register("ship", 1, ship_flow)
    made.register("refused", 1, refused_flow)
    return made


@contextlib.asynccontextmanager
async def running(data: Path) -> AsyncIterator[tuple[LocalHost, httpx.AsyncClient]]:
    activities, workflows, hub = Registry(), code(), DurableClient()
    activities.register("orders.charge", charge)
    activities.register("orders.pack", pack)
    activities.register("orders.refuse", refuse)
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
            yield host, client
    finally:
        await host.stop()


async def until(client: httpx.AsyncClient, path: str, good: Callable[[Any], bool]) -> Any:
    """What is at `path` once it is good; pytest's own limit ends it."""
    while True:
        seen = (await client.get(path)).json()
        if good(seen):
            return seen
        await asyncio.sleep(0.02)


def ended(seen: Any) -> bool:
    return seen["status"] in ("COMPLETED", "FAILED", "CANCELLED")


async def start(client: httpx.AsyncClient, name: str, input: Any = None) -> str:
    answer = await client.post(f"/v1/workflows/{name}/start", json={"input": input})
    assert answer.status_code == 202, answer.text
    return answer.headers["location"]


async def test_a_code_workflow_runs_with_retry_timer_signal_and_child(tmp_path: Path) -> None:
    SEEN.clear()
    async with running(tmp_path) as (host, client):
        path = await start(client, "order", {"id": "o1", "lines": 3})
        sent = await client.post(
            f"{path}/signals", json={"name": "approved", "payload": {"by": "eve"}}
        )
        assert sent.status_code == 202, sent.text
        done = await until(client, path, ended)
        assert done["status"] == "COMPLETED", done
        assert done["output"] == {
            "order": "o1", "charge": "charge-o1", "packed": [0, 10, 20], "by": "eve",
        }  # fmt: skip
        await host.run_until_idle()
        assert (await client.get(f"{path}/verify")).json()["ok"]
        history = (await client.get(f"{path}/history")).json()
        types = [event["type"] for event in history["items"]]
        assert {"signalReceived", "signalRaised", "taskCompleted", "executionCompleted"} <= set(
            types
        )
        shown = done["orchestration"]
        assert (shown["name"], shown["status"]) == ("code_order_v1", "Completed")
        assert shown["customStatus"] == {"step": "approve"}
    assert [attempt for _, attempt in SEEN] == [1, 2]
    assert len({key for key, _ in SEEN}) == 1


async def test_what_it_fails_with_is_the_failure_of_the_execution(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, client):
        path = await start(client, "refused")
        done = await until(client, path, ended)
        assert done["status"] == "FAILED"
        assert "no order: stolen" in str(done["error"])
        assert "OrderRefused" in str(done["error"])


async def test_an_input_that_does_not_fit_is_refused_at_the_start(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, client):
        answer = await client.post("/v1/workflows/order/start", json={"input": {"lines": "x"}})
        assert answer.status_code in (400, 422), answer.text
