"""`weft triggers` and `weft events`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_fake_api import FakeApi

TRIGGER = {
    "name": "orders",
    "description": "",
    "workflow": "flow",
    "match": {"type": "order.placed"},
    "filter": "${event.data.total > 1.0}\x1b[2J",
    "input": {"n": "${event.data.n}"},
    "tags": {"a": "b"},
    "paused": False,
    "createdAt": "2026-11-30T12:00:00.000Z",
    "updatedAt": "2026-11-30T12:00:00.000Z",
    "updatedBy": "ann",
}
RECEIPT = {
    "id": "1",
    "source": "/s",
    "executions": ["e-1"],
    "deadLetters": [],
    "unmatched": False,
    "error": None,
}


@pytest.fixture
def trigger(tmp_path: Path) -> str:
    file = tmp_path / "trigger.yaml"
    file.write_text("name: orders\n")
    return str(file)


@pytest.fixture
def event(tmp_path: Path) -> str:
    file = tmp_path / "event.json"
    file.write_text('{"id": "1"}')
    return str(file)


def test_list_and_show(api: FakeApi, weft: Any) -> None:
    api.on("GET", "/v1/triggers", {"items": [TRIGGER], "nextCursor": "more"})
    api.on("GET", "/v1/triggers/orders", TRIGGER)
    result = weft("triggers", "list", "--limit", "1")
    for part in ("orders", "flow", "order.placed", "--limit"):
        assert part in result.stdout
    assert "\x1b" not in result.stdout
    found = weft("triggers", "list", "--limit", "1", "--json").stdout
    assert json.loads(found)["items"] == [TRIGGER]
    shown = weft("triggers", "show", "orders").stdout
    for part in ("orders", "event.data.n", "by ann"):
        assert part in shown
    assert json.loads(weft("triggers", "show", "orders", "--json").stdout) == TRIGGER
    api.on("GET", "/v1/triggers", {"items": [], "nextCursor": None})
    assert "No triggers." in weft("triggers", "list").stdout
    assert weft("triggers", "show", "nope").exit_code == 3


def test_create_and_update_send_the_file_as_it_is(api: FakeApi, weft: Any, trigger: str) -> None:
    api.on("POST", "/v1/triggers", TRIGGER, status=201)
    api.on("PUT", "/v1/triggers/orders", TRIGGER)
    assert "created orders" in weft("triggers", "create", trigger).stdout
    sent = api.last("POST")
    assert (sent.body, sent.headers["Content-Type"]) == (b"name: orders\n", "application/yaml")
    assert "stored orders" in weft("triggers", "update", "orders", trigger).stdout
    assert api.last("PUT").body == b"name: orders\n"
    assert weft("triggers", "create", "/nowhere.yaml").exit_code == 2


def test_pause_resume_delete(api: FakeApi, weft: Any) -> None:
    for verb in ("pause", "resume"):
        api.on("POST", f"/v1/triggers/orders/{verb}", TRIGGER)
        assert f"{verb}d orders" in weft("triggers", verb, "orders").stdout
    api.on("DELETE", "/v1/triggers/orders", None, status=204)
    assert "deleted orders" in weft("triggers", "delete", "orders").stdout
    assert weft("triggers", "delete", "nope").exit_code == 3


def test_a_trial_tells_what_would_happen(api: FakeApi, weft: Any, event: str) -> None:
    fine = {"starts": True, "stopped": None, "input": {"n": 5}, "tags": {"a": "b"}, "error": None}
    error = {"type": "EXPRESSION_FAILED", "message": "no such key", "field": "$.filter"}
    bad = {**fine, "starts": False, "stopped": "filter", "input": None, "tags": {}, "error": error}
    api.on("POST", "/v1/triggers/orders/test", fine, bad, bad)
    result = weft("triggers", "test", "orders", event)
    assert result.exit_code == 0
    assert '"n": 5' in result.stdout
    result = weft("triggers", "test", "orders", event)
    assert result.exit_code == 1
    for part in ("filter", "no such key", "at $.filter"):
        assert part in result.stdout
    result = weft("triggers", "test", "orders", event, "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, bad)
    assert weft("triggers", "test", "orders", "-", input="id: 1").exit_code == 2


def test_an_event_is_sent_and_a_list_as_a_batch(api: FakeApi, weft: Any, event: str) -> None:
    answer = {"accepted": 1, "refused": 0, "items": [RECEIPT]}
    api.on("POST", "/v1/events", answer, status=202)
    result = weft("events", "send", event)
    assert (result.exit_code, result.stdout) == (0, "1  execution e-1\n")
    sent = api.last("POST")
    assert (sent.body, sent.headers["Content-Type"]) == (
        b'{"id": "1"}',
        "application/cloudevents+json",
    )
    weft("events", "send", "-", input=" [1]")
    assert api.last("POST").headers["Content-Type"] == "application/cloudevents-batch+json"


def test_what_was_refused_or_failed_is_exit_code_1(api: FakeApi, weft: Any, event: str) -> None:
    items = [
        {**RECEIPT, "executions": [], "unmatched": True},
        {**RECEIPT, "deadLetters": ["_events~e1"]},
        {**RECEIPT, "id": None, "error": {"code": "INVALID_EVENT", "message": "$[2].id: missing"}},
    ]
    api.on("POST", "/v1/events", {"accepted": 2, "refused": 1, "items": items}, status=202)
    result = weft("events", "send", event)
    assert result.exit_code == 1
    for part in ("no trigger matches", "dead letter _events~e1", "refused: $[2].id: missing"):
        assert part in result.stdout
    api.on("POST", "/v1/events", {"accepted": 1, "refused": 0, "items": items[:1]}, status=202)
    assert weft("events", "send", event, "--json").exit_code == 0


def test_a_dead_letter_of_an_event_shows_trigger_and_event(api: FakeApi, weft: Any) -> None:
    letter = {
        "id": "_events~e1",
        "kind": "event",
        "status": "OPEN",
        "reason": "mappingFailed",
        "execution": None,
        "trigger": "orders",
        "workflow": "flow",
        "version": None,
        "task": None,
        "item": None,
        "attempt": 0,
        "createdAt": "2026-11-30T12:00:00.000Z",
        "error": {"type": "EXPRESSION_FAILED", "message": "no such key", "causes": []},
        "resolved": None,
        "attempts": [],
        "event": {"id": "1", "source": "/s"},
    }
    api.on("GET", "/v1/deadletters", {"items": [letter], "nextCursor": None})
    api.on("GET", "/v1/deadletters/_events~e1", letter)
    assert "orders" in weft("deadletters", "list").stdout
    shown = weft("deadletters", "show", "_events~e1").stdout
    for part in ("orders", '"source": "/s"', "mappingFailed"):
        assert part in shown
    assert "None" not in shown
