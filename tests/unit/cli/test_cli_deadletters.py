"""`weft deadletters`."""

from __future__ import annotations

import json
from typing import Any

from cli_fake_api import FakeApi

LETTER = {
    "id": "e1~pay~2",
    "kind": "task",
    "status": "OPEN",
    "reason": "attemptsExhausted",
    "execution": "e1",
    "workflow": "orders",
    "version": 3,
    "task": "pay",
    "item": None,
    "attempt": 2,
    "createdAt": "2026-11-30T12:00:00.000Z",
    "error": {"type": "ConnectionError", "message": "no answer\x1b[2J", "causes": []},
    "resolved": None,
    "attempts": [
        {"attempt": 2, "worker": "w", "startedAt": "2026-11-30T12:00:00.000Z", "error": None}
    ],
    "input": {"n": 1},
}


def test_list_asks_for_the_open_ones_and_filters(api: FakeApi, weft: Any) -> None:
    api.on("GET", "/v1/deadletters", {"items": [LETTER], "nextCursor": None})
    result = weft("deadletters", "list", "--workflow", "orders", "--error", "ConnectionError")
    assert result.exit_code == 0
    assert api.last("GET").query == {
        "status": "OPEN",
        "workflow": "orders",
        "errorType": "ConnectionError",
        "limit": "20",
    }
    assert "e1~pay~2" in result.stdout
    assert "\x1b" not in result.stdout
    weft("deadletters", "list", "--status", "all")
    assert "status" not in api.last("GET").query


def test_show_prints_errors_attempts_and_input(api: FakeApi, weft: Any) -> None:
    api.on("GET", "/v1/deadletters/e1~pay~2", LETTER)
    text = weft("deadletters", "show", "e1~pay~2").stdout
    for part in ("orders version 3", "attemptsExhausted", '{"n": 1}', "ConnectionError"):
        assert part in text
    assert json.loads(weft("deadletters", "show", "e1~pay~2", "--json").stdout) == LETTER


def test_an_unknown_one_is_exit_code_3(api: FakeApi, weft: Any) -> None:
    assert weft("deadletters", "show", "nope").exit_code == 3


def test_a_decision_about_one_sends_its_value_and_reason(api: FakeApi, weft: Any) -> None:
    done = {**LETTER, "status": "RETRIED"}
    for verb in ("retry", "skip", "fail", "discard"):
        api.on("POST", f"/v1/deadletters/e1~pay~2/{verb}", done)
    args = ("deadletters", "retry", "e1~pay~2", "-r", "fixed", "--input", '{"n": 2}')
    assert weft(*args).exit_code == 0
    assert api.last("POST").json() == {"reason": "fixed", "input": {"n": 2}}
    weft("deadletters", "retry", "e1~pay~2")
    assert api.last("POST").json() == {"reason": ""}
    weft("deadletters", "skip", "e1~pay~2", "--output", "[1]")
    assert api.last("POST").json() == {"reason": "", "output": [1]}
    for verb in ("fail", "discard"):
        assert weft("deadletters", verb, "e1~pay~2").exit_code == 0


def test_all_of_a_filter_goes_on_until_nothing_is_left(api: FakeApi, weft: Any) -> None:
    refused = {"id": "e2~a~1", "code": "EXECUTION_ENDED", "message": "it is COMPLETED"}
    other = {**refused, "id": "e3~a~1"}
    part = {"action": "retry", "done": 0, "more": True}
    stuck = {**part, "refused": [other], "nextCursor": "c1"}
    most = {**part, "done": 1000, "refused": [], "nextCursor": "c2"}
    last = {**part, "done": 3, "refused": [refused], "more": False, "nextCursor": None}
    api.on("POST", "/v1/deadletters/bulk", stuck, most, last)
    result = weft("deadletters", "retry", "--all", "--error", "ConnectionError")
    assert result.exit_code == 1
    assert "1003 done, 2 refused" in result.stdout
    assert "EXECUTION_ENDED" in result.stdout
    assert api.last("POST").json() == {
        "action": "retry",
        "filter": {"errorType": "ConnectionError"},
        "reason": "",
        "cursor": "c2",
    }


def test_what_is_meant_must_be_clear(api: FakeApi, weft: Any) -> None:
    for args in ((), ("e1~a~1", "--all"), ("e1~a~1", "--task", "a"), ("--all", "--input", "1")):
        assert weft("deadletters", "retry", *args).exit_code == 2
    assert api.requests == []
