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
