"""Code workflows in the catalog, and versions that may not go while something runs of them."""

from __future__ import annotations

import pytest
from hub import around, durable, hub_of

from orchestrator.domain.errors import ConflictError, InvalidError, NotFoundError
from orchestrator.engine import catalog, catalog_reads, health
from tests.support.definitions import flow
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld

PLAIN = {"type": "transform", "output": 1}


async def names(world: World, limit: int) -> list[str]:
    """All workflows of the tenant, page by page."""
    found: list[str] = []
    after = None
    while True:
        items, after = await catalog_reads.workflows(world.engine, TENANT, limit=limit, after=after)
        found += [f"{one.name}:{one.kind}" for one in items]
        if after is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
async def test_they_are_listed_among_the_definitions(make: MakeWorld, limit: int) -> None:
    """Once, by name, whatever the size of a page."""
    world, hub = await hub_of(make, {})
    for name in ("b", "d", "code-old"):
        await world.publish(flow(name, t=PLAIN))
    hub.code.registered.update({"a": [1], "c": [1], "code-old": [1], "z": [2]})
    assert await names(world, limit) == [
        "a:code",
        "b:definition",
        "c:code",
        "code-old:definition",
        "d:definition",
        "z:code",
    ]
    view = await catalog_reads.workflow(world.engine, TENANT, "z")
    assert view.description == "code_z_v2 of the tests"


async def test_their_versions_are_those_that_are_registered(make: MakeWorld) -> None:
    """With gaps; each with the definition that it stands for."""
    world, _ = await hub_of(make, {"ship": [2, 5]}, schema={"type": "object"})
    engine = world.engine
    items, after = await catalog_reads.versions(engine, TENANT, "ship", limit=1, after=None)
    assert ([one.version for one in items], after) == ([2], (2, ""))
    items, after = await catalog_reads.versions(engine, TENANT, "ship", limit=1, after=after)
    assert ([one.version for one in items], after) == ([5], None)
    shown = await catalog_reads.version(engine, TENANT, "ship", 5)
    assert (shown.kind, shown.definition["tasks"]["main"]["version"]) == ("code", 5)
    assert shown.definition["input"] == {"type": "object"}
    for number in (1, 3, 6):
        with pytest.raises(NotFoundError):
            await catalog_reads.version(engine, TENANT, "ship", number)
        with pytest.raises(NotFoundError):
            await world.start("ship", {}, version=number)


async def test_input_is_checked_against_the_schema(make: MakeWorld) -> None:
    """At the start, as for a definition; in a DAG when its turn comes."""
    world, hub = await hub_of(make, schema={"type": "object"})
    with pytest.raises(InvalidError):
        await world.start("ship", 5)
    await world.publish(around(input="${input}"))
    started = await world.start("around", 5)
    await world.settle()
    view = await world.view(started.id)
    assert view.error is not None
    assert (view.error.type, hub.starts) == ("INPUT_INVALID", [])
    assert (
        "sweepAt"
        not in (await world.sqlite.read("executions", (TENANT, started.id), "task:d")).body
    )


async def test_a_definition_cannot_take_a_registered_name(make: MakeWorld) -> None:
    """Nor can it be archived: it goes with the app."""
    world, _ = await hub_of(make)
    with pytest.raises(ConflictError, match="code workflow"):
        await world.publish(flow("ship", t=PLAIN))
    with pytest.raises(ConflictError, match="deployed without it"):
        await catalog.archive(world.engine, TENANT, "ship")


async def test_publishing_checks_the_orchestration(make: MakeWorld) -> None:
    """With the nearest name."""
    world, _ = await hub_of(make)
    with pytest.raises(InvalidError) as caught:
        await world.publish(flow("x", d=durable(orchestration="shop")))
    assert caught.value.details[0].code == "UNKNOWN_ORCHESTRATION"


async def test_the_same_key_is_the_same_execution(make: MakeWorld) -> None:
    """Idempotency needs nothing of its own."""
    world, hub = await hub_of(make)
    first = await world.start("ship", {"n": 1}, key="k")
    again = await world.start("ship", {"n": 1}, key="k")
    await world.settle()
    assert (first.id, again.created, hub.starts) == (again.id, False, [first.id])


# --- deployments ----------------------------------------------------------------------------------


async def test_ready_names_a_version_that_tasks_wait_for(make: MakeWorld) -> None:
    """For ten minutes after a task wanted it."""
    world, hub = await hub_of(make)
    assert (await health.check(world.engine)).checks["codeWorkflows"].ok
    await world.start("ship", version=1)
    hub.code.registered["ship"] = [2]
    await world.settle()
    check = (await health.check(world.engine)).checks["codeWorkflows"]
    assert not check.ok
    assert "ship v1" in check.detail
    hub.code.registered["ship"] = [1, 2]
    await world.clock.advance(11 * 60_000)
    assert (await health.check(world.engine)).checks["codeWorkflows"].ok
