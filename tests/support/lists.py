"""The read model in tests: what the change feed shows, what the rows say, what they should say."""

from __future__ import annotations

from typing import Any

from orchestrator.domain.topology import CONTAINERS, EXECUTIONS, VISIBILITY
from orchestrator.engine import inspect, project
from orchestrator.engine.inspect import ExecutionFilter
from orchestrator.ports import DocumentStore, Query, Where
from tests.support.definitions import flow, task
from tests.support.world import TENANT, World

ALL = 100_000


def store_of(world: World) -> DocumentStore:
    """The store itself, beneath what a test has wrapped around it."""
    return getattr(world, "cosmos", world.sqlite)


async def changed(world: World) -> list[dict[str, Any]]:
    """What the change feed of the executions shows now, from the beginning."""
    docs: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = await store_of(world).changes(EXECUTIONS, cursor, 1_000)
        if not page.documents:
            return docs
        docs += [doc.body for doc in page.documents]
        cursor = page.cursor


async def catch_up(world: World) -> list[dict[str, Any]]:
    """Bring the lists up to date, as the change-feed function does; what the feed showed."""
    docs = await changed(world)
    await project.project_documents(world.engine, docs)
    return docs


async def rows(world: World) -> dict[str, dict[str, Any]]:
    """All rows, by id."""
    return {row.id: row.body for row in await store_of(world).query(VISIBILITY, Query(limit=ALL))}


async def truth(world: World) -> dict[str, dict[str, Any]]:
    """What the rows should be."""
    query = Query(where=(Where("type", "=", "execution"),), limit=ALL)
    docs = await store_of(world).query(EXECUTIONS, query)
    return {doc.id: project.row_of(doc.body) for doc in docs}


async def wipe(world: World, container: str) -> None:
    """Delete every document of a container."""
    names = CONTAINERS[container].partition
    for doc in await store_of(world).query(container, Query(limit=ALL)):
        await store_of(world).delete(container, tuple(doc.body[name] for name in names), doc.id)


async def stored(world: World, execution: str) -> dict[str, Any]:
    """The execution document."""
    return (await store_of(world).read(EXECUTIONS, (TENANT, execution), execution)).body


async def versions(world: World, execution: str) -> list[dict[str, Any]]:
    """Every version of the execution document until it has ended, oldest first."""
    seen = [await stored(world, execution)]
    while due := world.transport.take(world.clock.now()):
        for message in due:
            await world.deliver([message])
            latest = await stored(world, execution)
            if latest["state"]["seq"] != seen[-1]["state"]["seq"]:
                seen.append(latest)
    return seen


async def listed(world: World, tenant: str = TENANT, **filter: Any) -> list[str]:
    """Ids of a list's first page."""
    wanted = ExecutionFilter(**filter)
    items, _ = await inspect.executions(world.engine, tenant, wanted, limit=100, after=None)
    return [item.id for item in items]


async def run_one(world: World) -> list[dict[str, Any]]:
    """Run one execution of three tasks `noop`; the versions of its document."""
    await world.publish(flow(a=task("noop"), b=task("noop", "a"), c=task("noop", "b")))
    started = await world.start("flow", tags={"env": "prod"})
    return await versions(world, started.id)
