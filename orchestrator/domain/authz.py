"""Who may do what: scopes, roles, grants, and the one function that decides.

Pure, so that it can be tested as a table. Everybody asks here: the gate before each route, the
check of the exact resource, and the rows of lists. Grants only ever add; what none of them allows
is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from fnmatch import fnmatchcase
from typing import Final, TypeAlias


class Scope(StrEnum):
    """What a request does, as tokens and grants name it. None of them includes another."""

    READ = "workflow:read"
    WRITE = "workflow:write"  # publish, archive; write schedules and triggers
    EXECUTE = "workflow:execute"  # start, signal, send events
    OPERATE = "workflow:operate"  # pause, cancel, replay, decide about dead letters, breakers
    ADMIN = "workflow:admin"  # grants and limits of the tenant


ALL_SCOPES: Final = frozenset(Scope)
ROLES: Final[Mapping[str, frozenset[Scope]]] = {
    "viewer": frozenset({Scope.READ}),
    "executor": frozenset({Scope.READ, Scope.EXECUTE}),
    "developer": frozenset({Scope.READ, Scope.WRITE, Scope.EXECUTE}),
    "operator": frozenset({Scope.READ, Scope.EXECUTE, Scope.OPERATE}),
    "admin": ALL_SCOPES,
}
"""Bundles of scopes with a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Scopes in a tenant, perhaps for some workflows, some tags, some time, or own executions."""

    tenant: str
    scopes: frozenset[Scope]
    workflows: tuple[str, ...] = ()
    """Names, `*` for any characters; one of them must fit. Empty: every workflow."""
    tags: tuple[tuple[str, str], ...] = ()
    """Executions that have all of these."""
    own: bool = False
    """Only executions that the principal started."""
    not_before: int | None = None  # epoch ms, inclusive
    not_after: int | None = None  # epoch ms, exclusive

    @property
    def unrestricted(self) -> bool:
        """Whether it holds for everything in the tenant."""
        return not (self.own or self.tags or (self.workflows and "*" not in self.workflows))

    def live(self, now: int) -> bool:
        """Whether it holds at `now` (epoch ms)."""
        begun = self.not_before is None or self.not_before <= now
        return begun and (self.not_after is None or now < self.not_after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody whose identity was proven."""

    subject: str
    """Stable and unique; stands in `startedBy`, in the history and in the audit."""
    name: str = ""
    tenants: tuple[str, ...] = ()
    groups: frozenset[str] = frozenset()
    grants: tuple[Grant, ...] = ()
    """Those that the proof itself carries; a tenant's stored ones come on top."""
    limit: frozenset[Scope] | None = None
    """What the program that asks may do for its user at most, whatever the user may do."""


class Reach(Enum):
    """How much of a tenant a request is about."""

    SOME = "some"  # is there anything for which it could be allowed?
    WHOLE = "whole"  # something of the tenant itself, which no workflow owns
    ONE = "one"  # of one workflow: a definition, an execution, a dead letter, ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """What a request is about. The fields after `reach` belong to `ONE`; `tags` and `owner` are
    those of an execution, and a definition has neither."""

    tenant: str
    reach: Reach = Reach.ONE
    workflow: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Allow:
    """Go on."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The principal may know that the resource exists, but may not do this: 403."""

    scope: Scope
    reason: str


@dataclass(frozen=True, slots=True)
class Hidden:
    """The principal must not learn whether the resource exists: 404."""


Decision: TypeAlias = Allow | Deny | Hidden
ALLOW: Final = Allow()
HIDDEN: Final = Hidden()


def decide(
    principal: Principal, action: Scope, resource: Resource, grants: Iterable[Grant], now: int
) -> Decision:
    """Whether `principal` may do `action` to `resource`.

    `grants`: everything that was granted to the principal, of whatever tenant; `now`: epoch ms.
    A resource of a tenant that the principal does not belong to is hidden; so is one that it may
    neither change nor read.
    """
    if resource.tenant not in principal.tenants:
        return HIDDEN
    live = [grant for grant in grants if grant.tenant == resource.tenant and grant.live(now)]
    if _granted(principal, action, resource, live):
        return ALLOW
    if resource.reach is Reach.ONE and not _granted(principal, Scope.READ, resource, live):
        return HIDDEN
    return Deny(action, _reason(principal, action, resource, live))


def _granted(
    principal: Principal, action: Scope, resource: Resource, live: Sequence[Grant]
) -> bool:
    if principal.limit is not None and action not in principal.limit:
        return False
    return any(action in grant.scopes and _covers(grant, principal, resource) for grant in live)


def _covers(grant: Grant, principal: Principal, resource: Resource) -> bool:
    if resource.reach is Reach.SOME or grant.unrestricted:
        return True
    if resource.reach is Reach.WHOLE or resource.workflow is None:
        return False
    name = resource.workflow
    if grant.workflows and not any(fnmatchcase(name, pattern) for pattern in grant.workflows):
        return False
    if grant.own and resource.owner != principal.subject:
        return False
    return all(resource.tags.get(tag) == value for tag, value in grant.tags)


def _reason(principal: Principal, action: Scope, resource: Resource, live: Sequence[Grant]) -> str:
    if principal.limit is not None and action not in principal.limit:
        return f"the token was issued without the scope {action}"
    if not any(action in grant.scopes for grant in live):
        return f"the scope {action} is missing in tenant {resource.tenant!r}"
    if resource.reach is Reach.WHOLE:
        return f"the scope {action} is granted for some workflows only, this needs it for all"
    return f"the scope {action} is not granted for this one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """What a query may ask for, because nothing else would be shown anyway."""

    workflow: str | None = None
    owner: str | None = None


def narrowing(
    principal: Principal, action: Scope, tenant: str, grants: Iterable[Grant], now: int
) -> Narrowing:
    """The conditions that every resource meets to which `principal` may do `action`: rows need to
    be checked still, but far fewer are read."""
    held = [
        grant
        for grant in grants
        if grant.tenant == tenant and grant.live(now) and action in grant.scopes
    ]
    names = {grant.workflows[0] if len(grant.workflows) == 1 else "*" for grant in held}
    exact = names.pop() if len(names) == 1 else "*"
    return Narrowing(
        workflow=None if "*" in exact else exact,
        owner=principal.subject if held and all(grant.own for grant in held) else None,
    )
