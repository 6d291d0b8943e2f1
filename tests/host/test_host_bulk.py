"""Bulk operations on the whole embedded platform: HTTP in, Durable's protocol, HTTP out."""

from __future__ import annotations

from pathlib import Path

import pytest

from activities import Context
from tests.host.code_host import ended, running, until
from tests.support.bulks import registry
from tests.support.definitions import flow, retry, task

pytestmark = pytest.mark.filterwarnings("ignore:azure.functions df_loads:DeprecationWarning")
MENDED: list[bool] = []


def work(given: object, ctx: Context) -> int:
    if not MENDED:
        raise ValueError("broken")
    return 1


async def test_executions_and_dead_letters_are_handled_by_the_platform_itself(
    tmp_path: Path,
) -> None:
    MENDED.clear()
    async with running(tmp_path, registry(), {"work": work}) as (_, client):
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
            seen = await until(client, got.headers["location"], ended)
            told = {"action": body["action"], "done": 3, "refused": 0, "more": False}
            assert seen["output"] == {**told, "refusals": []}, seen
            assert seen["orchestration"]["customStatus"] == told
        for name, status in (("flow", "COMPLETED"), ("waits", "CANCELLED")):
            path = f"/v1/executions?workflow={name}&status={status}"
            await until(client, path, lambda seen: len(seen["items"]) == 3)
