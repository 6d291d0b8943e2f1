"""`weft schedules`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cli_fake_api import FakeApi, error

FIRE = {"at": "2027-01-16T08:00:00.000Z", "local": "2027-01-16T09:00:00+01:00"}
LAST = {
    "n": 7,
    "at": "2027-01-15T08:00:01.000Z",
    "outcome": "refused",
    "tick": "2027-01-15T08:00:00.000Z",
    "count": 1,
    "execution": None,
    "code": "WORKFLOW_ARCHIVED",
    "message": "archived\x1b[2J",
    "by": None,
}
SCHEDULE: dict[str, Any] = {
    "name": "nightly",
    "workflow": "report",
    "status": "ACTIVE",
    "revision": 3,
    "nextAt": FIRE["at"],
    "waiting": 2,
    "last": LAST,
    "definition": {"name": "nightly", "workflow": "report", "cron": "0 9 * * *", "input": {"n": 1}},
    "next": [{**FIRE, "dueAt": FIRE["at"]}],
    "counts": {"started": 5, "missed": 2},
}
PATH = "/v1/schedules/nightly"


def test_list_and_history_show_what_happened(api: FakeApi, weft: Any) -> None:
    api.on("GET", "/v1/schedules", {"items": [SCHEDULE], "nextCursor": None})
    text = weft("schedules", "list").stdout
    for part in ("nightly", "report", "ACTIVE", "2027-01-16 08:00:00", "refused"):
        assert part in text
    api.on("GET", f"{PATH}/history", {"items": [LAST], "nextCursor": None})
    text = weft("schedules", "history", "nightly").stdout
    assert "WORKFLOW_ARCHIVED" in text
    assert "\x1b" not in text
    api.on("GET", "/v1/schedules", {"items": [], "nextCursor": None})
    assert weft("schedules", "list").stdout == "No schedules.\n"


def test_show_has_definition_counts_and_next_times(api: FakeApi, weft: Any) -> None:
    api.on("GET", PATH, SCHEDULE)
    text = weft("schedules", "show", "nightly").stdout
    for part in ("0 9 * * *", '{"n": 1}', "5 started, 2 missed", "2 ticks", FIRE["local"]):
        assert part in text
    assert json.loads(weft("schedules", "show", "nightly", "--json").stdout) == SCHEDULE
    assert weft("schedules", "show", "nope").exit_code == 3
    api.on("GET", PATH, {**SCHEDULE, "next": []})
    assert "It fires no more." in weft("schedules", "show", "nightly").stdout


def test_create_and_update_send_the_file_as_it_is(api: FakeApi, weft: Any, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_bytes(b"name: nightly # a comment\n")
    api.on("POST", "/v1/schedules", SCHEDULE, status=201)
    assert weft("schedules", "create", str(file)).exit_code == 0
    seen = api.last("POST")
    assert (seen.body, seen.headers["Content-Type"]) == (file.read_bytes(), "application/yaml")
    api.on("PUT", PATH, SCHEDULE)
    assert weft("schedules", "update", "nightly", str(file), "--revision", "3").exit_code == 0
    assert api.last("PUT").headers["If-Match"] == '"3"'
    api.on("PUT", PATH, (412, error("PRECONDITION_FAILED", "it has revision 4")))
    result = weft("schedules", "update", "nightly", "-", input='{"name": "nightly"}')
    assert (result.exit_code, "If-Match" in api.last("PUT").headers) == (2, False)
    assert "revision 4" in result.stderr


def test_pause_resume_run_and_delete(api: FakeApi, weft: Any) -> None:
    api.on("POST", f"{PATH}/pause", {**SCHEDULE, "status": "PAUSED"})
    api.on("POST", f"{PATH}/resume", SCHEDULE)
    assert "PAUSED" in weft("schedules", "pause", "nightly").stdout
    assert "ACTIVE" in weft("schedules", "resume", "nightly").stdout
    api.on("POST", f"{PATH}/run", {"id": "e1", "created": False})
    assert weft("schedules", "run", "nightly", "--key", "k").stdout == "already started e1\n"
    assert api.last("POST").headers["Idempotency-Key"] == "k"
    api.on("DELETE", PATH, (204, ""))
    assert weft("schedules", "delete", "nightly").stdout == "deleted nightly\n"
    assert json.loads(weft("schedules", "delete", "nightly", "--json").stdout)["deleted"] is True


def test_preview_needs_no_server(offline: Any) -> None:
    args = ("schedules", "preview", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "2")
    after = ("--after", "2027-03-27T12:00:00Z")
    found = json.loads(offline(*args, *after, "--json").stdout)["next"]
    assert [one["local"] for one in found] == [
        "2027-03-28T03:00:00+02:00",
        "2027-03-29T02:30:00+02:00",
    ]
    assert found[0]["at"] == "2027-03-28T01:00:00.000Z"
    assert "2027-03-28T03:00:00+02:00" in offline(*args, *after).stdout
    assert len(json.loads(offline("schedules", "preview", "@daily", "--json").stdout)["next"]) == 5


def test_preview_names_what_is_wrong(offline: Any) -> None:
    for args, told in (
        (("61 * * * *",), '"61" is not right for minute'),
        (("0 0 30 2 *",), "never fires"),
        (("@daily", "--tz", "Europe/Berln"), "Europe/Berlin"),
        (("@daily", "--after", "yesterday"), "--after"),
        (("@daily", "--after", "9999-12-31T23:59:59-23:00"), "--after"),
    ):
        result = offline("schedules", "preview", *args)
        assert result.exit_code == 2
        assert told in result.stderr
