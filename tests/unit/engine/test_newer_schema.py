"""While a deployment rolls, old and new code share one store: old code keeps its hands off."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.domain.errors import UnavailableError
from orchestrator.domain.topology import EXECUTIONS, SCHEMA_VERSION
from orchestrator.ports import Query, Where
from tests.support.definitions import flow, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


async def _set_version(world: World, execution: str, version: int) -> dict[str, Any]:
    doc = await world.sqlite.read(EXECUTIONS, (TENANT, execution), execution)
    body = {**doc.body, "v": version}
    await world.sqlite.replace(EXECUTIONS, (TENANT, execution), body)
    world.engine.aggregates.drop((TENANT, execution))
    return body


async def _dead_letters(world: World) -> int:
    query = Query(where=(Where("type", "=", "deadletter"),))
    return len(await world.sqlite.query(EXECUTIONS, query))


async def test_an_execution_of_newer_code_is_left_alone_and_its_messages_come_again(
    make: MakeWorld,
) -> None:
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    newer = await _set_version(world, started.id, SCHEMA_VERSION + 1)
    await world.settle()
    unchanged = await world.sqlite.read(EXECUTIONS, (TENANT, started.id), started.id)
    assert unchanged.body == newer
    with pytest.raises(UnavailableError):
        await world.view(started.id)
    assert await _dead_letters(world) == 0
    await _set_version(world, started.id, SCHEMA_VERSION)  # stands for the new code's turn
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"


async def test_a_task_of_newer_code_is_not_claimed_and_its_message_comes_again(
    make: MakeWorld,
) -> None:
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    await _set_version(world, started.id, SCHEMA_VERSION + 1)
    await world.settle()
    assert world.activities.calls == []
    await _set_version(world, started.id, SCHEMA_VERSION)
    await world.run_until_quiet()
    assert len(world.activities.calls) == 1
    assert await _dead_letters(world) == 0
