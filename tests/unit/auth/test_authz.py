"""The one decision about permissions: as a table, and what holds for all of its cells."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.authz import (
    ALL_SCOPES,
    ALLOW,
    HIDDEN,
    ROLES,
    Deny,
    Grant,
    Narrowing,
    Principal,
    Reach,
    Resource,
    Scope,
    decide,
    narrowing,
)

READ, WRITE, EXECUTE = Scope.READ, Scope.WRITE, Scope.EXECUTE
OPERATE, ADMIN = Scope.OPERATE, Scope.ADMIN
NOW = 1_000_000


def grant(*scopes: Scope, tenant: str = "acme", **more: Any) -> Grant:
    return Grant(tenant=tenant, scopes=frozenset(scopes), **more)


def one(workflow: str | None = "billing-run", tenant: str = "acme", **more: Any) -> Resource:
    return Resource(tenant=tenant, workflow=workflow, **more)


SOME = Resource(tenant="acme", reach=Reach.SOME)
WHOLE = Resource(tenant="acme", reach=Reach.WHOLE)
EVE = Principal(subject="eve", tenants=("acme", "beta"))
BILLING = ("billing-*",)
MINE, THEIRS = {"owner": "eve"}, {"owner": "bob"}
RED = {"tags": {"team": "red", "x": "1"}}
ALLOWED, DENIED, GONE = "allow", "deny", "hidden"

TABLE: list[tuple[str, Scope, Resource, list[Grant], str]] = [
    ("nothing granted", READ, SOME, [], DENIED),
    ("nothing granted, one", READ, one(), [], GONE),
    ("scope held", READ, one(), [grant(READ)], ALLOWED),
    ("scope held, of the tenant itself", ADMIN, WHOLE, [grant(ADMIN)], ALLOWED),
    ("another scope held", OPERATE, one(), [grant(READ)], DENIED),
    ("another scope held, not read", OPERATE, one(), [grant(EXECUTE)], GONE),
    ("admin is not read", READ, one(), [grant(ADMIN)], GONE),
    ("write is not execute", EXECUTE, one(), [grant(READ, WRITE)], DENIED),
    ("two grants add up", OPERATE, one(), [grant(READ), grant(OPERATE)], ALLOWED),
    ("granted in another tenant", READ, one(), [grant(READ, tenant="beta")], GONE),
    ("a foreign tenant's grant is no way in", READ, one(tenant="evil"),
     [grant(READ, tenant="evil")], GONE),
    ("foreign tenant, all scopes", READ, one(tenant="evil"), [grant(*ALL_SCOPES)], GONE),
    ("foreign tenant, some", READ, Resource(tenant="evil", reach=Reach.SOME),
     [grant(READ)], GONE),
    ("foreign tenant, whole", ADMIN, Resource(tenant="evil", reach=Reach.WHOLE),
     [grant(ADMIN)], GONE),
    ("pattern fits", READ, one(), [grant(READ, workflows=BILLING)], ALLOWED),
    ("pattern does not fit", READ, one("orders"), [grant(READ, workflows=BILLING)], GONE),
    ("exact name", READ, one(), [grant(READ, workflows=("billing-run",))], ALLOWED),
    ("a pattern is no prefix", READ, one("billing-run2"),
     [grant(READ, workflows=("billing-run",))], GONE),
    ("second pattern fits", READ, one("orders"),
     [grant(READ, workflows=("billing-*", "orders"))], ALLOWED),
    ("any pattern is no restriction", ADMIN, WHOLE, [grant(ADMIN, workflows=("*",))], ALLOWED),
    ("pattern, asked for some", READ, SOME, [grant(READ, workflows=BILLING)], ALLOWED),
    ("pattern, asked for the whole", READ, WHOLE, [grant(READ, workflows=BILLING)], DENIED),
    ("pattern, of no workflow", READ, one(None), [grant(READ, workflows=BILLING)], GONE),
    ("no restriction, of no workflow", READ, one(None), [grant(READ)], ALLOWED),
    ("may read all, may operate some: this one", OPERATE, one(),
     [grant(READ), grant(OPERATE, workflows=BILLING)], ALLOWED),
    ("may read all, may operate some: another", OPERATE, one("orders"),
     [grant(READ), grant(OPERATE, workflows=BILLING)], DENIED),
    ("may operate all, may read some: another", OPERATE, one("orders"),
     [grant(OPERATE), grant(READ, workflows=BILLING)], ALLOWED),
    ("tag fits", READ, one(**RED), [grant(READ, tags=(("team", "red"),))], ALLOWED),
    ("tag differs", READ, one(**RED), [grant(READ, tags=(("team", "blue"),))], GONE),
    ("one of two tags", READ, one(**RED),
     [grant(READ, tags=(("team", "red"), ("y", "1")))], GONE),
    ("no tags at all", READ, one(), [grant(READ, tags=(("team", "red"),))], GONE),
    ("tag and pattern, both fit", READ, one(**RED),
     [grant(READ, tags=(("team", "red"),), workflows=BILLING)], ALLOWED),
    ("tag fits, pattern not", READ, one("orders", **RED),
     [grant(READ, tags=(("team", "red"),), workflows=BILLING)], GONE),
    ("own", OPERATE, one(**MINE), [grant(OPERATE, own=True)], ALLOWED),
    ("own, somebody else's", OPERATE, one(**THEIRS), [grant(OPERATE, own=True)], GONE),
    ("own, somebody else's, readable", OPERATE, one(**THEIRS),
     [grant(READ), grant(OPERATE, own=True)], DENIED),
    ("own, nobody's", READ, one(), [grant(READ, own=True)], GONE),
    ("own, of the tenant itself", READ, WHOLE, [grant(READ, own=True)], DENIED),
    ("not yet", READ, SOME, [grant(READ, not_before=NOW + 1)], DENIED),
    ("just now", READ, SOME, [grant(READ, not_before=NOW)], ALLOWED),
    ("until now", READ, SOME, [grant(READ, not_after=NOW)], DENIED),
    ("a moment left", READ, SOME, [grant(READ, not_after=NOW + 1)], ALLOWED),
    ("over for one", READ, one(), [grant(READ, not_after=NOW)], GONE),
]  # fmt: skip


def kind(decision: object) -> str:
    return type(decision).__name__.lower()


@pytest.mark.parametrize(
    ("action", "resource", "grants", "expected"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
def test_table_of_decisions(
    action: Scope, resource: Resource, grants: list[Grant], expected: str
) -> None:
    assert kind(decide(EVE, action, resource, grants, NOW)) == expected


@pytest.mark.parametrize("action", list(Scope))
@pytest.mark.parametrize("role", list(ROLES))
def test_roles_bundle_scopes(role: str, action: Scope) -> None:
    expected = {
        "viewer": {READ},
        "executor": {READ, EXECUTE},
        "developer": {READ, WRITE, EXECUTE},
        "operator": {READ, EXECUTE, OPERATE},
        "admin": {READ, WRITE, EXECUTE, OPERATE, ADMIN},
    }[role]
    found = decide(EVE, action, SOME, [grant(*ROLES[role])], NOW)
    assert (found == ALLOW) == (action in expected)


def test_a_refusal_names_the_scope_that_is_missing() -> None:
    found = decide(EVE, OPERATE, one(), [grant(READ)], NOW)
    assert isinstance(found, Deny)
    assert found.scope is OPERATE
    assert "workflow:operate" in found.reason


def test_what_a_program_was_lent_limits_every_grant() -> None:
    lent = Principal(subject="eve", tenants=("acme",), limit=frozenset({READ}))
    held = [grant(*ALL_SCOPES)]
    assert decide(lent, READ, one(), held, NOW) == ALLOW
    found = decide(lent, OPERATE, one(), held, NOW)
    assert isinstance(found, Deny)
    assert "token" in found.reason


# --- properties -----------------------------------------------------------------------------------

names = st.sampled_from(["billing-run", "orders", "a"])
tenants = st.sampled_from(["acme", "beta", "evil"])
tags = st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2)
times = st.none() | st.integers(NOW - 2, NOW + 2)
grants_ = st.lists(
    st.builds(
        Grant,
        tenant=tenants,
        scopes=st.frozensets(st.sampled_from(Scope)),
        workflows=st.lists(names | st.just("b*") | st.just("*"), max_size=2).map(tuple),
        tags=tags.map(lambda found: tuple(found.items())),
        own=st.booleans(),
        not_before=times,
        not_after=times,
    ),
    max_size=4,
)
resources = st.builds(
    Resource,
    tenant=tenants,
    reach=st.sampled_from(Reach),
    workflow=names | st.none(),
    tags=tags,
    owner=st.sampled_from(["eve", "bob", None]),
)
scopes = st.sampled_from(Scope)


@given(scopes, resources, grants_, grants_)
def test_more_grants_never_allow_less(
    action: Scope, resource: Resource, some: list[Grant], more: list[Grant]
) -> None:
    if decide(EVE, action, resource, some, NOW) == ALLOW:
        assert decide(EVE, action, resource, some + more, NOW) == ALLOW


@given(scopes, resources, grants_)
def test_nothing_of_a_foreign_tenant_is_ever_known(
    action: Scope, resource: Resource, held: list[Grant]
) -> None:
    if resource.tenant not in EVE.tenants:
        assert decide(EVE, action, resource, held, NOW) == HIDDEN


@given(scopes, resources, grants_)
def test_what_is_allowed_for_one_is_allowed_for_some(
    action: Scope, resource: Resource, held: list[Grant]
) -> None:
    if decide(EVE, action, resource, held, NOW) == ALLOW:
        some = Resource(tenant=resource.tenant, reach=Reach.SOME)
        assert decide(EVE, action, some, held, NOW) == ALLOW


@given(scopes, resources, grants_)
def test_whoever_may_read_one_is_refused_openly(
    action: Scope, resource: Resource, held: list[Grant]
) -> None:
    if decide(EVE, READ, resource, held, NOW) == ALLOW:
        assert decide(EVE, action, resource, held, NOW) != HIDDEN


@given(scopes, resources, grants_)
def test_a_narrowed_query_loses_nothing(
    action: Scope, resource: Resource, held: list[Grant]
) -> None:
    if resource.reach is Reach.ONE and decide(EVE, action, resource, held, NOW) == ALLOW:
        found = narrowing(EVE, action, resource.tenant, held, NOW)
        assert found.workflow in (None, resource.workflow)
        assert found.owner in (None, resource.owner)


def test_a_query_is_narrowed_to_one_workflow_and_to_own_executions() -> None:
    held = [grant(READ, workflows=("orders",), own=True), grant(EXECUTE)]
    assert narrowing(EVE, READ, "acme", held, NOW) == Narrowing(workflow="orders", owner="eve")
    held.append(grant(READ, workflows=BILLING, own=True))
    assert narrowing(EVE, READ, "acme", held, NOW) == Narrowing(owner="eve")
