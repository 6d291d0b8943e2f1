"""`weft bulk`, and `weft deadletters … --all --async`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_fake_api import FakeApi

STARTED = {"id": "b1", "workflow": "weft-bulk", "version": 1, "status": "PENDING", "created": True}
REFUSAL = {"id": "e9", "code": "CANNOT_CANCEL", "message": "it is \x1b[2JCOMPLETED"}


def view(status: str, *, done: int = 0, refusals: Any = (), **more: Any) -> dict[str, Any]:
    told = {"action": "cancel", "done": done, "refused": len(refusals), "more": status == "RUNNING"}
    output = {**told, "refusals": list(refusals)} if status == "COMPLETED" else None
    return {
        "id": "b1",
        "status": status,
        "orchestration": {"customStatus": told} if done else None,
        "output": output,
        "error": None,
        **more,
    }


def test_what_is_asked_for_reaches_the_server(api: FakeApi, weft: Any) -> None:
    api.on("POST", "/v1/executions/bulk", STARTED)
    args = ("--workflow", "orders", "--status", "running", "--tag", "a=b", "-r", "wrong")
    result = weft("bulk", "cancel", *args, "--limit", "5", "--key", "k")
    assert result.exit_code == 0
    assert "weft watch b1" in result.stdout
    asked = api.last("POST")
    assert asked.json() == {
        "action": "cancel",
        "filter": {"workflow": "orders", "status": "RUNNING", "tag": "a=b"},
        "reason": "wrong",
        "limit": 5,
    }
    assert asked.headers["Idempotency-Key"] == "k"


@pytest.mark.parametrize("action", ["pause", "resume", "retry", "terminate"])
def test_every_action_has_a_command(api: FakeApi, weft: Any, action: str) -> None:
    api.on("POST", "/v1/executions/bulk", STARTED)
    result = weft("bulk", action, "--status", "RUNNING", "--json")
    assert json.loads(result.stdout) == STARTED
    assert api.last("POST").json()["action"] == action


def test_wait_shows_how_far_it_is_and_what_was_refused(api: FakeApi, weft: Any) -> None:
    api.on("POST", "/v1/executions/bulk", STARTED)
    api.on(
        "GET",
        "/v1/executions/b1",
        view("PENDING"),
        view("RUNNING", done=200),
        view("RUNNING", done=200),
        view("COMPLETED", done=230, refusals=[REFUSAL]),
    )
    result = weft("bulk", "cancel", "--workflow", "orders", "--wait")
    assert result.exit_code == 1  # some were refused
    lines = result.stdout.splitlines()
    assert lines[:3] == ["PENDING", "200 done, 0 refused, goes on", "230 done, 1 refused"]
    assert lines[3].startswith("  e9: CANNOT_CANCEL")
    assert "\x1b" not in result.stdout


def test_wait_ends_well_if_nothing_was_refused(api: FakeApi, weft: Any) -> None:
    api.on("POST", "/v1/executions/bulk", STARTED)
    api.on("GET", "/v1/executions/b1", view("COMPLETED", done=3))
    result = weft("bulk", "cancel", "--status", "RUNNING", "--wait", "--json")
    assert (result.exit_code, json.loads(result.stdout)["output"]["done"]) == (0, 3)


def test_one_that_was_cancelled_is_no_success(api: FakeApi, weft: Any) -> None:
    api.on("POST", "/v1/executions/bulk", STARTED)
    api.on("GET", "/v1/executions/b1", view("CANCELLED"))
    result = weft("bulk", "pause", "--status", "RUNNING", "--wait")
    assert result.exit_code == 1
    assert "CANCELLED" in result.stdout


def test_dead_letters_are_left_to_the_server(api: FakeApi, weft: Any) -> None:
    api.on("POST", "/v1/deadletters/bulk", STARTED)
    result = weft("deadletters", "retry", "--all", "--workflow", "orders", "--async")
    assert (result.exit_code, "b1" in result.stdout) == (0, True)
    asked = api.last("POST")
    assert asked.headers["Prefer"] == "respond-async"
    assert asked.json() == {"action": "retry", "filter": {"workflow": "orders"}, "reason": ""}
    api.on("GET", "/v1/executions/b1", view("COMPLETED", done=3))
    assert weft("deadletters", "fail", "--all", "--wait").stdout.endswith("3 done, 0 refused\n")


def test_one_dead_letter_needs_no_bulk_operation(api: FakeApi, weft: Any) -> None:
    assert weft("deadletters", "retry", "e1~a~1", "--async").exit_code == 2
