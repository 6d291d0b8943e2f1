"""`weft tenants limits`, `weft tenants egress` and `weft grants`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_fake_api import FakeApi, error

LIMITS = "/v1/tenants/acme/limits"
GRANTS = "/v1/tenants/acme/grants"
SHOWN = {
    "tenant": "acme",
    "revision": 4,
    "updatedAt": "2026-11-30T12:00:00.000Z",
    "updatedBy": "pat\x1b[2J",
    "limits": {"openExecutions": 500, "schedules": None},
    "effective": {
        "startsPerSecond": 2.5,
        "startsBurst": 10,
        "openExecutions": 500,
        "concurrentTasks": None,
        "storedDefinitions": 5000,
        "payloadBytes": None,
        "schedules": None,
    },
    "usage": {"startsLeft": 7, "openExecutions": 123, "storedDefinitions": 9, "schedules": 3},
}
VIEWER = {
    "subjects": ["eve"],
    "groups": [],
    "role": "viewer",
    "scopes": [],
    "workflows": ["billing-*"],
    "tags": {"team": "red"},
    "own": True,
    "notBefore": None,
    "notAfter": "2027-01-01T00:00:00Z",
}
TEAM = {
    **VIEWER,
    "subjects": [],
    "groups": ["ops"],
    "role": None,
    "scopes": ["workflow:operate"],
    "workflows": [],
    "tags": {},
    "own": False,
    "notAfter": None,
}


def stored(*entries: Any, revision: int = 3) -> dict[str, Any]:
    return {"tenant": "acme", "grants": list(entries), "revision": revision}


# --- limits ---------------------------------------------------------------------------------------


def test_show_tells_what_holds_and_what_is_used(api: FakeApi, weft: Any) -> None:
    api.on("GET", LIMITS, SHOWN)
    result = weft("tenants", "limits", "show", "acme")
    assert result.exit_code == 0
    lines = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.strip()}
    assert lines["startsPerSecond"] == ["startsPerSecond", "2.5", "default"]
    assert lines["startsBurst"] == ["startsBurst", "10", "7", "left", "default"]
    assert lines["openExecutions"] == ["openExecutions", "500", "123", "own"]
    assert lines["schedules"] == ["schedules", "no", "limit", "3", "own"]
    assert "set by pat" in result.stdout
    assert "\x1b" not in result.stdout
    assert json.loads(weft("tenants", "limits", "show", "acme", "--json").stdout) == SHOWN


def test_set_changes_what_is_given_and_keeps_the_rest(api: FakeApi, weft: Any) -> None:
    api.on("GET", LIMITS, SHOWN)
    api.on("PUT", LIMITS, SHOWN)
    given = ("--starts-per-second", "0.5", "--open-executions", "default", "--starts-burst", "none")
    assert weft("tenants", "limits", "set", "acme", *given).exit_code == 0
    sent = api.last("PUT")
    assert sent.json() == {"schedules": None, "startsPerSecond": 0.5, "startsBurst": None}
    assert sent.headers["If-Match"] == '"4"'


@pytest.mark.parametrize(
    "args",
    [(), ("--schedules", "many"), ("--starts-per-second", "nan"), ("--schedules", "1e999")],
)
def test_set_without_a_number_sends_nothing(api: FakeApi, weft: Any, args: Any) -> None:
    assert weft("tenants", "limits", "set", "acme", *args).exit_code == 2
    assert api.requests == []


def test_who_may_not_is_told(api: FakeApi, weft: Any) -> None:
    api.on("GET", LIMITS, SHOWN)
    api.on("PUT", LIMITS, error("FORBIDDEN", "not allowed"), status=403)
    result = weft("tenants", "limits", "set", "acme", "--schedules", "4")
    assert (result.exit_code, "FORBIDDEN" in result.stderr) == (2, True)
    assert weft("tenants", "limits", "show", "other").exit_code == 3


def test_a_start_above_a_limit_is_told_and_exits_with_4(api: FakeApi, weft: Any) -> None:
    detail = {"field": "startsPerSecond", "message": "5 allowed, now 5", "code": "LIMIT_EXCEEDED"}
    said = "the tenant's limit startsPerSecond (5) is reached; try again in 2 s"
    answer = error("LIMIT_EXCEEDED", said, [detail])
    api.on("POST", "/v1/workflows/flow/start", answer, status=429)
    result = weft("start", "flow")
    assert result.exit_code == 4
    for part in ("LIMIT_EXCEEDED", "startsPerSecond", "try again in 2 s", "5 allowed"):
        assert part in result.stderr


# --- egress ---------------------------------------------------------------------------------------

EGRESS = "/v1/tenants/acme/egress"
LISTS = {"tenant": "acme", "revision": 2, "updatedAt": "2026-11-30T12:00:00.000Z"} | {
    "updatedBy": "pat\x1b[2J",
    "onlyHosts": ["api.example.com", "*.example.org"],
    "networks": ["10.1.0.0/16"],
}


def test_egress_is_shown(api: FakeApi, weft: Any) -> None:
    api.on("GET", EGRESS, LISTS)
    said = weft("tenants", "egress", "show", "acme").stdout
    for part in ("api.example.com, *.example.org", "10.1.0.0/16", "set by pat"):
        assert part in said
    assert "\x1b" not in said
    api.on("GET", EGRESS, {**LISTS, "onlyHosts": None, "networks": [], "updatedAt": None})
    lines = [line.split() for line in weft("tenants", "egress", "show", "acme").stdout.splitlines()]
    assert ["onlyHosts", "any"] in lines
    assert ["networks", "none"] in lines
    assert json.loads(weft("tenants", "egress", "show", "acme", "--json").stdout)["revision"] == 2


@pytest.mark.parametrize(
    ("args", "body"),
    [
        (
            ("--only-hosts", "a.example, b.example"),
            {"onlyHosts": ["a.example", "b.example"], "networks": ["10.1.0.0/16"]},
        ),
        (("--only-hosts", "any"), {"networks": ["10.1.0.0/16"]}),
        (("--only-hosts", "none", "--networks", "none"), {"onlyHosts": [], "networks": []}),
        (
            ("--networks", "fd00::/8"),
            {"onlyHosts": ["api.example.com", "*.example.org"], "networks": ["fd00::/8"]},
        ),
    ],
)
def test_egress_set_replaces_what_is_given(
    api: FakeApi, weft: Any, args: Any, body: dict[str, Any]
) -> None:
    api.on("GET", EGRESS, LISTS)
    api.on("PUT", EGRESS, LISTS)
    assert weft("tenants", "egress", "set", "acme", *args).exit_code == 0
    assert api.last("PUT").json() == body
    assert api.last("PUT").headers["If-Match"] == '"2"'


def test_egress_set_without_a_list_sends_nothing(api: FakeApi, weft: Any) -> None:
    assert weft("tenants", "egress", "set", "acme").exit_code == 2
    assert api.requests == []


# --- grants ---------------------------------------------------------------------------------------


def test_list_numbers_them(api: FakeApi, weft: Any) -> None:
    api.on("GET", GRANTS, stored(VIEWER, TEAM))
    result = weft("grants", "list", "acme")
    assert result.exit_code == 0
    first, second = [line for line in result.stdout.splitlines() if line.strip()[:1] in "12"]
    for part in ("eve", "viewer", "billing-*", "team=red", "own", "until 2027"):
        assert part in first
    for part in ("2", "group ops", "workflow:operate"):
        assert part in second
    api.on("GET", GRANTS, stored())
    assert "only those of tokens" in weft("grants", "list", "acme").stdout


def test_add_puts_one_behind_the_others(api: FakeApi, weft: Any) -> None:
    api.on("GET", GRANTS, stored(TEAM))
    api.on("PUT", GRANTS, stored(TEAM, VIEWER))
    args = ("--subject", "eve", "--role", "viewer", "--workflow", "billing-*", "--tag", "team=red")
    more = ("--own", "--until", "2027-01-01T00:00:00Z")
    assert weft("grants", "add", "acme", *args, *more).exit_code == 0
    sent = api.last("PUT")
    assert sent.headers["If-Match"] == '"3"'
    assert sent.json()["grants"] == [
        TEAM,
        {
            "subjects": ["eve"],
            "role": "viewer",
            "workflows": ["billing-*"],
            "tags": {"team": "red"},
            "own": True,
            "notAfter": "2027-01-01T00:00:00Z",
        },
    ]


def test_remove_takes_the_one_with_that_number(api: FakeApi, weft: Any) -> None:
    api.on("GET", GRANTS, stored(VIEWER, TEAM))
    api.on("PUT", GRANTS, stored(TEAM))
    assert weft("grants", "remove", "acme", "1").exit_code == 0
    assert api.last("PUT").json() == {"grants": [TEAM]}
    result = weft("grants", "remove", "acme", "3")
    assert (result.exit_code, "has 2" in result.stderr) == (2, True)


def test_set_replaces_all_by_those_of_a_file(api: FakeApi, weft: Any, tmp_path: Path) -> None:
    file = tmp_path / "grants.json"
    file.write_text(json.dumps(stored(TEAM)))
    api.on("GET", GRANTS, stored(VIEWER, revision=8))
    api.on("PUT", GRANTS, stored(TEAM))
    assert weft("grants", "set", "acme", str(file)).exit_code == 0
    assert api.last("PUT").json() == {"grants": [TEAM]}
    assert api.last("PUT").headers["If-Match"] == '"8"'
    assert weft("grants", "set", "acme", "-", input="[]").exit_code == 2


# --- damaged --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "path", "body"),
    [
        (
            ("tenants", "limits", "set", "acme", "--schedules", "4", "--open-executions", "none"),
            LIMITS,
            {"schedules": 4, "openExecutions": None},
        ),
        (
            ("tenants", "egress", "set", "acme", "--only-hosts", "a.example", "--networks", "none"),
            EGRESS,
            {"onlyHosts": ["a.example"], "networks": []},
        ),
        (("grants", "set", "acme", "-"), GRANTS, {"grants": [TEAM]}),
    ],
)
def test_what_cannot_be_read_is_replaced_unread(
    api: FakeApi, weft: Any, command: Any, path: str, body: Any
) -> None:
    said = "the stored things of tenant 'acme' cannot be read; `set --replace`"
    api.on("GET", path, error("UNAVAILABLE", said), status=503)
    api.on("PUT", path, {LIMITS: SHOWN, EGRESS: LISTS, GRANTS: stored(TEAM)}[path])
    given = json.dumps(stored(TEAM))
    refused = weft(*command, input=given)
    assert (refused.exit_code, "--replace" in refused.stderr) == (4, True)
    assert weft(*command, "--replace", input=given).exit_code == 0
    assert api.last("PUT").json() == body
    assert api.last("PUT").headers["If-Match"] == "*"


def test_an_egress_list_that_is_not_named_is_not_opened_unread(api: FakeApi, weft: Any) -> None:
    result = weft("tenants", "egress", "set", "acme", "--networks", "none", "--replace")
    assert (result.exit_code, "name both" in result.stderr) == (2, True)
    assert api.requests == []
