"""Which one thing a route is about, and whether the caller may do it to that.

By the beginning of the path. Anything not listed here is of the tenant itself: a route that nobody
thought of is open to callers with a grant for everything, and to nobody else. Callers who have one
cost no read here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from orchestrator.domain import jsonvalues
from orchestrator.domain.authz import Allow, Resource, Scope
from orchestrator.domain.errors import NotFoundError
from orchestrator.domain.jsontypes import Json
from orchestrator.engine import (
    archive,
    bulk,
    catalog,
    inspect,
    letters_list,
    schedule_docs,
    schedule_reads,
    trigger_store,
)
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.sensitive import Reveal
from orchestrator.functions.access import Caller

Found = tuple[Resource, NotFoundError]
"""What it is about, and what is said if the caller must not know of it."""


async def check(engine: Engine, caller: Caller, scope: Scope, path: str, given: Any) -> None:
    """Raises `ForbiddenError`, `NotFoundError`. `path`: the route's; `given`: its parameters."""
    if await caller.may_all(scope):
        return
    find = next((find for begin, find in _FINDERS.items() if path.startswith(begin)), None)
    if find is None:
        await caller.must_for_all(scope)
        return
    found = await find(engine, caller.tenant, given)
    if found is not None:
        await caller.must(scope, *found)


async def _workflow(engine: Engine, tenant: str, given: Any) -> Found:
    name = given["name"]
    return Resource(tenant=tenant, workflow=name), catalog.unknown(name)


async def execution(engine: Engine, tenant: str, id: str) -> Resource:
    """An execution, with what grants look at. Raises `NotFoundError`."""
    return _resource(await inspect.aggregate(engine, tenant, id))


def reveals(caller: Caller) -> Reveal:
    """The caller sees sensitive data of the executions that they may operate."""

    async def may(found: Aggregate) -> bool:
        return isinstance(await caller.decide(Scope.OPERATE, _resource(found)), Allow)

    return may


def _resource(found: Aggregate) -> Resource:
    """A bulk operation belongs to whoever may operate the workflow that it is about."""
    header = found.header
    return Resource(
        tenant=found.partition[0],
        workflow=header.get(bulk.MARK, {}).get("workflow") or header["workflow"],
        tags=header["tags"],
        owner=header["startedBy"],
    )


async def _execution(engine: Engine, tenant: str, given: Any) -> Found:
    id = given["id"]
    return await execution(engine, tenant, id), inspect.unknown(id)


async def _letter(engine: Engine, tenant: str, given: Any) -> Found:
    id = given["letterId"]
    letter = (await letters_list.read(engine, tenant, id)).body
    one = Resource(tenant=tenant, workflow=letter.get("workflow"))
    if one.workflow is not None:
        # If it is about an event, or its execution is gone, the workflow alone counts.
        with contextlib.suppress(NotFoundError):
            one = await execution(engine, tenant, letter["executionId"])
    return one, letters_list.unknown(id)


async def operates_letter(engine: Engine, caller: Caller, id: str) -> bool:
    """Whether the caller may decide about a dead letter, and so may see the data of its event, of
    which nobody knows what is sensitive. Raises `NotFoundError`."""
    about, _ = await _letter(engine, caller.tenant, {"letterId": id})
    return isinstance(await caller.decide(Scope.OPERATE, about), Allow)


async def _schedule(engine: Engine, tenant: str, given: Any) -> Found | None:
    name = given["schedule"]
    stored = await schedule_docs.read(engine, tenant, name)
    if stored is None:
        return None  # the handler says so
    return Resource(tenant=tenant, workflow=stored.body["workflow"]), schedule_reads.unknown(name)


async def _trigger(engine: Engine, tenant: str, given: Any) -> Found | None:
    name = given["triggerName"]
    try:
        stored = await trigger_store.read(engine, tenant, name)
    except NotFoundError:
        return None  # the handler says so, or creates it
    raw: Any = jsonvalues.loads(stored.body["definition"])
    return Resource(tenant=tenant, workflow=raw["workflow"]), trigger_store.unknown(name)


async def _archived(engine: Engine, tenant: str, given: Any) -> Found:
    id = given["archiveId"]
    body = await archive.stored(engine, tenant, id)
    one = Resource(
        tenant=tenant, workflow=body["workflow"], tags=body["tags"], owner=body["startedBy"]
    )
    return one, archive.unknown(id)


_FINDERS: Final[dict[str, Callable[[Engine, str, Any], Awaitable[Found | None]]]] = {
    "v1/workflows/{name}": _workflow,
    "v1/executions/{id}": _execution,
    "v1/deadletters/{letterId}": _letter,
    "v1/schedules/{schedule}": _schedule,
    "v1/triggers/{triggerName}": _trigger,
    "v1/archive/{archiveId}": _archived,
}


async def may_publish(caller: Caller, source: Json) -> None:
    """A definition may be published by whoever may write that workflow, and write or start those
    that it starts: else a child would do what its author may not. Raises `ForbiddenError`."""
    if not isinstance(source, dict):
        return  # validation says what is wrong
    if not await caller.may_all(Scope.WRITE):
        await caller.must_for(Scope.WRITE, _name(source.get("name")))
    if not await caller.may_all(Scope.EXECUTE):
        for child in sorted(set(_children(source.get("tasks")))):
            # Whoever may write a workflow decides what it does: no more is gained by starting it.
            one = Resource(tenant=caller.tenant, workflow=child)
            if not isinstance(await caller.decide(Scope.WRITE, one), Allow):
                await caller.must_for(Scope.EXECUTE, child)


async def may_start_later(caller: Caller, source: Json) -> None:
    """A schedule or trigger may be written by whoever may write its workflow and start it: else it
    would start what its author may not. Raises `ForbiddenError`."""
    if not isinstance(source, dict) or "workflow" not in source:
        return  # validation says what is wrong
    for scope in (Scope.WRITE, Scope.EXECUTE):
        if not await caller.may_all(scope):
            await caller.must_for(scope, _name(source["workflow"]))


def _name(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _children(node: Json) -> Iterator[str]:
    """Names of the workflows, code workflows among them, that tasks start, wherever the tasks
    stand."""
    if isinstance(node, dict):
        if node.get("type") == "workflow":
            yield _name(node.get("workflow"))
        elif node.get("type") == "durable":
            yield _name(node.get("orchestration"))
        for part in node.values():
            yield from _children(part)
    elif isinstance(node, list):
        for part in node:
            yield from _children(part)
