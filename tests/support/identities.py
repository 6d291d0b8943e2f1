"""Who asks, in tests of the API: the development identity, anybody at all, local tokens."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from orchestrator.adapters.auth.front import Front
from orchestrator.adapters.auth.local_keys import sign
from orchestrator.domain.authz import ALL_SCOPES, Grant, Principal
from orchestrator.domain.errors import UnauthenticatedError

DEVELOPMENT = Front(None, development=True)


def admin(tenant: str, subject: str = "developer") -> Principal:
    """Somebody who may do everything in `tenant`."""
    grants = (Grant(tenant=tenant, scopes=ALL_SCOPES),)
    return Principal(subject=subject, tenants=(tenant,), grants=grants)


class Doors:
    """An authenticator: the header `as` names one of `people`."""

    warning = ""

    def __init__(self, **people: Principal) -> None:
        self.people = people

    async def identify(self, headers: Mapping[str, str]) -> Principal:
        name = headers.get("as", "")
        if name not in self.people:
            raise UnauthenticatedError("who?")
        return self.people[name]


class Fixed:
    """An authenticator for which everybody is `principal`."""

    warning = ""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal

    async def identify(self, headers: Mapping[str, str]) -> Principal:
        return self.principal


def bearer(folder: Path, *, tenant: str = "default", role: str = "admin") -> dict[str, str]:
    """The header with a token that the platform with this data folder trusts."""
    claims = {"sub": "developer", "tenants": [tenant], "roles": [role]}
    token = sign(folder, claims, now_s=int(time.time()), ttl_s=600)
    return {"authorization": f"Bearer {token}"}
