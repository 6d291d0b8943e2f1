"""Lists and bulk actions of callers whose grants do not hold for the whole tenant.

The query is narrowed where that is possible, and the rows of a page are checked. So a page may have
fewer items than were asked for, and still be followed by another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.domain.authz import Narrowing, Scope
from orchestrator.domain.errors import ForbiddenError
from orchestrator.domain.topology import VISIBILITY
from orchestrator.engine import inspect
from orchestrator.engine.core import Engine
from orchestrator.engine.inspect import ExecutionFilter
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.resilience import patiently
from orchestrator.engine.views_letters import DeadLetterSummary
from orchestrator.functions import guards
from orchestrator.functions.access import Caller


def narrowed(wanted: ExecutionFilter, known: Narrowing) -> ExecutionFilter | None:
    """The filter for what the caller may see; None if nothing can be found."""
    workflow, owner = known.workflow, known.owner
    if workflow is not None and wanted.workflow not in (None, workflow):
        return None
    if owner is not None and wanted.owner not in (None, owner):
        return None
    return replace(wanted, workflow=workflow or wanted.workflow, owner=owner or wanted.owner)


async def letters(
    engine: Engine, caller: Caller, items: Sequence[DeadLetterSummary]
) -> list[DeadLetterSummary]:
    """Those that the caller may see. Tags and owners are those of their executions, from the read
    model: one more read per page, if any grant asks for them."""
    sight = await caller.sight(Scope.READ)
    if sight.everything:
        return list(items)
    rows = {}
    if sight.of_executions:
        ids = sorted({one.execution for one in items if one.execution and one.workflow})
        rows = await patiently(engine, engine.store.read_many, VISIBILITY, (caller.tenant,), ids)
    shown: list[DeadLetterSummary] = []
    for one in items:
        row = rows[one.execution].body if one.execution in rows else {}
        if sight.of(one.workflow, row.get("tags"), row.get("startedBy")):
            shown.append(one)
    return shown


async def may_operate(caller: Caller, workflow: str | None) -> None:
    """Whether the caller may operate all executions of a workflow; None: of the tenant. Raises
    `ForbiddenError`."""
    if await caller.may_all(Scope.OPERATE):
        return
    if workflow is None:
        raise ForbiddenError(
            f"not allowed: the scope {Scope.OPERATE} is granted for some workflows only; name one "
            "in `filter.workflow`",
            scope=Scope.OPERATE.value,
        )
    await caller.must_for(Scope.OPERATE, workflow)


async def may_decide(engine: Engine, caller: Caller, wanted: LetterFilter) -> None:
    """Whether the caller may decide about everything that the filter can find: a filter without a
    workflow or an execution finds letters of the whole tenant. Raises `ForbiddenError`,
    `NotFoundError`."""
    if await caller.may_all(Scope.OPERATE):
        return
    if wanted.execution is not None:
        one = await guards.execution(engine, caller.tenant, wanted.execution)
        await caller.must(Scope.OPERATE, one, inspect.unknown(wanted.execution))
    elif wanted.workflow is not None:
        await caller.must_for(Scope.OPERATE, wanted.workflow)
    else:
        raise ForbiddenError(
            f"not allowed: the scope {Scope.OPERATE} is granted for some workflows only; name one "
            "in `filter.workflow`, or an execution in `filter.execution`",
            scope=Scope.OPERATE.value,
        )
