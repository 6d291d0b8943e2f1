"""`weft code list|publish`, and events of orchestrations in `weft history`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_fake_api import FakeApi
from cli_shapes import execution

from activities.code import registry as code_registry
from tests.support.code_samples import load

PATH = "/v1/code-workflows"
ONE = {
    "name": "ship",
    "version": 2,
    "deployed": True,
    "published": False,
    "function": "code_ship_v2",
    "inputSchema": None,
    "outputSchema": None,
}
FOUND = {"items": [ONE, {**ONE, "version": 1, "deployed": False, "function": None}]}
FOUND |= {"publishedAt": None, "publishedBy": ""}  # type: ignore[dict-item]


def test_list_shows_what_is_deployed_and_what_is_gone(api: FakeApi, weft: Any) -> None:
    api.on("GET", PATH, FOUND)
    result = weft("code", "list")
    assert result.exit_code == 0
    for part in ("ship", "code_ship_v2", "deployed", "gone"):
        assert part in result.stdout
    assert json.loads(weft("code", "list", "--json").stdout) == FOUND
    api.on("GET", PATH, {**FOUND, "items": []})
    assert "No code workflows" in weft("code", "list").stdout


def test_publish_records_it(api: FakeApi, weft: Any) -> None:
    api.on("POST", PATH, {**FOUND, "publishedAt": "2026-11-30T12:00:00.000Z"})
    result = weft("code", "publish")
    assert (result.exit_code, "12:00:00" in result.stdout) == (0, True)


def test_a_deployment_is_asked_about_with_the_code_that_is_here(
    api: FakeApi, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.registry.discover", lambda: None)
    monkeypatch.setattr(code_registry, "_DEFAULT", load("parcel").code)
    api.on("POST", PATH, FOUND)
    result = weft("code", "publish", "--dry-run")
    assert (result.exit_code, "may be deployed" in result.stdout) == (0, True)
    asked = api.last("POST")
    assert asked.query["dryRun"] == "true"
    assert json.loads(asked.body) == {"versions": {"parcel": [1], "parcel-delivery": [1]}}
    error = {"code": "CODE_VERSION_IN_USE", "message": "in use", "details": []}
    api.on("POST", PATH, {"error": error}, status=409)
    result = weft("code", "publish", "--dry-run")
    assert (result.exit_code, "in use" in result.stderr) == (2, True)


def test_show_tells_what_the_author_and_durable_say(api: FakeApi, weft: Any) -> None:
    shown = {"instance": "e1", "status": "Suspended", "customStatus": {"at": "[bold]"}}
    api.on("GET", "/v1/executions/e1", execution(orchestration=shown))
    api.on("GET", "/v1/executions/e1/tasks", {"items": [], "nextCursor": None})
    assert 'durable Suspended {"at": "[bold]"}' in " ".join(weft("show", "e1").stdout.split())
    away = {**shown, "status": None, "customStatus": None, "note": "Durable does not answer"}
    api.on("GET", "/v1/executions/e1", execution(orchestration=away))
    assert "Durable does not answer" in weft("show", "e1").stdout


def test_history_asks_for_orchestrations_and_shows_them(api: FakeApi, weft: Any) -> None:
    inside = {"seq": 3, "type": "taskCompleted", "at": "2026-11-30T12:00:00.000Z"}
    inside |= {"source": "durable", "activity": "pack"}
    api.on("GET", "/v1/executions/e-1/history", {"items": [inside], "nextCursor": None})
    text = weft("history", "e-1").stdout
    assert "source=durable" in text
    assert "activity=pack" in text
    assert api.last("GET").query["include"] == "orchestration"
