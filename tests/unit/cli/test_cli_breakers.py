"""`weft breakers`."""

from __future__ import annotations

import json
from typing import Any

from cli_fake_api import FakeApi

BREAKER = {
    "dependency": "pay.example:8443",
    "status": "open",
    "failures": 12,
    "successes": 3,
    "errors": ["HttpTimeout\x1b[2J"],
    "openedAt": "2026-11-30T12:00:00.000Z",
    "until": "2026-11-30T12:00:30.000Z",
    "manual": True,
    "by": "eve",
    "reason": "maintenance",
    "updatedAt": "2026-11-30T12:00:00.000Z",
}
CLOSED = {**BREAKER, "status": "closed", "until": None}
PATH = "/v1/breakers/pay.example:8443"


def test_list_shows_status_counts_and_errors(api: FakeApi, weft: Any) -> None:
    api.on("GET", "/v1/breakers", {"items": [BREAKER]})
    result = weft("breakers", "list")
    assert result.exit_code == 0
    for part in ("pay.example:8443", "open", "12 of 15", "HttpTimeout", "12:00:30"):
        assert part in result.stdout
    assert "\x1b" not in result.stdout
    assert json.loads(weft("breakers", "list", "--json").stdout) == {"items": [BREAKER]}
    api.on("GET", "/v1/breakers", {"items": []})
    assert "all are closed" in weft("breakers", "list").stdout


def test_show_says_who_and_why(api: FakeApi, weft: Any) -> None:
    api.on("GET", PATH, BREAKER)
    text = weft("breakers", "show", "pay.example:8443").stdout
    for part in ("12 of the latest 15", "eve: maintenance", "until"):
        assert part in text
    assert json.loads(weft("breakers", "show", "pay.example:8443", "--json").stdout) == BREAKER
    assert weft("breakers", "show", "nope").exit_code == 3


def test_open_and_close_send_reason_and_time(api: FakeApi, weft: Any) -> None:
    api.on("POST", f"{PATH}/open", BREAKER)
    api.on("POST", f"{PATH}/close", CLOSED)
    args = ("breakers", "open", "pay.example:8443", "--for", "15m", "-r", "maintenance")
    result = weft(*args)
    assert (result.exit_code, "open" in result.stdout) == (0, True)
    assert api.last("POST").json() == {"reason": "maintenance", "for": "15m"}
    weft("breakers", "open", "pay.example:8443")
    assert api.last("POST").json() == {"reason": ""}
    assert "closed" in weft("breakers", "close", "pay.example:8443").stdout
    assert api.last("POST").path == f"{PATH}/close"
    done = weft("breakers", "close", "pay.example:8443", "--json").stdout
    assert json.loads(done) == CLOSED
