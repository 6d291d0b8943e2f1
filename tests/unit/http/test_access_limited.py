"""Grants for some workflows, tags, or own executions; stored grants."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from access_support import ACME, SCHEDULE, TRIGGER, Place, person, place

from orchestrator.domain.authz import Principal
from orchestrator.domain.grant_model import GrantsModel
from orchestrator.engine import grants, tenant_docs
from orchestrator.engine.remembered import REMEMBERED_MS
from orchestrator.functions import http_operations
from orchestrator.ports import Unavailable
from tests.support.definitions import flow, task

GRANTS = f"/v1/tenants/{ACME}/grants"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Place]:
    made = await place(tmp_path)
    yield made
    await made.world.close()


@pytest.fixture
async def orders(here: Place) -> str:
    """An execution of the other workflow, which has failed."""
    id = await here.start("orders", "own", team="red")
    await here.world.run_until_quiet()
    await here.project()
    return id


def names(got: Any, field: str = "workflow") -> set[str]:
    assert got.status == 200, got.body
    return {item[field] for item in got.json()["items"]}


# --- by workflow ----------------------------------------------------------------------------------


async def test_what_no_pattern_covers_is_not_there(here: Place, orders: str) -> None:
    asked = [
        ("GET", "/v1/workflows/orders", None),
        ("GET", "/v1/workflows/orders/versions/1", None),
        ("DELETE", "/v1/workflows/orders", None),
        ("POST", "/v1/workflows/orders/start", {}),
        ("GET", f"/v1/executions/{orders}", None),
        ("GET", f"/v1/executions/{orders}/history", None),
        ("POST", f"/v1/executions/{orders}/cancel", {}),
        ("POST", f"/v1/executions/{orders}/signals", {"name": "x"}),
    ]
    letters = (await here.ask("root", "GET", "/v1/deadletters?workflow=orders")).json()["items"]
    asked += [("GET", f"/v1/deadletters/{one['id']}", None) for one in letters]
    asked += [("POST", f"/v1/deadletters/{one['id']}/retry", {}) for one in letters]
    for method, url, body in asked:
        got = await here.ask("billing", method, url, json=body)
        assert got.status == 404, (method, url, got.body)
    got = await here.ask("billing", "GET", f"/v1/executions/{orders}")
    missing = await here.ask("billing", "GET", "/v1/executions/missing-x")
    assert got.error["message"].replace(orders, "missing-x") == missing.error["message"]


async def test_what_a_pattern_covers_is_served(here: Place, orders: str) -> None:
    for name in ("get_execution", "list_tasks", "get_deadletter", "get_schedule", "get_trigger"):
        (route,) = (one for one in http_operations.operations() if one.name == name)
        assert (await here.route("billing", route)).status == 200, name


async def test_lists_show_what_a_pattern_covers(here: Place, orders: str) -> None:
    await here.ask(
        "root", "POST", "/v1/schedules", json={**SCHEDULE, "name": "o", "workflow": "orders"}
    )
    await here.ask("root", "PUT", "/v1/triggers/o", json={**TRIGGER, "workflow": "orders"})
    for path in ("executions", "deadletters", "schedules", "triggers"):
        assert names(await here.ask("root", "GET", f"/v1/{path}")) == {"billing-run", "orders"}
        assert names(await here.ask("reader", "GET", f"/v1/{path}")) == {"billing-run"}, path
        assert names(await here.ask("reader", "GET", f"/v1/{path}?limit=1")) <= {"billing-run"}
    assert names(await here.ask("reader", "GET", "/v1/workflows"), "name") == {"billing-run"}
    assert names(await here.ask("reader", "GET", "/v1/executions?workflow=orders")) == set()


async def test_readable_but_not_operable_is_403(here: Place) -> None:
    got = await here.ask("reader", "POST", f"/v1/executions/{here.ids['id']}/cancel", json={})
    assert (got.status, got.error["code"]) == (403, "FORBIDDEN")


async def test_things_of_the_tenant_itself_need_a_grant_for_all_of_it(here: Place) -> None:
    for method, url in (
        ("GET", "/v1/breakers"),
        ("POST", "/v1/breakers/pay.example/close"),
        ("GET", GRANTS),
        ("POST", "/v1/events"),
    ):
        got = await here.ask("billing", method, url)
        assert (got.status, got.error["code"]) == (403, "FORBIDDEN"), url
        assert "for all" in got.error["message"]


async def test_a_body_cannot_name_what_the_caller_may_not(here: Place) -> None:
    ask = here.ask
    other = {"workflow": "orders"}
    for method, url, body in (
        ("POST", "/v1/workflows", flow("orders", a=task("noop"))),
        ("POST", "/v1/schedules", {"name": "x", **SCHEDULE, **other}),
        ("PUT", "/v1/schedules/s", {**SCHEDULE, **other}),
        ("POST", "/v1/triggers", {"name": "x", **TRIGGER, **other}),
        ("PUT", "/v1/triggers/x", {**TRIGGER, **other}),
        ("PUT", "/v1/triggers/t", {**TRIGGER, **other}),
    ):
        got = await ask("billing", method, url, json=body)
        assert (got.status, got.error["code"]) == (403, "FORBIDDEN"), (method, url)
    assert (await ask("billing", "PUT", "/v1/schedules/s", json=SCHEDULE)).status == 200
    assert (await ask("billing", "PUT", "/v1/triggers/new", json=TRIGGER)).status == 201


async def test_a_child_workflow_is_no_way_around(here: Place) -> None:
    child = {"type": "workflow", "workflow": "orders"}
    nested = {"type": "map", "items": "${input}", "do": child}
    code = {"type": "durable", "orchestration": "orders"}
    for tasks in ({"a": child}, {"a": nested}, {"a": code}):
        source = {"name": "billing-x", "tasks": tasks}
        got = await here.ask("billing", "POST", "/v1/workflows?dryRun=true", json=source)
        assert (got.status, got.error["code"]) == (403, "FORBIDDEN")
        assert "orders" in got.error["message"]
    own = {"name": "billing-x", "tasks": {"a": {**child, "workflow": "billing-run"}}}
    assert (await here.ask("billing", "POST", "/v1/workflows", json=own)).status == 201


async def test_a_bulk_action_names_what_it_is_about(here: Place, orders: str) -> None:
    def body(**filter: str) -> Any:
        return {"action": "discard", "filter": filter, "reason": "x"}

    for filter in ({}, {"errorType": "ValueError"}, {"workflow": "orders"}):
        got = await here.ask("billing", "POST", "/v1/deadletters/bulk", json=body(**filter))
        assert (got.status, got.error["code"]) == (403, "FORBIDDEN"), filter
    url = "/v1/deadletters/bulk"
    assert (await here.ask("billing", "POST", url, json=body(execution=orders))).status == 404
    got = await here.ask("billing", "POST", url, json=body(workflow="billing-run"))
    assert got.json()["done"] == 1
    got = await here.ask("root", "GET", "/v1/deadletters?status=OPEN")
    assert names(got) == {"orders"}


# --- by tag, and own ------------------------------------------------------------------------------


async def test_tags_decide_about_executions_and_their_letters(here: Place, orders: str) -> None:
    blue = here.ids["id"]
    assert (await here.ask("red", "GET", f"/v1/executions/{orders}")).status == 200
    assert (await here.ask("red", "GET", f"/v1/executions/{blue}")).status == 404
    for path in ("executions", "deadletters"):
        assert names(await here.ask("red", "GET", f"/v1/{path}")) == {"orders"}
    assert (await here.ask("red", "GET", f"/v1/deadletters/{here.ids['letterId']}")).status == 404
    assert (await here.ask("red", "GET", "/v1/workflows/orders")).status == 404


async def test_own_executions_are_those_that_the_subject_started(here: Place, orders: str) -> None:
    theirs = here.ids["id"]
    assert (await here.ask("own", "GET", f"/v1/executions/{orders}")).status == 200
    assert (await here.ask("own", "GET", f"/v1/executions/{theirs}")).status == 404
    assert (await here.ask("own", "POST", f"/v1/executions/{theirs}/cancel", json={})).status == 404
    assert names(await here.ask("own", "GET", "/v1/executions"), "startedBy") == {"own"}
    assert names(await here.ask("own", "GET", "/v1/executions?owner=eve")) == set()
    assert names(await here.ask("own", "GET", "/v1/deadletters")) == {"orders"}
    started = await here.ask("own", "POST", "/v1/workflows/billing-run/start", json={})
    assert started.status == 202
    assert (await here.ask("own", "GET", started.headers["location"])).status == 200


# --- stored grants --------------------------------------------------------------------------------

BOB = Principal(subject="bob", tenants=(ACME,), groups=frozenset({"team"}))


async def write(here: Place, *entries: dict[str, Any], **headers: str) -> Any:
    body = {"grants": list(entries)}
    return await here.ask("root", "PUT", GRANTS, json=body, headers=headers)


@pytest.fixture
def bob(here: Place) -> str:
    doors: Any = here.world.engine.authenticator
    doors.people["bob"] = BOB
    doors.people["bob-beta"] = person(tenant="beta", subject="bob")
    return "bob"


async def test_a_stored_grant_adds_to_the_token(here: Place, bob: str) -> None:
    url = f"/v1/executions/{here.ids['id']}"
    assert (await here.ask(bob, "GET", url)).status == 403
    grant = {"subjects": ["bob"], "role": "viewer", "workflows": ["billing-*"]}
    got = await write(here, grant)
    assert (got.status, got.headers["etag"], got.json()["revision"]) == (200, '"1"', 1)
    assert got.json()["grants"][0]["workflows"] == ["billing-*"]
    assert (await here.ask(bob, "GET", url)).status == 200
    assert (await here.ask(bob, "GET", "/v1/workflows/orders")).status == 404
    assert (await here.ask("bob-beta", "GET", url)).status == 403
    assert (await here.ask("root", "GET", GRANTS)).json()["updatedBy"] == "root"


@pytest.mark.parametrize(
    ("grant", "expected"),
    [
        ({"groups": ["team"], "scopes": ["workflow:read"]}, 200),
        ({"subjects": ["*"], "role": "admin"}, 200),
        ({"groups": ["teams"], "role": "admin"}, 403),
        ({"subjects": ["bo*"], "role": "admin"}, 403),
        ({"subjects": ["bob"], "scopes": ["workflow:write"]}, 403),
        ({"subjects": ["bob"], "role": "viewer", "notBefore": "2999-01-01T00:00:00Z"}, 403),
        ({"subjects": ["bob"], "role": "viewer", "notAfter": "2001-01-01T00:00:00Z"}, 403),
        ({"subjects": ["bob"], "role": "viewer", "notBefore": "2001-01-01T00:00:00+02:00"}, 200),
    ],
)
async def test_whom_a_stored_grant_is_for(
    here: Place, bob: str, grant: dict[str, Any], expected: int
) -> None:
    assert (await write(here, grant)).status == 200
    assert (await here.ask(bob, "GET", "/v1/workflows")).status == expected


async def test_a_grant_that_was_taken_away_holds_a_second_at_most(here: Place, bob: str) -> None:
    await write(here, {"subjects": ["bob"], "role": "viewer"})
    other = here.world.another("other")  # a process that did not write them itself
    assert (await here.ask(bob, "GET", "/v1/workflows")).status == 200
    await grants.put(other, ACME, GrantsModel(grants=[]), if_match=None, by="x")
    here.world.clock.jump(REMEMBERED_MS - 1)
    assert (await here.ask(bob, "GET", "/v1/workflows")).status == 200
    here.world.clock.jump(1)
    assert (await here.ask(bob, "GET", "/v1/workflows")).status == 403
    await other.close()


async def test_two_administrators_do_not_undo_each_other(here: Place) -> None:
    grant = {"subjects": ["bob"], "role": "viewer"}
    first = await write(here, grant, **{"If-Match": '"0"'})
    assert first.status == 200
    stale = await write(here, **{"If-Match": '"0"'})
    assert (stale.status, stale.error["code"]) == (412, "PRECONDITION_FAILED")
    again = await write(here, grant)
    assert again.json()["revision"] == 1  # the same content changes nothing
    assert (await write(here, **{"If-Match": '"1"'})).json()["grants"] == []


@pytest.mark.parametrize(
    ("grant", "field"),
    [
        ({"role": "viewer"}, "$.grants[0]"),
        ({"subjects": ["bob"]}, "$.grants[0]"),
        ({"subjects": ["bob"], "role": "viewer", "scopes": ["workflow:read"]}, "$.grants[0]"),
        ({"subjects": ["bob"], "role": "owner"}, "$.grants[0].role"),
        ({"subjects": ["bob"], "scopes": ["workflow:all"]}, "$.grants[0].scopes[0]"),
        ({"subjects": ["bob"], "role": "viewer", "workflows": ["A[b]"]}, "$.grants[0].workflows"),
        ({"subjects": ["a\nb"], "role": "viewer"}, "$.grants[0].subjects[0]"),
        ({"subjects": ["bob"], "role": "viewer", "notAfter": "2027-01-01"}, "$.grants[0].notAfter"),
        ({"subjects": ["bob"], "rolle": "viewer"}, "$.grants[0].rolle"),
    ],
)
async def test_a_grant_that_says_nothing_or_too_much(
    here: Place, grant: dict[str, Any], field: str
) -> None:
    got = await write(here, grant)
    assert got.status == 422
    assert field in {detail["field"] for detail in got.error["details"]}


async def test_while_grants_cannot_be_read_nothing_is_allowed(
    here: Place, bob: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*args: Any) -> Any:
        raise Unavailable("gone")

    monkeypatch.setattr(tenant_docs, "find", away)
    assert (await here.ask(bob, "GET", "/v1/workflows")).status == 503
    assert (await here.ask("root", "GET", "/v1/workflows")).status == 200  # the token says enough


async def test_a_token_with_enough_costs_no_read(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(*args: Any) -> Any:
        raise AssertionError("read")

    monkeypatch.setattr(here.world.engine.store, "read_many", read)
    assert (await here.ask("root", "GET", "/v1/workflows")).status == 200


async def test_no_subject_in_the_log_of_a_refusal(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        await here.ask("nobody", "GET", "/v1/workflows")
        await here.ask("", "GET", "/v1/workflows")
    assert "nobody" not in caplog.text
