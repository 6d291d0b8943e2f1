"""The loop's own promise: whatever a run leaves behind is ended with it."""

from __future__ import annotations

import asyncio
import random

from tests.simulation.loop import SimLoop


def test_what_ends_may_begin_something_and_that_is_ended_too() -> None:
    """Else it is collected half done, in whatever test happens to run then."""
    loop = SimLoop(random.Random(1))
    begun: list[asyncio.Task[None]] = []

    async def wait() -> None:
        await asyncio.Event().wait()

    async def begin_another() -> None:
        try:
            await wait()
        finally:
            begun.append(asyncio.create_task(wait()))

    async def live() -> None:
        begun.append(asyncio.create_task(begin_another()))
        await asyncio.sleep(1)

    loop.run_until_complete(live())
    loop.finish([])
    assert [task.cancelled() for task in begun] == [True, True]
