"""`weft rebuild visibility` and `weft reconcile`: on the data of a platform, without a server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from cli_fake_api import Weft

from orchestrator import bootstrap
from orchestrator.domain.topology import EXECUTIONS, VISIBILITY
from orchestrator.engine import catalog, inspect, submit
from orchestrator.engine.core import Engine
from orchestrator.engine.inspect import ExecutionFilter
from orchestrator.settings import load_settings

FLOW = {"name": "hello", "tasks": {"greet": {"type": "transform", "output": "${1}"}}}


def on(data: Path, work: Any) -> Any:
    """Run `work(engine)` on the data folder."""

    async def run() -> Any:
        engine = await bootstrap.build(load_settings({"WEFT_DATA_DIR": str(data)}))
        try:
            return await work(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


async def start_three(engine: Engine) -> list[str]:
    await catalog.publish(engine, "default", FLOW)
    return [(await submit.start(engine, "default", "hello", None)).id for _ in range(3)]


async def listed(engine: Engine) -> list[str]:
    items, _ = await inspect.executions(engine, "default", ExecutionFilter(), limit=10, after=None)
    return sorted(item.id for item in items)


async def spoil(engine: Engine) -> None:
    row = {"id": "gone", "tenantId": "default", "type": "execution", "createdAt": 1, "seq": 1}
    await engine.store.create(VISIBILITY, ("default",), row)


async def poison(engine: Engine) -> None:
    doc = {"id": "bad", "executionId": "bad", "tenantId": "default", "type": "execution"}
    await engine.store.create(EXECUTIONS, ("default", "bad"), doc)


def test_lost_lists_are_made_again_and_a_second_run_finds_nothing_to_do(
    offline: Weft, tmp_path: Path
) -> None:
    started = on(tmp_path, start_three)
    on(tmp_path, spoil)
    result = offline("rebuild", "visibility", "--data", str(tmp_path))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "rebuilt: 3 executions read, 3 rows written, 1 removed\n"
    assert on(tmp_path, listed) == sorted(started)
    again = offline("rebuild", "visibility", "--data", str(tmp_path), "--json")
    assert json.loads(again.stdout) == {
        "executions": 3,
        "written": 0,
        "removed": 0,
        "poisoned": 0,
        "failed": 0,
    }


def test_a_document_that_cannot_be_read_is_told_of_and_exits_1(
    offline: Weft, tmp_path: Path
) -> None:
    on(tmp_path, start_three)
    on(tmp_path, poison)
    result = offline("rebuild", "visibility", "--data", str(tmp_path))
    assert result.exit_code == 1
    assert "3 rows written" in result.stdout
    assert "1 could not be read" in result.stdout


def test_a_folder_without_a_platform_is_refused_and_left_alone(
    offline: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for more in ((), ("--data", str(tmp_path)), ("--data", str(tmp_path / "no"))):
        result = offline("rebuild", "visibility", *more)
        assert result.exit_code == 2
        assert "No embedded platform" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_settings_that_are_not_usable_are_told_of(
    offline: Weft, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_BACKEND", "nonsense")
    result = offline("rebuild", "visibility", "--json")
    assert result.exit_code == 2
    assert "WEFT_BACKEND" in json.loads(result.stdout)["error"]["message"]


def test_a_store_that_cannot_be_opened_exits_4(offline: Weft, tmp_path: Path) -> None:
    (tmp_path / "weft.db").write_bytes(b"precious" * 1000)
    result = offline("rebuild", "visibility", "--data", str(tmp_path))
    assert result.exit_code == 4
    assert "STORE_UNAVAILABLE" in result.stderr


def test_rebuild_alone_shows_what_can_be_rebuilt(offline: Weft) -> None:
    assert "visibility" in offline("rebuild", "--help").stdout


def test_reconcile_names_the_gaps_mends_them_and_ends_with_none(
    offline: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.engine.reconcile.SETTLE_MS", 0)
    started = on(tmp_path, start_three)
    on(tmp_path, spoil)
    looked = offline("reconcile", "--look", "--data", str(tmp_path))
    assert looked.exit_code == 1
    assert looked.stdout.startswith("4 gaps, 0 mended: 3 executions (3 open), 1 rows read")
    assert f"row default/{started[0]} {started[0]}: is missing (left)" in looked.stdout
    mended = offline("reconcile", "--data", str(tmp_path), "--json")
    assert mended.exit_code == 1
    answer = json.loads(mended.stdout)
    assert (answer["gaps"], answer["mended"]) == (4, 4)
    assert answer["kinds"] == {"orphan": 1, "row": 3}
    proof = offline("reconcile", "--all", "--data", str(tmp_path))
    assert (proof.exit_code, proof.stderr) == (0, "")
    assert proof.stdout.startswith("no gaps: 3 executions (3 open), 3 rows read")


def test_reconcile_with_a_new_broker_sends_what_nobody_works_on(
    offline: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.engine.reconcile.SETTLE_MS", 0)
    on(tmp_path, start_three)
    (tmp_path / bootstrap.BROKER_FILE).unlink()
    offline("rebuild", "visibility", "--data", str(tmp_path))
    assert offline("reconcile", "--data", str(tmp_path)).exit_code == 0
    result = offline("reconcile", "--messages-lost", "--data", str(tmp_path), "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["kinds"] == {"lost": 3}
