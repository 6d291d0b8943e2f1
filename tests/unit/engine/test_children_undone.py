"""`cancel --compensate` of a parent reaches its children: they are cancelled and undone, too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from family import child_of, child_task, everyone

from orchestrator.domain.topology import TASKS_STANDARD_QUEUE
from orchestrator.engine import control, letters_list
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.ports import ActivityCall
from tests.support.definitions import flow, task
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld

UNDO = {"type": "activity", "activity": "work"}
DAY = 24 * 3600 * 1000


class Log:
    """Workflow-wide order of what ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def __call__(self, call: ActivityCall) -> str:
        self.ran.append(call.task)
        return call.task


def long(**more: Any) -> dict[str, Any]:
    """A child that has an effect and then waits for ten days."""
    wait = {"type": "wait", "duration": "10d", "needs": ["inner"]}
    return flow("child", inner=task("work", compensate=UNDO), w=wait, **more)


async def cancel(world: World, id: str) -> None:
    await control.act(world.engine, TENANT, id, control.CANCEL_COMPENSATING, by="eve")


async def no_letters(world: World) -> None:
    found, _ = await letters_list.page(world.engine, TENANT, LetterFilter(), limit=9, after=None)
    assert found == []


async def test_a_running_child_is_undone_before_its_parent(make: MakeWorld) -> None:
    """It could wait for days, and its parent, half cancelled, with it."""
    log = Log()
    world = await make(work=log)
    await world.publish(long())
    outer = task("work", compensate=UNDO)
    await world.publish(flow("parent", outer=outer, c=child_task("child", "outer")))
    started = await world.start("parent")
    await world.settle()
    await cancel(world, started.id)
    await world.run_until_quiet(limit_ms=60_000)
    assert {one["status"] for one in (await everyone(world)).values()} == {"CANCELLED"}
    assert log.ran == ["outer", "inner", "inner~undo", "outer~undo"]
    assert (await world.statuses(started.id))["c"] == "CANCELLED"
    await no_letters(world)
    for id in await everyone(world):
        await world.verified(id)


async def test_grandchildren_and_children_of_a_map_are_undone_as_well(make: MakeWorld) -> None:
    log = Log()
    world = await make(work=log)
    await world.publish(long())
    await world.publish(flow("middle", m=task("work", compensate=UNDO), c=child_task("child", "m")))
    items = {"type": "map", "items": [1, 2, 3], "do": child_task("middle")}
    await world.publish(flow("parent", all=items))
    started = await world.start("parent")
    await world.settle()
    await cancel(world, started.id)
    await cancel(world, started.id)
    await world.run_until_quiet(limit_ms=60_000)
    found = await everyone(world)
    assert len(found) == 1 + 3 + 3
    assert {one["status"] for one in found.values()} == {"CANCELLED"}
    assert sorted(log.ran[-6:]) == ["inner~undo"] * 3 + ["m~undo"] * 3
    await no_letters(world)
    for id in found:
        await world.verified(id)


async def test_a_lost_call_to_the_child_is_made_up_for_by_the_sweeper(make: MakeWorld) -> None:
    world = await make(work=Log())
    await world.publish(long())
    await world.publish(flow("parent", c=child_task("child")))
    started = await world.start("parent")
    await world.settle()
    await cancel(world, started.id)
    world.transport.messages.clear()
    for _ in range(4):
        await world.clock.advance(60_000)
        await world.sweep()
    assert {one["status"] for one in (await everyone(world)).values()} == {"CANCELLED"}


async def test_a_child_that_is_started_at_that_moment_is_undone(make: MakeWorld) -> None:
    """Its worker had claimed the task before the cancel, and submits it afterwards."""
    log = Log()
    world = await make(work=log)
    await world.publish(long())
    await world.publish(flow("parent", c=child_task("child")))
    started = await world.start("parent")
    await world.deliver(world.transport.take(world.clock.now()))
    (start,) = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    begin = asyncio.create_task(world.deliver([start]))
    await quiesce(1)
    await cancel(world, started.id)
    await begin
    await world.settle()
    for _ in range(4):
        await world.clock.advance(60_000)
        await world.sweep()
    found = await everyone(world)
    assert {one["status"] for one in found.values()} == {"CANCELLED"}
    assert log.ran.count("inner") == log.ran.count("inner~undo")


@pytest.mark.parametrize("then", ["completes", "fails"])
async def test_a_child_that_ends_just_before_counts_as_it_ended(make: MakeWorld, then: str) -> None:
    """Completed: the parent undoes it with the `compensate` of its task."""
    log = Log()

    def inner(call: ActivityCall) -> str:
        if then == "fails":
            raise ValueError("no")
        return log(call)

    world = await make(work=log, inner=inner)
    await world.publish(flow("child", i=task("inner", retry={"maxAttempts": 1})))
    await world.publish(flow("parent", c=child_task("child", compensate=UNDO)))
    started = await world.start("parent")
    while not [one for one in (await everyone(world)).values() if one["workflow"] == "child"]:
        await world.deliver(world.transport.take(world.clock.now(), limit=1))
    id = await child_of(world, started.id)
    while (await world.view(id)).status.value not in ("COMPLETED", "FAILED"):
        due = [m for m in world.transport.take(world.clock.now()) if id.encode() in m.body]
        await world.deliver(due)
    await cancel(world, started.id)
    await world.run_until_quiet(limit_ms=60_000)
    for _ in range(3):
        await world.clock.advance(60_000)
        await world.sweep()
    view = await world.view(started.id)
    assert view.status.value == "CANCELLED"
    assert log.ran == (["i", "c~undo"] if then == "completes" else [])
    await world.verified(started.id)


async def test_a_child_that_undoes_after_its_own_failure_is_waited_for(make: MakeWorld) -> None:
    gate = asyncio.Event()
    log = Log()

    async def slow(call: ActivityCall) -> str:
        await gate.wait()
        return log(call)

    def fails(call: ActivityCall) -> None:
        raise ValueError("no")

    world = await make(work=log, slow=slow, fails=fails)
    inner = task("work", compensate={"type": "activity", "activity": "slow"})
    broken = task("fails", "inner", retry={"maxAttempts": 1})
    await world.publish(flow("child", inner=inner, broken=broken))
    outer = task("work", compensate=UNDO)
    await world.publish(flow("parent", outer=outer, c=child_task("child", "outer")))
    started = await world.start("parent")
    running = asyncio.create_task(world.settle())
    while "COMPENSATING" not in {one["status"] for one in (await everyone(world)).values()}:
        await quiesce(5)
    await cancel(world, started.id)
    assert (await world.view(started.id)).status.value == "COMPENSATING"
    gate.set()
    await running
    await world.run_until_quiet(limit_ms=60_000)
    assert log.ran == ["outer", "inner", "inner~undo", "outer~undo"]
    assert (await world.view(started.id)).status.value == "CANCELLED"
    await world.verified(started.id)
    assert world.clock.now() < 1_800_000_000_000 + DAY
