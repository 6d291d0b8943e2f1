"""What people do to code workflows, on the whole embedded platform: each verb of the API as Durable
sees it, and down to the last of their children."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from activities import CodeContext, Retry
from activities.code.registry import CodeRegistry
from orchestrator.local.durable.store_schema import FILE
from tests.host.code_host import ended, running, start, until

pytestmark = pytest.mark.filterwarnings("ignore:azure.functions df_loads:DeprecationWarning")
Flow = Generator[Any, Any, Any]
MENDED: list[bool] = []
RAN: list[str] = []


def work(given: str) -> str:
    RAN.append(given)
    if given == "breaks" and not MENDED:
        raise ValueError("broken")
    return given


def deep(ctx: CodeContext, depth: int) -> Flow:
    """A line of children, each in an instance of its own and its call in another one."""
    ctx.set_status({"depth": depth})
    if depth:
        return (yield ctx.call_workflow("deep", depth - 1))
    return (yield ctx.wait_for_signal("never"))


def leaves(ctx: CodeContext) -> Flow:
    """Does not wait for its child."""
    child = ctx.call_workflow("deep", 1, version=1)
    first = yield ctx.any([child, ctx.sleep("1ms")])
    return first is child


def patient(ctx: CodeContext) -> Flow:
    """A child, and an activity that waits for its next attempt."""
    hours = Retry(initial_interval="1h", jitter="none")
    child = ctx.call_workflow("deep", 0, version=1)
    yield ctx.all([child, ctx.call_activity("work", "breaks", retry=hours)])


def steps(ctx: CodeContext) -> Flow:
    yield ctx.call_activity("work", "first")
    ctx.set_status("waits")
    said = yield ctx.wait_for_signal("go")
    yield ctx.call_activity("work", "breaks")
    return said


def code() -> CodeRegistry:
    made = CodeRegistry()
    for name, fn in (("deep", deep), ("leaves", leaves), ("steps", steps), ("patient", patient)):
        made.register(name, 1, fn)
    return made


def asked(data: Path, sql: str) -> list[Any]:
    """Of what Durable has stored."""
    db = sqlite3.connect(data / FILE)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def instances(data: Path) -> dict[str, str]:
    """Every instance and its status."""
    return dict(asked(data, "SELECT id, status FROM instances"))


async def born(data: Path, count: int) -> dict[str, str]:
    """All instances, once there are so many."""
    while True:
        found = instances(data)
        if len(found) == count:
            return found
        await asyncio.sleep(0.02)


async def act(client: httpx.AsyncClient, path: str, verb: str, **body: Any) -> Any:
    answer = await client.post(f"{path}/{verb}", json=body)
    assert answer.status_code in (200, 202), answer.text
    return answer.json()


def shows(status: str, custom: Any = ...) -> Any:
    """Whether an execution's orchestration is shown like that."""

    def good(seen: Any) -> bool:
        shown = seen["orchestration"] or {"status": None}  # not started yet
        return shown["status"] == status and custom in (shown["customStatus"], ...)

    return good


async def test_pause_signal_resume_failure_and_retry(tmp_path: Path) -> None:
    RAN.clear()
    MENDED.clear()
    async with running(tmp_path, code(), {"work": work}) as (host, client):
        path = await start(client, "steps")
        await until(client, path, shows("Running", "waits"))
        await act(client, path, "pause")
        assert (await until(client, path, shows("Suspended")))["status"] == "PAUSED"
        await act(client, path, "signals", name="go", payload={"price": 1.0})
        await host.run_until_idle()
        assert RAN == ["first"]
        await act(client, path, "resume")
        failed = await until(client, path, ended)
        assert (failed["status"], failed["error"]["causes"][0]["type"]) == ("FAILED", "ValueError")
        MENDED.append(True)
        await act(client, path, "retry")
        done = await until(client, path, ended)
        assert (done["status"], done["output"]) == ("COMPLETED", {"price": 1.0})
        assert done["startedAt"] <= failed["endedAt"] <= done["endedAt"]
        assert RAN == ["first", "breaks", "breaks"]
        assert (await client.get(f"{path}/verify")).json()["ok"]


async def test_a_pause_reaches_the_last_child_and_a_resume_too(tmp_path: Path) -> None:
    """They have no execution that could be paused; a retry of an activity is one of them."""
    MENDED.clear()
    async with running(tmp_path, code(), {"work": work}) as (host, client):
        path = await start(client, "patient")
        await born(tmp_path, 3)
        await host.run_until_idle()
        await act(client, path, "pause")
        await until(client, path, shows("Suspended"))
        await host.run_until_idle()
        resting = "SELECT count(*), sum(suspended) FROM instances"
        assert asked(tmp_path, resting) == [(3, 3)]
        await act(client, path, "resume")
        await until(client, path, shows("Running"))
        await host.run_until_idle()
        assert asked(tmp_path, resting) == [(3, 0)]


@pytest.mark.parametrize("verb", ["cancel", "terminate"])
async def test_an_end_reaches_the_last_child_and_erasing_leaves_none(
    tmp_path: Path, verb: str
) -> None:
    """Also those whose whole way is too long for an id."""
    async with running(tmp_path, code(), {}) as (host, client):
        path = await start(client, "deep", 14)
        assert any("~" in id for id in await born(tmp_path, 29))
        await act(client, path, verb)
        await until(client, path, ended)
        await host.run_until_idle()
        assert set(instances(tmp_path).values()) == {"Terminated"}
        await act(client, path, "erase")
        assert instances(tmp_path) == {}


async def test_erasing_ends_a_child_that_nobody_waited_for(tmp_path: Path) -> None:
    async with running(tmp_path, code(), {}) as (host, client):
        path = await start(client, "leaves")
        assert (await until(client, path, ended))["output"] is False
        await host.run_until_idle()
        assert "Running" in instances(tmp_path).values()
        await act(client, path, "erase")
        assert instances(tmp_path) == {}
