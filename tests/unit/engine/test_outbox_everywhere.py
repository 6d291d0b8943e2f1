"""What is committed while the broker is down is sent later: every kind of commit has an outbox."""

from __future__ import annotations

import pytest

from orchestrator.domain.messages import MessageType
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.ports import ActivityCall, OutMessage, Query, TransportError, Where
from tests.support.definitions import flow, retry, task
from tests.support.world import World
from tests.unit.engine.conftest import MakeWorld


def _flaky(call: ActivityCall) -> int:
    if call.attempt == 1:
        raise ConnectionError("not now")
    return call.attempt


async def _unsent(world: World) -> int:
    found = await world.sqlite.query(EXECUTIONS, Query(where=(Where("type", "=", "outbox"),)))
    return len(found)


@pytest.mark.parametrize(
    ("kind", "nth"),
    [
        (MessageType.EXECUTION_STARTED, 1),  # the submission
        (MessageType.RUN_TASK, 1),  # a dispatch
        (MessageType.RUN_TASK, 2),  # a retry, by the worker
        (MessageType.TASK_FINISHED, 1),  # a result, by the worker
        (MessageType.TIMER_DUE, 1),  # a wait
        (MessageType.RUN_TASK, 3),  # the items of a map
    ],
)
async def test_what_could_not_be_sent_with_its_commit_is_sent_by_one_sweep(
    make: MakeWorld, kind: MessageType, nth: int
) -> None:
    """The broker refuses the nth message of this kind for once; nothing else is told of it."""
    world = await make(flaky=_flaky, noop=lambda call: call.item)
    do = task("noop")
    await world.publish(
        flow(
            a=task("flaky", retry=retry(2, "1s")),
            w={"type": "wait", "needs": ["a"], "duration": "1s"},
            m={"type": "map", "needs": ["w"], "items": "${[1, 2, 3]}", "do": do},
            output="${tasks.m.output}",
        )
    )
    seen = 0
    real = world.transport.send

    async def send(messages: list[OutMessage]) -> None:
        nonlocal seen
        if any(message.properties["type"] == kind.value for message in messages):
            seen += 1
            if seen == nth:
                raise TransportError("for once")
        await real(messages)

    world.transport.send = send  # type: ignore[method-assign,assignment]
    started = await world.start("flow")
    await world.run_until_quiet()
    assert seen == nth
    assert await _unsent(world) == 1
    await world.clock.advance(world.tunables.outbox_grace_ms)
    report = await world.sweep()
    assert report.outboxes == 1
    await world.run_until_quiet()
    assert (await world.view(started.id)).output == [0, 1, 2]
    assert await _unsent(world) == 0
    await world.verified(started.id)


async def test_nothing_is_left_in_the_outbox_when_all_goes_well(make: MakeWorld) -> None:
    """Else every sweep would send it again."""
    world = await make(flaky=_flaky)
    await world.publish(flow(a=task("flaky", retry=retry(2, "1s")), b=task("flaky", "a")))
    await world.start("flow")
    await world.run_until_quiet()
    assert await _unsent(world) == 0
    await world.clock.advance(world.tunables.outbox_grace_ms)
    assert (await world.sweep()).outboxes == 0
