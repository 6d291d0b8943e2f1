"""The whole app in Azure mode: two worker processes, the real SDKs, the wire servers; one dies.

Cosmos DB, Blob Storage and Service Bus are this process's; the workers know only their addresses,
as app settings.
"""

from __future__ import annotations

import asyncio
import glob
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from orchestrator.adapters.azure.cosmos_containers import definitions
from orchestrator.domain.topology import EXECUTIONS
from tests.support.identities import bearer
from tests.wire.blob.server import BlobServer
from tests.wire.cosmos.server import CosmosServer
from tests.wire.servicebus import ServiceBusBroker

ROOT = Path(__file__).parents[2]
EXECUTIONS_STARTED = 20
FILES = 3


@dataclass
class Cloud:
    """The servers, and how to reach them."""

    cosmos: CosmosServer
    settings: dict[str, str]

    def documents(self, kind: str) -> Iterator[dict[str, Any]]:
        """What the executions container holds."""
        for _, item in self.cosmos.account.container("weft", EXECUTIONS).documents.living():
            if item.body["type"] == kind:
                yield item.body


@asynccontextmanager
async def cloud(data: Path) -> AsyncIterator[Cloud]:
    broker = ServiceBusBroker().start()
    try:
        async with CosmosServer() as cosmos, BlobServer() as blob:
            cosmos.account.create("weft", *definitions())
            yield Cloud(
                cosmos,
                {
                    "WEFT_BACKEND": "azure",
                    "WEFT_AUTH_LOCAL": "true",
                    "WEFT_DATA_DIR": str(data),
                    "Cosmos": f"AccountEndpoint={cosmos.endpoint};AccountKey=a2V5;",
                    "COSMOS_DATABASE": "weft",
                    "ServiceBus": broker.connection_string,
                    "Payloads": blob.connection_string,
                    "WEFT_LEASE_MS": "3000",
                    "WEFT_SILENCE_MS": "2000",
                    "WEFT_OUTBOX_GRACE_MS": "1000",
                    "WEFT_RETRY_GRACE_MS": "1000",
                },
            )
    finally:
        broker.stop()


class Worker:
    """A process of the app. Its log is a file, shown when the test fails."""

    def __init__(self, name: str, settings: dict[str, str], folder: Path, *more: str) -> None:
        self.log = folder / f"{name}.log"
        with ExitStack() as stack:
            log = stack.enter_context(self.log.open("w"))
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "tests.wire.azure_app", *more],
                cwd=folder,
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": str(ROOT),
                    "WEFT_WORKER": name,
                    **settings,
                },
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    async def line(self) -> str:
        """The next one that it prints: first its address, then what it will not finish."""
        assert self.process.stdout is not None
        line = (await asyncio.to_thread(self.process.stdout.readline)).strip()
        assert line, self.log.read_text()
        return line

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def census(folder: Path) -> dict[str, Any]:
    """The sample workflow's definition, over a few files of our own."""
    source = folder / "source"
    source.mkdir()
    for number in range(FILES):
        (source / f"m{number}.py").write_text(f"def f{number}():\n    return {number}\n")
    return yaml.safe_load((ROOT / "samples" / "source-census" / "workflow.yaml").read_text())


@pytest.mark.timeout(120)
async def test_twenty_executions_complete_although_a_worker_is_killed_at_work(
    tmp_path: Path,
) -> None:
    """SIGKILL while it holds tasks: its leases lapse, its locked messages stay locked for minutes,
    and the sweeper alone brings everything to its end on the other worker."""
    definition, who = census(tmp_path), bearer(tmp_path)
    async with cloud(tmp_path) as azure:
        # Every activity of the doomed worker after its second never ends.
        doomed = Worker("doomed", azure.settings, tmp_path, "--hang-after", "2")
        other = Worker("other", azure.settings, tmp_path)
        try:
            _, url = await asyncio.gather(doomed.line(), other.line())
            async with httpx.AsyncClient(base_url=url, headers=who, timeout=30) as client:
                published = await client.post("/v1/workflows", json=definition)
                assert published.status_code == 201, published.text
                paths = await asyncio.gather(
                    *(start(client, tmp_path, number) for number in range(EXECUTIONS_STARTED))
                )
                held = json.loads(await doomed.line())
                doomed.process.send_signal(signal.SIGKILL)
                seen = [await completed(client, path) for path in paths]
                verified = [(await client.get(f"{path}/verify")).json() for path in paths]
            first, *_, last = attempts_of(azure, *held)
            other.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(other.process.wait) == 0
        except BaseException:
            sys.stderr.write(doomed.log.read_text()[-4000:] + other.log.read_text()[-4000:])
            raise
        finally:
            doomed.end()
            other.end()
        log = other.log.read_text()
    assert "Unclosed" not in log
    assert "Traceback" not in log
    assert {one["output"]["totals"]["files"] for one in seen} == {FILES}
    assert len({one["output"]["report"]["json"] for one in seen}) == EXECUTIONS_STARTED
    assert len(await asyncio.to_thread(glob.glob, f"{tmp_path}/out*/census.json")) == len(seen)
    assert all(one["ok"] for one in verified)
    # What the dead worker held was counted as an attempt of its own, and run again elsewhere.
    assert (first["worker"], first["error"]["type"]) == ("doomed", "LEASE_EXPIRED")
    assert (last["worker"], "error" in last) == ("other", False)


async def start(client: httpx.AsyncClient, folder: Path, number: int) -> str:
    answer = await client.post(
        "/v1/workflows/source-census/start",
        json={"input": {"root": str(folder / "source"), "outputDir": str(folder / f"out{number}")}},
        headers={"Idempotency-Key": f"run-{number}"},
    )
    assert answer.status_code == 202, answer.text
    return answer.headers["location"]


def attempts_of(azure: Cloud, execution: str, task: str, item: int | None) -> list[dict[str, Any]]:
    """Of one task, as stored."""
    [found] = [
        document["attempts"]
        for document in azure.documents("task")
        if (document["executionId"], document["task"], document.get("item"))
        == (execution, task, item)
    ]
    return found


async def completed(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    """The execution once it has ended, which must be well."""
    while True:
        answer = await client.get(path, params={"wait": "20s"})
        seen = answer.json()
        if seen["status"] not in ("PENDING", "RUNNING"):
            assert seen["status"] == "COMPLETED", json.dumps(seen)
            return seen
