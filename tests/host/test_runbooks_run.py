"""Every `weft` command of every runbook, run as it stands there against a running platform.

Whoever opens a runbook at night types what it says. Parsing proves only that the words exist; here
each one has to do its work, on an object of the kind that the page names.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_host_end_to_end import running
from typer.testing import CliRunner, Result

from orchestrator.engine import reconcile
from orchestrator.local.cli import app
from orchestrator.local.host.host import LocalHost
from tests.infra.test_runbooks import COMMANDS, PAGES


def shape(line: str) -> str:
    """The command without its values: `--limit 20` and `--limit 50` are tried once."""
    return re.sub(r'"[^"]*"|\b\d+\w?\b', "", line)


LINES = sorted(
    {
        shape(one or other): one or other
        for page in PAGES
        for one, other in COMMANDS.findall(page.read_text("utf-8"))
        if not (one or other).startswith("weft smoke")
    }.values()
)
"""`weft smoke` has tests of its own."""
WAITING = {"name": "waiting", "tasks": {"go": {"type": "signal", "signal": "go"}}}
QUICK = {"name": "quick", "tasks": {"done": {"type": "transform", "output": 1}}}
FAILING = {
    "name": "failing",
    "tasks": {"break": {"type": "transform", "output": "${1 / int(size(input))}"}},
}
LETTERS = re.compile(r"^weft deadletters (show|retry|skip|fail|discard) ID")


class Platform:
    """A platform with one of everything, and new objects for commands that use them up."""

    def __init__(self, host: LocalHost, client: httpx.AsyncClient, folder: Path) -> None:
        self.host, self.client, self.folder = host, client, folder

    async def post(self, path: str, body: Any) -> Any:
        answer = await self.client.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    async def prepare(self) -> None:
        for flow in (WAITING, QUICK, FAILING, {**FAILING, "name": "holding", "onFailure": "hold"}):
            await self.post("/v1/workflows", flow)
        for version in (2, 3):
            await self.post("/v1/workflows", {**QUICK, "description": f"version {version}"})
        schedule = {"name": "quick", "workflow": "quick", "cron": "0 3 1 1 *"}
        await self.post("/v1/schedules", schedule)
        trigger = {"name": "quick", "workflow": "quick", "match": {"type": "order.placed"}}
        await self.post("/v1/triggers", trigger)
        (self.folder / "flow.json").write_text(json.dumps(QUICK), "utf-8")
        (self.folder / "input.json").write_text("[1]", "utf-8")

    async def execution(self, workflow: str) -> str:
        started = await self.post(f"/v1/workflows/{workflow}/start", {"input": []})
        await self.host.run_until_idle()
        return started["id"]

    async def letter(self, workflow: str) -> str:
        id = await self.execution(workflow)
        found = await self.client.get(f"/v1/deadletters?execution={id}")
        (letter,) = found.json()["items"]
        return letter["id"]

    async def subject(self, line: str) -> str:
        """What `ID` stands for in this command: a new one, since many use it up."""
        if match := LETTERS.match(line):
            return await self.letter("failing" if match[1] == "discard" else "holding")
        return await self.execution("quick" if line.startswith("weft replay") else "waiting")

    async def run(self, line: str) -> Result:
        """The command with an object for each name in capitals."""
        id = await self.subject(line) if re.search(r"\b(ID|EXECUTION)\b", line) else ""
        given = {
            "ID": id,
            "EXECUTION": id,
            "NAME": "api.example" if " breakers " in line else "quick",
            "TENANT": "default",
            "TYPE": "ExpressionError",
            "FILE": str(self.folder / "flow.json"),
            "@FILE": f"@{self.folder / 'input.json'}",
            ".weft": str(self.folder),
        }
        words = [given.get(word, word) for word in shlex.split(line)[1:]]
        return await asyncio.to_thread(lambda: CliRunner().invoke(app, words))


async def test_every_command_of_the_runbooks_does_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(LINES) > 40
    monkeypatch.setattr(reconcile, "SETTLE_MS", 200)
    async with running(tmp_path) as (host, client):
        monkeypatch.setenv("WEFT_URL", host.url)
        monkeypatch.setenv("WEFT_DATA_DIR", str(tmp_path))
        platform = Platform(host, client, tmp_path)
        await platform.prepare()
        await platform.letter("failing")
        results = {line: await platform.run(line) for line in LINES}
        failed = {line: one.output for line, one in results.items() if one.exit_code != 0}
        assert failed == {}
