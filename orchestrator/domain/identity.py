"""From proven claims to a principal: which claim says what is configuration, the rest is here.

Claims come from tokens whose signature, issuer, audience and times were checked before. Still they
are somebody else's data: what they name ends up in logs and partition keys, so it is checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from orchestrator.domain.authz import ROLES, Grant, Principal, Scope
from orchestrator.domain.errors import UnauthenticatedError

MAX_SUBJECT_CHARS: Final = 200
MAX_VALUES: Final = 1_000  # of one claim; what comes after is not looked at
_TENANT: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """Names of claims, and what their values mean here. A name is looked up as it is, then as a
    path with dots (`realm_access.roles`)."""

    subject: str = "sub"
    name: str = "name"
    tenants: str = "tenants"
    roles: str = "roles"
    scopes: str = "scp"
    groups: str = "groups"
    tenant: str | None = None
    """Every principal of this issuer belongs to this tenant, whatever its claims say."""
    tenant_map: Mapping[str, str] = field(default_factory=dict[str, str])
    """Value of the tenants' claim -> tenant here. If there are any, all other values are none."""
    role_map: Mapping[str, str] = field(default_factory=dict[str, str])
    """Value of the roles' claim -> role, or `TENANT/ROLE`. If there are any, all other values are
    none; else values are such names themselves."""
    alias: str = ""
    """Before each subject, as `alias:subject`: two issuers may know two people by one name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """Whose tokens are accepted."""

    issuer: str
    """`iss`, exactly. `{tenantid}` in it stands for the token's `tid` (Entra ID, several
    directories), which `rules.tenant_map` must know."""
    audiences: tuple[str, ...]
    jwks: str = ""
    """Address of the keys. Empty: asked from the issuer's discovery document."""
    rules: ClaimRules = field(default_factory=ClaimRules)


def is_tenant(text: str) -> bool:
    """Whether `text` can be a tenant's name: 1 to 63 of a-z, 0-9 and `-`, not at the ends. So it
    is safe as partition key, in paths and in log lines, and never one of the platform's own, which
    begin with `_`."""
    return _TENANT.fullmatch(text) is not None


def principal_of(claims: Mapping[str, Any], rules: ClaimRules) -> Principal:
    """Who the claims are about, and what they grant.

    Roles are granted in every tenant that the claims name, `TENANT/ROLE` in that one only. With
    known scopes beside roles, a scope must be in both: a client to which a user lent less than they
    have gets no more. Unknown values grant nothing. Raises `UnauthenticatedError` without a usable
    subject.
    """
    subject = _find(claims, rules.subject)
    if not isinstance(subject, str) or not _is_line(subject):
        raise UnauthenticatedError(
            f"the claim for the subject must be a text of 1 to {MAX_SUBJECT_CHARS} printable "
            "characters",
            code="TOKEN_INVALID",
        )
    name = _find(claims, rules.name)
    tenants = _tenants(claims, rules)
    roles = _roles(claims, rules)
    lent = frozenset(
        Scope(value) for value in _texts(_find(claims, rules.scopes)) if value in _SCOPES
    )
    grants = [
        Grant(tenant=tenant, scopes=scopes & lent if lent else scopes)
        for where, scopes in roles
        for tenant in tenants
        if where in ("", tenant)
    ]
    if lent and not roles:
        grants = [Grant(tenant=tenant, scopes=lent) for tenant in tenants]
    return Principal(
        subject=f"{rules.alias}:{subject}" if rules.alias else subject,
        name=name if isinstance(name, str) and _is_line(name) else subject,
        tenants=tenants,
        groups=frozenset(_texts(_find(claims, rules.groups))),
        grants=tuple(grant for grant in grants if grant.scopes),
        limit=lent or None,
    )


_SCOPES: Final = frozenset(scope.value for scope in Scope)


def _find(claims: Mapping[str, Any], name: str) -> Any:
    if name in claims:
        return claims[name]
    node: Any = claims
    for part in name.split("."):
        node = cast("dict[str, Any]", node).get(part) if isinstance(node, dict) else None
    return node


def _texts(value: Any) -> list[str]:
    """A claim's values: a list of texts, or texts with spaces between them."""
    if isinstance(value, str):
        return value.split()[:MAX_VALUES]
    if isinstance(value, list):
        items = cast("list[Any]", value)[:MAX_VALUES]
        return [item for item in items if isinstance(item, str)]
    return []


def _is_line(text: str) -> bool:
    return 0 < len(text) <= MAX_SUBJECT_CHARS and text.isprintable() and text == text.strip()


def _tenants(claims: Mapping[str, Any], rules: ClaimRules) -> tuple[str, ...]:
    if rules.tenant is not None:
        return (rules.tenant,)
    values = _texts(_find(claims, rules.tenants))
    if rules.tenant_map:
        values = [rules.tenant_map[value] for value in values if value in rules.tenant_map]
    return tuple(dict.fromkeys(value for value in values if is_tenant(value)))


def _roles(claims: Mapping[str, Any], rules: ClaimRules) -> list[tuple[str, frozenset[Scope]]]:
    """(tenant, or empty for all of the principal's; scopes) of every known role."""
    found: list[tuple[str, frozenset[Scope]]] = []
    for value in _texts(_find(claims, rules.roles)):
        text = rules.role_map.get(value, "") if rules.role_map else value
        tenant, _, role = text.rpartition("/")
        if role in ROLES:
            found.append((tenant, ROLES[role]))
    return found
