"""The three classes: tasks travel on the queue of their execution's class, whoever sends them."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.domain.errors import ConflictError, InvalidError
from orchestrator.domain.messages import BadMessage, Message, MessageType, decode
from orchestrator.domain.priority import TASK_QUEUE, Priority
from orchestrator.domain.topology import ORCHESTRATION_QUEUE, TASK_QUEUES
from orchestrator.engine import control, replay
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


def fails(_: Any) -> None:
    raise RuntimeError("no")


def task_queues(world: World) -> set[str]:
    """Where task messages have gone so far."""
    return {one.queue for one in world.transport.sent if one.queue != ORCHESTRATION_QUEUE}


def test_each_class_has_a_queue_of_its_own() -> None:
    assert set(TASK_QUEUE.values()) == set(TASK_QUEUES)
    assert len(set(TASK_QUEUES)) == len(Priority) == 3


@pytest.mark.parametrize("priority", list(Priority))
def test_a_message_says_its_class_and_comes_back_the_same(priority: Priority) -> None:
    message = Message(MessageType.RUN_TASK, "t", "e", "a", 3, priority)
    assert decode(message.encode()) == message
    assert message.queue == f"tasks-{priority.value}"


def test_a_message_of_an_unknown_class_is_refused() -> None:
    body = Message(MessageType.RUN_TASK, "t", "e", "a", None, Priority.LOW).encode()
    with pytest.raises(BadMessage, match="unknown priority 'urgent'"):
        decode(body.replace(b'"low"', b'"urgent"'))


@pytest.mark.parametrize("priority", ["high", "low"])
async def test_tasks_stay_in_their_class_through_retries_pauses_and_repairs(
    make: MakeWorld, priority: str
) -> None:
    world = await make(fails=fails)
    definition = flow(a=task("fails"), m=_map("fails"), defaults={"retry": retry(2, "10s")})
    await world.publish({**definition, "priority": priority})
    id = (await world.start("flow")).id
    await world.settle()
    [again, *_] = world.transport.take(world.clock.now() + 60_000)  # the retries are lost
    assert again.queue == f"tasks-{priority}"
    await world.clock.advance(45_000)
    assert (await world.sweep()).tasks  # sent by the sweeper, from the task's document
    other = (await world.start("flow")).id
    await world.deliver(world.transport.take(world.clock.now()))
    await control.act(world.engine, TENANT, other, control.PAUSE, by="me")
    world.transport.take(world.clock.now())
    await control.act(world.engine, TENANT, other, control.RESUME, by="me")
    await world.run_until_quiet()
    for one in (id, other):
        assert (await world.view(one)).status.value == "FAILED"
        assert (await world.view(one)).priority is Priority(priority)
    assert task_queues(world) == {f"tasks-{priority}"}


def _map(activity: str) -> dict[str, Any]:
    return {"type": "map", "items": [1, 2], "do": {"type": "activity", "activity": activity}}


async def test_a_start_may_choose_another_class_than_the_definition(make: MakeWorld) -> None:
    world = await make(work=lambda _: 1)
    await world.publish({**flow(a=task("work")), "priority": "low"})
    urgent = await world.start("flow", priority=Priority.HIGH, key="k")
    await world.settle()
    assert task_queues(world) == {"tasks-high"}
    assert (await world.view(urgent.id)).priority is Priority.HIGH
    again = await world.start("flow", priority=Priority.HIGH, key="k")
    assert (again.id, again.created) == (urgent.id, False)
    with pytest.raises(ConflictError, match="another request"):
        await world.start("flow", key="k")


async def test_children_and_replays_inherit_the_class(make: MakeWorld) -> None:
    world = await make(work=lambda _: 1)
    await world.publish({**flow(a=task("work")), "name": "child", "priority": "low"})
    await world.publish(flow(c={"type": "workflow", "workflow": "child"}))
    id = (await world.start("flow", priority=Priority.HIGH)).id
    await world.run_until_quiet()
    await replay.replay(world.engine, TENANT, id, by="me")
    await world.run_until_quiet()
    assert task_queues(world) == {"tasks-high"}


async def test_an_unknown_class_in_a_definition_is_named(make: MakeWorld) -> None:
    world = await make()
    with pytest.raises(InvalidError) as caught:
        await world.publish({**flow(a=task("work")), "priority": "urgent"})
    assert caught.value.details[0].field == "$.priority"
