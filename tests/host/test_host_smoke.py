"""`weft smoke` against the real triggers: it passes on a sound platform, and says which step fails
on one that is not. A smoke test that cannot fail would wave every deployment through."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from test_host_end_to_end import running
from typer.testing import CliRunner, Result

from orchestrator.local import cli_smoke
from orchestrator.local.cli import app
from orchestrator.local.host.host import LocalHost


async def smoke(host: LocalHost, *options: str) -> tuple[int, dict[str, Any]]:
    def run() -> Result:
        return CliRunner().invoke(app, ["smoke", "--url", host.url, "--json", *options])

    result = await asyncio.to_thread(run)
    return result.exit_code, json.loads(result.stdout)


async def test_the_canary_passes_twice_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = copy.deepcopy(cli_smoke.CANARY)
    quick["tasks"]["fragile"]["retry"]["initialInterval"] = "20ms"
    monkeypatch.setattr(cli_smoke, "CANARY", quick)
    monkeypatch.setattr(cli_smoke, "POLL_SECONDS", 0.02)
    async with running(tmp_path) as (host, client):
        for _ in range(2):
            code, report = await smoke(host)
            assert (code, report["ok"]) == (0, True), report
        assert [step["name"] for step in report["steps"]] == [
            "publish",
            "start",
            "signal",
            "dead letter",
            "retry",
            "skip",
            "complete",
            "history",
            "clean up",
        ]
        assert (await client.get("/v1/deadletters?status=OPEN")).json()["items"] == []
        # Its failures are on purpose: counted, the fifth run in a minute would find a breaker open.
        assert (await client.get("/v1/breakers")).json()["items"] == []
        (canary,) = (await client.get("/v1/workflows")).json()["items"]
        assert (canary["name"], canary["archived"]) == (cli_smoke.NAME, True)


async def test_work_that_is_not_done_in_time_is_noticed_and_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = copy.deepcopy(cli_smoke.CANARY)
    late["tasks"]["fragile"]["retry"]["initialInterval"] = "5m"
    monkeypatch.setattr(cli_smoke, "CANARY", late)
    async with running(tmp_path) as (host, client):
        code, report = await smoke(host, "--timeout", "1")
        assert (code, report["ok"]) == (1, False)
        failed = [step for step in report["steps"] if not step["ok"]]
        assert [step["name"] for step in failed] == ["dead letter"]
        assert "time is up" in failed[0]["error"]
        found = (await client.get(f"/v1/executions/{report['execution']}")).json()
        assert found["status"] == "CANCELLED"
