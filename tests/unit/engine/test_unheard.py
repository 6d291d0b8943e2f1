"""What the alert `weft-unheard` reads while a queue has nobody who listens.

Service Bus does not tell how old a message is that nobody receives, so `weft_queue_oldest_seconds`
is silent just then; and no age in the state rises: the sweeper looks after everything in time.
These counts do tell.
"""

from __future__ import annotations

from orchestrator.domain.topology import ORCHESTRATION_QUEUE
from orchestrator.engine import sweep
from tests.support.definitions import flow
from tests.support.world import World
from tests.unit.engine.conftest import MakeWorld

QUARTER_MS = 15 * 60_000
FLOW = flow(work={"type": "activity", "activity": "work"})


async def quarter(world: World, *queues: str) -> tuple[float, float, float, float]:
    """15 minutes in which only `queues` are listened to: accepted, decisions, tasks sent again,
    attempts that ended."""
    end = world.clock.now() + QUARTER_MS
    while world.clock.now() < end:
        for queue in queues:
            while due := world.transport.take(world.clock.now(), queue):
                await world.deliver(due)
        await world.clock.advance(15_000)
        await sweep.sweep(world.engine)
    value = world.engine.metrics.value
    attempts = sum(value("weft_attempts_total", one) for one in ("COMPLETED", "RETRYING"))
    return (
        value("weft_executions_total", "accepted"),
        value("weft_commits_total"),
        value("weft_repairs_total", "task"),
        attempts,
    )


async def test_starts_without_a_decision_tell_of_a_deaf_orchestrator(make: MakeWorld) -> None:
    world = await make(work=lambda _: 1)
    await world.publish(FLOW)
    await world.start("flow")
    assert await quarter(world) == (1, 0, 0, 0)


async def test_tasks_sent_again_without_an_attempt_tell_of_deaf_workers(make: MakeWorld) -> None:
    world = await make(work=lambda _: 1)
    await world.publish(FLOW)
    await world.start("flow")
    accepted, commits, again, attempts = await quarter(world, ORCHESTRATION_QUEUE)
    assert (accepted, attempts) == (1, 0)
    assert commits > 0
    assert again >= 2  # not the first look alone: the window moves on


async def test_sound_work_tells_of_nothing(make: MakeWorld) -> None:
    world = await make(work=lambda _: 1)
    await world.publish(FLOW)
    await world.start("flow")
    await world.settle()
    accepted, commits, again, attempts = await quarter(world)
    assert (accepted, again, attempts) == (1, 0, 1)
    assert commits > 0
