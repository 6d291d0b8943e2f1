"""Versions of code workflows that are gone, or would be: refused while something needs them."""

from __future__ import annotations

from typing import Any

import pytest
from hub import Hub, around, hub_of

from orchestrator.domain.errors import ConflictError, UnavailableError
from orchestrator.engine import code_publish, control, replay, schedules, submit
from orchestrator.engine.views_code import CodeWorkflowsView
from orchestrator.ports import Unavailable
from tests.support.definitions import flow
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


async def publish(world: World, **options: Any) -> CodeWorkflowsView:
    return await code_publish.publish(world.engine, tenant=TENANT, by="ada", **options)


async def refused(world: World, **options: Any) -> list[str]:
    """Who needs what is gone."""
    with pytest.raises(ConflictError) as caught:
        await publish(world, **options)
    assert caught.value.code == "CODE_VERSION_IN_USE"
    return [f"{one.field}: {one.message}" for one in caught.value.details]


async def without_one(make: MakeWorld) -> tuple[World, Hub]:
    """A world in which `ship` versions 1 and 2 were recorded; `gone` takes away the first."""
    world, hub = await hub_of(make)
    await publish(world)
    return world, hub


def gone(hub: Hub) -> None:
    hub.code.registered["ship"] = [2]


def parent(**more: Any) -> dict[str, Any]:
    """A definition whose child is the code workflow, behind an approval."""
    child = {"type": "workflow", "workflow": "ship", "needs": ["ok"], **more}
    return flow("parent", ok={"type": "signal", "signal": "ok"}, kid=child)


async def test_a_version_in_use_may_not_go(make: MakeWorld) -> None:
    """All tenants count, and DAGs that run it as a task; ids are told of one's own tenant."""
    world, hub = await without_one(make)
    engine = world.engine
    await world.publish(around(version=1))
    mine = await world.start("around")
    other = await submit.start(engine, "other", "ship", None, version=1)
    done = await world.start("ship", version=1)
    await control.act(engine, TENANT, done.id, control.CANCEL, by="ada")
    gone(hub)
    assert await refused(world) == [
        f"ship v1: 1 open executions of tenant 'acme' need it: {mine.id}",
        "ship v1: 1 open executions of tenant 'other' need it",
    ]
    for tenant, id in ((TENANT, mine.id), ("other", other.id)):
        await control.act(engine, tenant, id, control.CANCEL, by="ada")
    view = await publish(world)
    assert [(one.version, one.deployed, one.published) for one in view.items] == [(2, True, True)]


@pytest.mark.parametrize("named", [True, False])
async def test_a_child_that_will_be_started_needs_its_version(make: MakeWorld, named: bool) -> None:
    """Chosen when the parent was submitted, or written in its definition; a replay's, too."""
    world, hub = await hub_of(make, {"ship": [1]})
    await publish(world)
    await world.publish(parent(**({"version": 1} if named else {})))
    started = await world.start("parent")
    gone(hub)
    need = "ship v1: 1 open executions of tenant 'acme' need it: "
    assert await refused(world) == [need + started.id]
    await control.act(world.engine, TENANT, started.id, control.CANCEL, by="ada")
    await world.settle()
    again = await replay.replay(world.engine, TENANT, started.id, by="ada")
    assert await refused(world) == [need + again.id]
    await control.act(world.engine, TENANT, again.id, control.CANCEL, by="ada")
    await publish(world)


async def test_a_definition_of_that_name_is_no_use_of_the_code(make: MakeWorld) -> None:
    world, hub = await hub_of(make, {})
    await world.publish(flow("ship", t={"type": "transform", "output": 5}))
    hub.code.registered["ship"] = [1]
    await publish(world)
    await world.publish(parent())
    await world.start("parent")
    gone(hub)
    await publish(world)


async def test_a_child_of_a_code_workflow_needs_the_version_that_it_runs(make: MakeWorld) -> None:
    """It has no execution: Durable knows of it. So does one whose execution is gone."""
    world, hub = await without_one(make)
    started = await world.start("ship", version=2)
    await world.settle()
    await hub.start("code_ship_v1", f"{started.id}:0.1:0.1", "")
    await hub.start("code_ship_v1", f"{started.id}:0.2", "")
    await hub.start("code_ship_v1", "h123:0.2", "")
    await hub.start("code_ship_v1", "ended:0.2", "")
    hub.end("ended:0.2")
    gone(hub)
    assert await refused(world) == [
        "ship v1: 1 running children of executions that are not there any more need it: h123",
        f"ship v1: 1 running children of executions of tenant 'acme' need it: {started.id}",
    ]
    for id in hub.alive():
        hub.end(id)
    await publish(world)


async def test_a_schedule_that_names_it_needs_it_until_it_is_paused(make: MakeWorld) -> None:
    world, hub = await without_one(make)
    timing = {"workflow": "ship", "cron": "0 3 * * *"}
    for name, version in (("one", 1), ("two", 2), ("late", None)):
        more = {} if version is None else {"version": version}
        await schedules.create(world.engine, TENANT, {"name": name, **timing, **more})
    gone(hub)
    assert await refused(world) == ["ship v1: 1 schedules of tenant 'acme' need it: one"]
    await schedules.pause(world.engine, TENANT, "one", by="ada")
    await publish(world)


async def test_an_app_is_asked_about_before_it_is_deployed(make: MakeWorld) -> None:
    """What it has not is refused, also if it was never recorded; nothing is written."""
    world, hub = await hub_of(make)
    started = await world.start("ship", version=1)
    next_app = {"ship": [2, 3], "new": [1]}
    need = f"ship v1: 1 open executions of tenant 'acme' need it: {started.id}"
    assert await refused(world, dry_run=True, versions=next_app) == [need]
    assert await refused(world, dry_run=True, versions={}) == [need]
    view = await publish(world, dry_run=True, versions={"ship": [1, 3]})
    assert view.published_at is None
    assert (await publish(world, dry_run=True)).published_at is None
    assert hub.code.registered == {"ship": [1, 2]}


async def test_without_durables_answer_nothing_is_recorded(make: MakeWorld) -> None:
    world, hub = await without_one(make)
    gone(hub)
    hub.before = lambda name, args: Unavailable("away") if name == "open_of" else None
    with pytest.raises(UnavailableError, match="cannot be asked now"):
        await publish(world)
    hub.before = lambda name, args: None
    assert [one.version for one in (await publish(world)).items] == [2]


async def test_what_was_not_recorded_may_go(make: MakeWorld) -> None:
    """And publishing again changes nothing."""
    world, hub = await hub_of(make)
    await world.start("ship", version=1)
    gone(hub)
    first = await publish(world)
    world.clock.jump(1_000)
    again = await code_publish.publish(world.engine, tenant=TENANT, by="bob")
    assert again == first
