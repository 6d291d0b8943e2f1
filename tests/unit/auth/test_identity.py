"""Claims to principal: which claim says what, and what an unusable one does."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.domain.authz import ROLES, Principal, Scope
from orchestrator.domain.errors import UnauthenticatedError
from orchestrator.domain.identity import ClaimRules, is_tenant, principal_of


def of(rules: ClaimRules | None = None, **claims: Any) -> Principal:
    return principal_of({"sub": "eve", "tenants": ["acme"], **claims}, rules or ClaimRules())


def held(principal: Principal) -> dict[str, set[Scope]]:
    found: dict[str, set[Scope]] = {}
    for grant in principal.grants:
        found.setdefault(grant.tenant, set()).update(grant.scopes)
    return found


def test_roles_are_granted_in_every_tenant_of_the_token() -> None:
    found = of(tenants=["acme", "beta"], roles=["viewer", "operator"], name="Eve")
    assert (found.subject, found.name, found.tenants) == ("eve", "Eve", ("acme", "beta"))
    both = set(ROLES["operator"])
    assert held(found) == {"acme": both, "beta": both}


def test_a_role_may_be_of_one_tenant() -> None:
    found = of(tenants=["acme", "beta"], roles=["beta/admin", "viewer"])
    assert held(found) == {"acme": {Scope.READ}, "beta": set(Scope)}


def test_a_role_of_a_tenant_makes_nobody_its_member() -> None:
    """In Entra ID each customer's administrator hands out the app's roles, whatever their names."""
    found = of(roles=["beta/admin"])
    assert (found.tenants, held(found)) == (("acme",), {})


def test_scopes_grant_alone_and_limit_beside_roles() -> None:
    alone = of(scp="workflow:read workflow:execute openid")
    assert held(alone) == {"acme": {Scope.READ, Scope.EXECUTE}}
    beside = of(scp="workflow:read", roles=["operator"])
    assert held(beside) == {"acme": {Scope.READ}}
    assert alone.limit == {Scope.READ, Scope.EXECUTE}
    assert of(scp="user_impersonation", roles=["viewer"]).limit is None


def test_scopes_that_no_role_has_grant_nothing() -> None:
    assert held(of(scp="workflow:admin", roles=["viewer"])) == {}


def test_unknown_values_grant_nothing() -> None:
    assert held(of(roles=["owner", "Admin", "", "acme/", 7, None], scp=["workflow:*"])) == {}
    assert held(of(roles={"admin": True})) == {}


def test_names_of_claims_are_configuration() -> None:
    rules = ClaimRules(
        subject="oid", name="upn", tenants="https://weft/t", roles="realm.roles", groups="g"
    )
    claims = {
        "oid": "17",
        "upn": "eve@x",
        "https://weft/t": "acme beta",
        "realm": {"roles": ["viewer"]},
        "g": ["a", "b"],
    }
    found = principal_of(claims, rules)
    assert (found.subject, found.name, found.tenants) == ("17", "eve@x", ("acme", "beta"))
    assert found.groups == {"a", "b"}
    assert set(held(found)) == {"acme", "beta"}


def test_values_are_mapped_and_others_are_none() -> None:
    rules = ClaimRules(
        tenants="tid",
        tenant_map={"guid-1": "acme"},
        role_map={"Weft.Operate": "operator", "Weft.Acme": "acme/admin"},
    )
    found = of(rules, tid="guid-1", roles=["Weft.Operate", "admin"])
    assert held(found) == {"acme": set(ROLES["operator"])}
    assert of(rules, tid="guid-2", roles=["Weft.Operate"]).tenants == ()
    assert held(of(rules, tid="guid-1", roles=["Weft.Acme"])) == {"acme": set(Scope)}


def test_a_fixed_tenant_overrides_the_claim() -> None:
    assert of(ClaimRules(tenant="own"), tenants=["other"]).tenants == ("own",)


def test_an_alias_keeps_the_people_of_two_issuers_apart() -> None:
    assert of(ClaimRules(alias="corp")).subject == "corp:eve"


@pytest.mark.parametrize("bad", [None, "", " eve", "a\nb", "x" * 201, 7, ["eve"], "\x1b[31m"])
def test_a_subject_that_could_forge_a_log_line_is_refused(bad: Any) -> None:
    with pytest.raises(UnauthenticatedError) as caught:
        of(sub=bad)
    assert caught.value.code == "TOKEN_INVALID"


def test_a_bad_name_gives_way_to_the_subject() -> None:
    assert of(name="a\nb").name == "eve"


@pytest.mark.parametrize(
    "bad", ["", "_platform", "A", "a/b", "a b", "-a", "a-", "x" * 64, "é", ".."]
)
def test_names_that_no_tenant_has(bad: str) -> None:
    assert not is_tenant(bad)
    assert of(tenants=[bad, "ok"]).tenants == ("ok",)


@pytest.mark.parametrize("good", ["a", "default", "72f988bf-86f1-41af-91ab-2d7cd011db47", "a-1"])
def test_names_of_tenants(good: str) -> None:
    assert is_tenant(good)
