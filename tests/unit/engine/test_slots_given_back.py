"""A slot that a process gives back calls somebody who waits for it, wherever that comes."""

from __future__ import annotations

import asyncio

from tests.unit.engine.conftest import MakeWorld
from tests.unit.engine.test_slots import Work, deliver, limited, settled, started


async def test_a_slot_that_nobody_could_use_is_given_back_and_calls_the_next(
    make: MakeWorld,
) -> None:
    """The first call comes to a process that cannot have the slot yet: without another, the slot
    would be idle until a task that waits asks by itself, a minute and more."""
    work = Work()
    world = await make(tunables=limited(1), work=work)
    other = world.another("worker-2")
    await started(world, 3)
    running = deliver(world)
    await settled()
    assert work.running == 1
    work.let_go()
    await settled()
    later = [one for one in world.transport.messages if one.due_at]  # by themselves
    running += deliver(world, other)
    await settled()
    assert work.running == 0  # for a moment it is still the first process's
    world.transport.messages = [one for one in world.transport.messages if not one.due_at]
    await world.clock.advance(3_000)
    running += deliver(world, other)
    await settled()
    assert (len(later), work.running) == (2, 1)
    work.let_go()
    await settled()
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await other.close()
