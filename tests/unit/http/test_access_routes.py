"""Every route, with too little permission, with just enough, and from another tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from access_support import ACME, BETA, Place, place

from orchestrator.domain.authz import Scope
from orchestrator.functions import http_operations, openapi
from orchestrator.functions.http_routes import OPEN, Route, _needed

ROUTES = http_operations.operations()
GUARDED = [route for route in ROUTES if route.scope is not OPEN]


def name(route: Route) -> str:
    return route.name


def word(route: Route) -> str:
    assert isinstance(route.scope, Scope)
    return route.scope.value.removeprefix("workflow:")


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Place]:
    made = await place(tmp_path)
    yield made
    await made.world.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kept(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """One for all requests that change nothing: they are refused, or nobody needs to ask."""
    made = await place(tmp_path_factory.mktemp("kept"))
    yield made
    await made.world.close()


IN_ONE_LOOP = pytest.mark.asyncio(loop_scope="module")


def test_every_route_declares_its_scope() -> None:
    assert [route.name for route in ROUTES if route.scope is None] == []
    assert {route.name for route in ROUTES if route.scope is OPEN} == {
        *("health_report", "live", "ready", "startup", "openapi_document", "docs"),
        "allow_events",
    }


def test_only_what_changes_nothing_needs_no_more_than_read() -> None:
    reading = {route.name for route in GUARDED if route.scope is Scope.READ}
    writing = {route.name for route in GUARDED if route.method in ("PUT", "DELETE", "POST")}
    assert reading & writing == {"test_trigger"}


def test_the_description_shows_who_may_what() -> None:
    document = openapi.document(ROUTES)
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for route in ROUTES:
        operation = document["paths"][f"/{route.path}"][route.method.lower()]
        expected = [] if route.scope is OPEN else [{"bearer": [route.scope]}]
        assert operation["security"] == expected
        assert ({"401", "403"} <= set(operation["responses"])) == (route.scope is not OPEN)


@IN_ONE_LOOP
@pytest.mark.parametrize("route", GUARDED, ids=name)
async def test_nobody_is_asked_for_a_token(kept: Place, route: Route) -> None:
    got = await kept.route("", route)
    assert (got.status, got.error["code"]) == (401, "TOKEN_MISSING")
    assert got.headers["www-authenticate"] == 'Bearer realm="weft"'


@IN_ONE_LOOP
@pytest.mark.parametrize("route", [one for one in ROUTES if one.scope is OPEN], ids=name)
async def test_an_open_route_asks_nobody(kept: Place, route: Route) -> None:
    assert (await kept.route("", route)).status in (200, 204)


@IN_ONE_LOOP
@pytest.mark.parametrize("route", GUARDED, ids=name)
async def test_without_its_scope_a_route_is_403(kept: Place, route: Route) -> None:
    for who in (f"all-but-{word(route)}", "nobody"):
        got = await kept.route(who, route)
        assert (got.status, got.error["code"]) == (403, "FORBIDDEN"), who
        assert f"workflow:{word(route)}" in got.error["message"]
        assert f'scope="workflow:{word(route)}"' in got.headers["www-authenticate"]


WITH_EXECUTE = ("create_schedule", "update_schedule", "create_trigger", "put_trigger")


@pytest.mark.parametrize("route", GUARDED, ids=name)
async def test_with_its_scope_alone_a_route_is_served(here: Place, route: Route) -> None:
    got = await here.route(f"only-{word(route)}", route)
    if route.name in WITH_EXECUTE:  # what starts something needs the permission to start it
        assert (got.status, got.error["code"]) == (403, "FORBIDDEN")
        assert "workflow:execute" in got.error["message"]
        got = await here.route("all-but-admin", route)
    if route.platform == "only":  # a tenant's administrators do not set its limits
        assert (got.status, got.error["code"]) == (403, "FORBIDDEN")
        got = await here.route("platform", route)
    assert got.status < 500
    assert got.status not in (401, 403, 404), got.body


ABOUT_A_THING = [route for route in GUARDED if "{" in route.path]


@pytest.mark.parametrize("route", ABOUT_A_THING, ids=name)
async def test_another_tenants_things_are_not_there(here: Place, route: Route) -> None:
    """Lists: below."""
    got = await here.route("beta", route)
    if route.name in ("open_breaker", "close_breaker"):  # makes its own of that name
        shown = await here.ask("root", "GET", "/v1/breakers/pay.example")
        assert shown.json()["status"] == "open"
    elif route.name == "put_trigger":
        assert got.status == 422  # makes its own, of a workflow that it does not have
    else:
        assert got.status == 404


@pytest.mark.parametrize(
    "route",
    [one for one in ABOUT_A_THING if "tenantId" not in one.path and one.name != "put_trigger"],
    ids=name,
)
async def test_a_thing_of_others_answers_like_one_that_is_not(here: Place, route: Route) -> None:
    foreign = await here.route("beta", route)
    ids = dict(here.ids)
    for one in ("name", "id", "schedule", "triggerName", "dependency", "archiveId"):
        here.ids[one] = "missing-x"
    here.ids["letterId"] = "missing-x~a~1"
    missing = await here.route("beta", route)
    assert (foreign.status, foreign.error["code"] if foreign.status >= 400 else "") == (
        missing.status,
        missing.error["code"] if missing.status >= 400 else "",
    )
    here.ids = ids


async def test_lists_of_another_tenant_are_empty(here: Place) -> None:
    await here.project()
    for route in GUARDED:
        if "{" in route.path or route.method != "GET" or not route.path.startswith("v1/"):
            continue
        if route.name in ("verify_audit", "list_code_workflows"):
            continue  # no list of a tenant, see test_http_audit and test_http_code
        mine = await here.route("root", route)
        theirs = await here.route("beta", route)
        assert mine.json()["items"], route.name
        assert theirs.json()["items"] == [], route.name


# --- which tenant ---------------------------------------------------------------------------------


async def test_a_token_for_several_tenants_names_one(here: Place) -> None:
    got = await here.ask("both", "GET", "/v1/workflows")
    assert (got.status, got.error["code"]) == (400, "TENANT_REQUIRED")
    for tenant, count in ((ACME, 2), (BETA, 0)):
        got = await here.ask("both", "GET", "/v1/workflows", headers={"X-Weft-Tenant": tenant})
        assert len(got.json()["items"]) == count
    got = await here.ask("both", "DELETE", "/v1/workflows/x", headers={"X-Weft-Tenant": BETA})
    assert got.status == 403  # what was granted in acme is worth nothing in beta


async def test_a_tenant_that_the_token_is_not_for(here: Place) -> None:
    for tenant in (BETA, "missing-x", "../x"):
        got = await here.ask("root", "GET", "/v1/workflows", headers={"X-Weft-Tenant": tenant})
        assert (got.status, got.error["code"]) == (403, "TENANT_FORBIDDEN")
        assert tenant not in got.error["message"]
    got = await here.ask("stateless", "GET", "/v1/workflows")
    assert (got.status, got.error["code"]) == (403, "NO_TENANT")


async def test_the_tenant_in_the_path_is_the_one_that_is_meant(here: Place) -> None:
    got = await here.ask("both", "GET", f"/v1/tenants/{ACME}/grants")
    assert (got.status, got.json()["tenant"]) == (200, ACME)
    assert (await here.ask("both", "GET", f"/v1/tenants/{BETA}/grants")).status == 403
    for tenant in (BETA, "missing-x"):
        got = await here.ask("root", "GET", f"/v1/tenants/{tenant}/grants")
        assert (got.status, got.error["code"]) == (404, "TENANT_NOT_FOUND")


async def test_an_undeclared_route_needs_the_most() -> None:
    async def handler(call: object) -> None: ...

    route = Route(
        method="GET", path="v1/x", name="x", tag="x", summary="x", handler=handler, replies={}
    )  # type: ignore[arg-type]
    assert _needed(route) is Scope.ADMIN


async def test_who_did_it_is_the_subject_of_the_token(here: Place) -> None:
    got = await here.ask("only-execute", "POST", "/v1/workflows/orders/start", json={})
    shown = await here.ask("root", "GET", got.headers["location"])
    assert shown.json()["startedBy"] == "eve"
