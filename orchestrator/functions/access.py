"""Who asks, and whether they may: the gate before every route, and the checks within.

Three steps. The gate proves the identity, finds the tenant, and asks whether the route's scope is
granted for anything there: 401, 403. For a route about one thing, `guards` then asks about exactly
that: 404 if the caller must not know of it. Handlers of lists, and of requests whose body names
the workflow, ask for themselves.

Grants in the token decide first; the tenant's stored ones are looked at only if those do not do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import azure.functions as func

from orchestrator.domain.authz import (
    Allow,
    Decision,
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
from orchestrator.domain.errors import (
    ErrorDetail,
    ForbiddenError,
    MalformedError,
    NotFoundError,
)
from orchestrator.domain.identity import is_tenant
from orchestrator.engine.core import Engine
from orchestrator.engine.grants import GrantBook
from orchestrator.functions.requests import Param

TENANT_HEADER: Final = "X-Weft-Tenant"
TENANT: Final = Param(
    name=TENANT_HEADER,
    description="Which tenant is meant, if the token is for several",
    schema={"type": "string"},
)


@dataclass(frozen=True, slots=True)
class Sight:
    """What a caller sees of lists, with all grants at hand: asked per row, so it waits for
    nothing."""

    principal: Principal
    tenant: str
    scope: Scope
    grants: tuple[Grant, ...]
    now: int
    everything: bool

    def of(
        self, workflow: str | None, tags: Mapping[str, str] | None = None, owner: str | None = None
    ) -> bool:
        """Whether the row of this workflow (execution, ...) is shown."""
        if self.everything:
            return True
        row = Resource(tenant=self.tenant, workflow=workflow, tags=tags or {}, owner=owner)
        return isinstance(decide(self.principal, self.scope, row, self.grants, self.now), Allow)

    @property
    def of_executions(self) -> bool:
        """Whether tags or owners matter: then a row without them must be looked up."""
        return any(grant.tags or grant.own for grant in self.grants if self.scope in grant.scopes)

    def narrowing(self) -> Narrowing:
        """What the query may ask for."""
        if self.everything:
            return Narrowing()
        return narrowing(self.principal, self.scope, self.tenant, self.grants, self.now)


class Caller:
    """An identity in one tenant, for one request."""

    def __init__(self, principal: Principal, tenant: str, engine: Engine) -> None:
        self.tenant = tenant
        self.subject = principal.subject
        self.known = principal
        self._engine = engine
        self._stored: list[Grant] | None = None

    async def decide(self, scope: Scope, resource: Resource) -> Decision:
        """Whether this may be done. Raises `Throttled`, `Unavailable`."""
        now = self._engine.clock.now()
        found = decide(self.known, scope, resource, self.known.grants, now)
        if isinstance(found, Allow) or resource.tenant not in self.known.tenants:
            return found
        return decide(self.known, scope, resource, await self._grants(), now)

    async def may_all(self, scope: Scope) -> bool:
        """Whether it is granted for the whole tenant, so that nothing more need be asked."""
        whole = Resource(tenant=self.tenant, reach=Reach.WHOLE)
        return isinstance(await self.decide(scope, whole), Allow)

    async def of_platform(self, scope: Scope) -> bool:
        """Whether it is granted for all of the platform's own tenant."""
        platform = self._engine.platform_tenant
        return bool(platform) and await Caller(self.known, platform, self._engine).may_all(scope)

    async def must(self, scope: Scope, resource: Resource, missing: NotFoundError) -> None:
        """Raises `ForbiddenError`, or `missing` if the caller must not know of the resource."""
        found = await self.decide(scope, resource)
        if isinstance(found, Deny):
            raise forbidden(found)
        if not isinstance(found, Allow):
            raise missing

    async def must_for(
        self,
        scope: Scope,
        workflow: str,
        *,
        tags: Mapping[str, str] | None = None,
        owner: str | None = None,
    ) -> None:
        """Raises `ForbiddenError`: the caller has named the workflow, and it need not exist."""
        one = Resource(tenant=self.tenant, workflow=workflow, tags=tags or {}, owner=owner)
        if isinstance(await self.decide(scope, one), Allow):
            return
        raise forbidden(Deny(scope, f"the scope {scope} is not granted for workflow {workflow!r}"))

    async def must_for_all(self, scope: Scope) -> None:
        """Raises `ForbiddenError`, `NotFoundError` (the tenant)."""
        whole = Resource(tenant=self.tenant, reach=Reach.WHOLE)
        await self.must(scope, whole, unknown_tenant(self.tenant))

    async def sight(self, scope: Scope) -> Sight:
        """What the caller sees of lists."""
        everything = await self.may_all(scope)
        grants = () if everything else tuple(await self._grants())
        now = self._engine.clock.now()
        return Sight(self.known, self.tenant, scope, grants, now, everything)

    async def _grants(self) -> list[Grant]:
        """All of the tenant; read once per request."""
        if self._stored is None:
            self._stored = await self._engine.part(GrantBook).of(self.known, self.tenant)
        return [*self.known.grants, *self._stored]


async def admit(
    req: func.HttpRequest, engine: Engine, scope: Scope, *, tenant: str | None = None
) -> Caller:
    """The caller, if `scope` is granted for anything in the tenant; `tenant`: the one that the
    path names. Raises `UnauthenticatedError`, `ForbiddenError`, `MalformedError` (which tenant?),
    `NotFoundError` (a tenant of others), `UnavailableError`, `Throttled`, `Unavailable`."""
    principal = await engine.authenticator.identify(req.headers)
    caller = Caller(principal, tenant or _tenant(req, principal), engine)
    some = Resource(tenant=caller.tenant, reach=Reach.SOME)
    await caller.must(scope, some, unknown_tenant(caller.tenant))
    return caller


async def admit_platform(
    req: func.HttpRequest, engine: Engine, scope: Scope, *, tenant: str | None, only: bool
) -> Caller:
    """As `admit`, for a route about the tenant itself that administrators of the platform may call
    for every tenant: who has `workflow:admin` in the platform's own one. `only`: nobody else may,
    with whatever grants. `tenant` None: the route is about the platform, asked by somebody of the
    token's tenant. Asks about all of the tenant, so nothing is left to check."""
    principal = await engine.authenticator.identify(req.headers)
    if tenant is None:
        tenant = _tenant(req, principal)
    if not is_tenant(tenant):
        raise unknown_tenant(tenant)
    caller = Caller(principal, tenant, engine)
    if await caller.of_platform(Scope.ADMIN):
        return caller
    await caller.must_for_all(scope)
    if only:
        reason = f"this needs the scope {scope} in the platform's own tenant"
        raise forbidden(Deny(scope, reason))
    return caller


def _tenant(req: func.HttpRequest, principal: Principal) -> str:
    named = req.headers.get(TENANT_HEADER.lower(), "").strip()
    if named:
        if named not in principal.tenants:
            raise ForbiddenError(
                f"the token is not for the tenant that {TENANT_HEADER} names",
                code="TENANT_FORBIDDEN",
            )
        return named
    tenants = list(principal.tenants)
    if not tenants:
        raise ForbiddenError("the token is for no tenant of this platform", code="NO_TENANT")
    if len(tenants) > 1:
        message = f"the token is for several tenants; name one in the header {TENANT_HEADER}"
        raise MalformedError(
            message,
            code="TENANT_REQUIRED",
            details=(ErrorDetail(TENANT_HEADER, message, code="TENANT_REQUIRED"),),
        )
    return tenants[0]


def forbidden(found: Deny) -> ForbiddenError:
    """The 403 of a refusal."""
    return ForbiddenError(f"not allowed: {found.reason}", scope=found.scope.value)


def unknown_tenant(tenant: str) -> NotFoundError:
    """There is no such tenant, for this caller at least."""
    return NotFoundError(f"no tenant {tenant!r}", code="TENANT_NOT_FOUND")
