"""`weft signal`, `weft signals`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cli_shapes as shapes
from cli_fake_api import FakeApi

RESULT = {"id": "a-1", "name": "ok", "execution": "e1", "created": True}
ONE = {
    "id": "a-1",
    "name": "ok",
    "receivedAt": "2026-11-30T12:00:00.000Z",
    "sentBy": "eve",
    "bytes": 4,
    "status": "CONSUMED",
    "task": "approve",
}


def test_a_signal_is_sent_with_its_payload_and_id(api: FakeApi, weft: Any, tmp_path: Path) -> None:
    api.on("POST", "/v1/executions/e1/signals", RESULT, {**RESULT, "created": False})
    result = weft("signal", "e1", "ok", "--payload", '{"by": "eve"}', "--id", "a-1")
    assert (result.exit_code, result.stdout) == (0, "ok a-1  accepted\n")
    assert api.last("POST").json() == {"name": "ok", "payload": {"by": "eve"}, "id": "a-1"}
    (tmp_path / "p.json").write_text("null")
    result = weft("signal", "e1", "ok", "--payload", f"@{tmp_path / 'p.json'}", "--json")
    assert api.last("POST").json() == {"name": "ok", "payload": None}
    assert json.loads(result.stdout)["created"] is False
    weft("signal", "e1", "ok")
    assert api.last("POST").json() == {"name": "ok"}


def test_the_list_names_the_item_that_took_a_signal(api: FakeApi, weft: Any) -> None:
    of_item = {**ONE, "id": "a-2", "task": "asks", "item": 3}
    left = {**ONE, "id": "a-3", "task": None, "status": "BUFFERED"}
    api.on("GET", "/v1/executions/e1/signals", {"items": [ONE, of_item, left], "nextCursor": None})
    lines = weft("signals", "e1").stdout.splitlines()
    assert [line.split()[-1] for line in lines[-3:]] == ["approve", "asks[3]", "BUFFERED"]


def test_who_waits_for_which_signal_is_shown(api: FakeApi, weft: Any) -> None:
    api.on("GET", "/v1/executions/e1", shapes.execution())
    waits = shapes.task("s", "WAITING", type="signal", signal="approved", attempt=0)
    done = shapes.task("t", type="signal", signal="packed")
    asks = shapes.task("m", "WAITING", type="map", signal="voted", attempt=0)
    api.on("GET", "/v1/executions/e1/tasks", shapes.page(waits, done, asks))
    text = weft("show", "e1").stdout
    assert "signal approved" in text
    assert "signal voted" in text
    assert "signal packed" not in text, "it does not wait any more"


def test_a_refusal_shows_the_fields(api: FakeApi, weft: Any) -> None:
    detail = {"field": "$.payload.by", "message": "is missing", "code": "", "hint": ""}
    error = {"code": "PAYLOAD_INVALID", "message": "does not fit", "details": [detail]}
    api.on("POST", "/v1/executions/e1/signals", {"error": {**error, "traceId": "t"}}, status=422)
    result = weft("signal", "e1", "ok", "--payload", "{}")
    assert result.exit_code == 2
    assert "$.payload.by" in result.stderr
    bad = weft("signal", "e1", "ok", "--payload", "{")
    assert bad.exit_code == 2
    assert "--payload" in bad.stderr


def test_signals_are_listed(api: FakeApi, weft: Any) -> None:
    waiting = {**ONE, "id": "a-2", "status": "BUFFERED", "task": None}
    api.on("GET", "/v1/executions/e1/signals", {"items": [ONE, waiting], "nextCursor": None})
    shown = weft("signals", "e1").stdout
    assert "CONSUMED" in shown
    assert "approve" in shown
    assert len(json.loads(weft("signals", "e1", "--json").stdout)["items"]) == 2
    api.on("GET", "/v1/executions/e1/signals", {"items": [], "nextCursor": None})
    assert weft("signals", "e1").stdout == "No signals.\n"
