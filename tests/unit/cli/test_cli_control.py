"""`weft pause`, `weft resume`, `weft cancel`, `weft terminate`."""

from __future__ import annotations

import json
from typing import Any

import cli_shapes as shapes
import pytest
from cli_fake_api import FakeApi


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "terminate", "retry", "erase"])
def test_operator_commands_send_the_reason_and_show_the_state(
    api: FakeApi, weft: Any, verb: str
) -> None:
    view = {"id": "e1", "status": "PAUSED"}
    api.on("POST", f"/v1/executions/e1/{verb}", view)
    result = weft(verb, "e1", "--reason", "deploy")
    assert result.exit_code == 0
    assert "e1" in result.stdout
    assert "PAUSED" in result.stdout
    assert json.loads(weft(verb, "e1", "--json").stdout) == view
    assert api.last("POST").json() == {}


def test_cancel_with_compensation_says_so(api: FakeApi, weft: Any) -> None:
    api.on("POST", "/v1/executions/e1/cancel", {"id": "e1", "status": "COMPENSATING"})
    result = weft("cancel", "e1", "--compensate")
    assert "COMPENSATING" in result.stdout
    assert api.last("POST").json() == {"compensate": True}
    weft("cancel", "e1", "--compensate", "-r", "withdrew")
    assert api.last("POST").json() == {"compensate": True, "reason": "withdrew"}


def test_show_tells_how_far_undoing_is(api: FakeApi, weft: Any) -> None:
    undone = {"status": "running", "tasks": 3, "done": 1, "failed": ["c~undo"], "left": ["a~undo"]}
    seen = shapes.execution(status="COMPENSATING", compensation=undone)
    api.on("GET", "/v1/executions/e1", seen)
    api.on("GET", "/v1/executions/e1/tasks", shapes.page(shapes.task("a")))
    text = " ".join(weft("show", "e1").stdout.split())
    assert "undone 1/3 (running), failed: c~undo, to come: a~undo" in text
    ended = shapes.execution(
        status="CANCELLED", compensation={**undone, "status": "incomplete"}, terminated=True
    )
    api.on("GET", "/v1/executions/e1", ended)
    text = " ".join(weft("show", "e1").stdout.split())
    assert "CANCELLED (terminated)" in text
    assert "undone 1/3 (incomplete), failed: c~undo, left: a~undo" in text


def test_a_refused_action_is_exit_code_2_with_the_reason(api: FakeApi, weft: Any) -> None:
    error = {"code": "CANNOT_CANCEL", "message": "the execution is COMPLETED", "details": []}
    api.on("POST", "/v1/executions/e1/cancel", {"error": {**error, "traceId": "t"}}, status=409)
    result = weft("cancel", "e1")
    assert result.exit_code == 2
    assert "CANNOT_CANCEL" in result.stderr


def test_replay_names_the_new_execution(api: FakeApi, weft: Any) -> None:
    api.on("POST", "/v1/executions/e1/replay", {"id": "e2", "status": "PENDING"})
    result = weft("replay", "e1", "--from", "pay", "--latest", "--key", "k")
    assert result.exit_code == 0
    assert "e2" in result.stdout
    seen = api.last("POST")
    assert seen.json() == {"version": "latest", "reason": "", "from": "pay"}
    assert seen.headers["Idempotency-Key"] == "k"
