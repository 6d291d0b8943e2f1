"""Code workflows on the whole embedded platform: HTTP in, Durable's protocol, HTTP out."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from activities import CodeContext, Context, PermanentError, Retry, TaskFailed
from activities.code.registry import CodeRegistry
from orchestrator.local.host.host import LocalHost
from tests.host.code_host import ended, running, start, until

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


def platform(data: Path) -> AbstractAsyncContextManager[tuple[LocalHost, httpx.AsyncClient]]:
    activities = {"orders.charge": charge, "orders.pack": pack, "orders.refuse": refuse}
    return running(data, code(), activities)


async def test_a_code_workflow_runs_with_retry_timer_signal_and_child(tmp_path: Path) -> None:
    SEEN.clear()
    async with platform(tmp_path) as (host, client):
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
    async with platform(tmp_path) as (_, client):
        path = await start(client, "refused")
        done = await until(client, path, ended)
        assert done["status"] == "FAILED"
        assert "no order: stolen" in str(done["error"])
        assert "OrderRefused" in str(done["error"])


async def test_an_input_that_does_not_fit_is_refused_at_the_start(tmp_path: Path) -> None:
    async with platform(tmp_path) as (_, client):
        answer = await client.post("/v1/workflows/order/start", json={"input": {"lines": "x"}})
        assert answer.status_code in (400, 422), answer.text
