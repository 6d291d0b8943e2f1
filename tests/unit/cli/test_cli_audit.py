"""`weft audit`."""

from __future__ import annotations

import json
from typing import Any

from cli_fake_api import FakeApi

RECORD = {
    "n": 7,
    "at": "2026-11-30T12:00:00.000Z",
    "action": "schedule.pause",
    "resource": "schedule:nightly",
    "by": "eve\x1b[2J",
    "reason": "maintenance",
    "execution": "",
    "task": "",
    "details": {},
    "origin": None,
    "hash": "a" * 64,
    "prev": "b" * 64,
}
PART = {
    "ok": True,
    "checked": 5000,
    "first": 3,
    "last": 5002,
    "head": 5004,
    "headHash": "c" * 64,
    "finding": None,
    "next": 5003,
}
LAST = {**PART, "checked": 2, "first": 5003, "last": 5004, "next": None}
BROKEN = {
    **LAST,
    "ok": False,
    "finding": {"n": 5004, "fault": "ALTERED", "message": "the content does not have its hash"},
}


def test_list_shows_who_did_what_and_passes_the_filters(api: FakeApi, weft: Any) -> None:
    api.on("GET", "/v1/audit", {"items": [RECORD], "nextCursor": None})
    result = weft("audit", "list", "--by", "eve", "--from", "2026-11-30T00:00:00Z", "--limit", "5")
    assert result.exit_code == 0
    for part in ("7", "schedule.pause", "schedule:nightly", "maintenance", "12:00:00"):
        assert part in result.stdout
    assert "\x1b" not in result.stdout
    asked = api.last("GET").query
    assert asked == {"by": "eve", "from": "2026-11-30T00:00:00Z", "limit": "5"}
    assert json.loads(weft("audit", "list", "--json").stdout)["items"] == [RECORD]
    api.on("GET", "/v1/audit", {"items": [], "nextCursor": None})
    assert "No records" in weft("audit", "list").stdout


def test_verify_goes_on_until_the_end(api: FakeApi, weft: Any) -> None:
    api.on("GET", "/v1/audit/verify", PART, LAST)
    result = weft("audit", "verify", "--known", "4:" + "d" * 64)
    assert result.exit_code == 0
    for part in ("5002 records", "before 3 have expired", "5004:" + "c" * 64):
        assert part in result.stdout.replace("\n", "")
    assert api.last("GET").query == {"from": "5003", "limit": "5000", "known": "4:" + "d" * 64}


def test_verify_names_the_first_bad_record_and_exits_with_1(api: FakeApi, weft: Any) -> None:
    api.on("GET", "/v1/audit/verify", BROKEN)
    result = weft("audit", "verify")
    assert result.exit_code == 1
    assert "broken at record 5004" in result.stdout
    assert "ALTERED" in result.stdout
    result = weft("audit", "verify", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, BROKEN)


def test_verify_of_nothing_is_whole(api: FakeApi, weft: Any) -> None:
    nothing = {**LAST, "checked": 0, "first": None, "last": None, "head": 0, "headHash": ""}
    api.on("GET", "/v1/audit/verify", nothing)
    result = weft("audit", "verify")
    assert (result.exit_code, "no records" in result.stdout) == (0, True)
