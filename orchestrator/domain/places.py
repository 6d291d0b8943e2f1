"""The places of one concurrency group: who runs, who waits, who has to make room.

Pure. Everything here may be done twice: whoever stores a group does so under its ETag, and asks
again when somebody else was faster or an answer was lost. A place is a name in a list, not a
number in a counter, so a doubled release frees nothing twice.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from orchestrator.domain.workflow import ConcurrencyPolicy

MAX_WAITING: Final = 5_000
"""Names in the list; who comes on top looks again later."""


@dataclass(frozen=True, slots=True)
class Holder:
    """An execution that has a place, since `at` (epoch ms). `called`: it had waited, so somebody
    has to tell it."""

    execution: str
    at: int
    called: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """`waiting` in order of arrival. `displaced`: who has to end, and because of whom. `limit`: of
    the newest `version` of the workflow that has come; it holds for all, also for those that wait.
    0: not known (an older document)."""

    holders: tuple[Holder, ...] = ()
    waiting: tuple[str, ...] = ()
    displaced: tuple[tuple[str, str], ...] = ()
    version: int = 0
    limit: int = 0

    def holds(self, execution: str) -> bool:
        """Whether it has a place."""
        return any(holder.execution == execution for holder in self.holders)

    def displacer(self, execution: str) -> str | None:
        """The execution for which this one has to end."""
        return dict(self.displaced).get(execution)


class Verdict(Enum):
    """What becomes of an execution that would start."""

    HOLDS = "holds"
    WAITS = "waits"
    SKIPPED = "skipped"
    DISPLACED = "displaced"


def ruled(group: Group, version: int, limit: int) -> Group:
    """The group after an execution of this version, whose limit this is, has come to it."""
    if version < group.version:
        return group
    return replace(group, version=version, limit=limit)


def arrive(
    group: Group, execution: str, limit: int, policy: ConcurrencyPolicy, now: int
) -> tuple[Group, Verdict]:
    """`execution` would start: its verdict, and the group after it. Those that wait go first.
    `limit`: if the group knows none."""
    limit = group.limit or limit
    if group.displacer(execution) is not None:
        return group, Verdict.DISPLACED
    if execution not in group.waiting and not group.holds(execution):
        free = limit - len(group.holders) - len(group.waiting)
        if free <= 0 and policy is ConcurrencyPolicy.SKIP:
            return _promote(group, limit, now), Verdict.SKIPPED
        if free <= 0 and policy is ConcurrencyPolicy.CANCEL_PREVIOUS:
            group = _displace(group, execution)
        if len(group.waiting) < MAX_WAITING:
            group = replace(group, waiting=(*group.waiting, execution))
    group = _promote(group, limit, now, at_once=execution)
    return group, Verdict.HOLDS if group.holds(execution) else Verdict.WAITS


def leave(group: Group, gone: Collection[str], limit: int, now: int) -> Group:
    """Those executions have ended; who waits longest takes their places. `limit`: if the group
    knows none."""
    group = replace(
        group,
        holders=tuple(one for one in group.holders if one.execution not in gone),
        waiting=tuple(one for one in group.waiting if one not in gone),
        displaced=tuple(one for one in group.displaced if one[0] not in gone),
    )
    return _promote(group, group.limit or limit, now)


def reenter(group: Group, execution: str, now: int) -> Group:
    """An operator took `execution` up again: it has a place, even one too many, so that no further
    one starts beside it."""
    if group.holds(execution):
        return group
    return replace(group, holders=(*group.holders, Holder(execution, now)))


def _displace(group: Group, execution: str) -> Group:
    """Everybody has to make room, those that only wait as well: the latest one wins."""
    known = {name for name, _ in group.displaced}
    victims = [*(holder.execution for holder in group.holders), *group.waiting]
    return replace(
        group,
        waiting=(),
        displaced=(
            *group.displaced,
            *((victim, execution) for victim in victims if victim not in known),
        ),
    )


def _promote(group: Group, limit: int, now: int, at_once: str = "") -> Group:
    """Give free places to who waits. `at_once`: it is asking itself, nobody has to tell it."""
    free = max(0, limit - len(group.holders))
    if not free or not group.waiting:
        return group
    called = [Holder(one, now, called=one != at_once) for one in group.waiting[:free]]
    return replace(group, holders=(*group.holders, *called), waiting=group.waiting[free:])
