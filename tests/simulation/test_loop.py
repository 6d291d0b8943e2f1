"""The loop's own promise: whatever a run leaves behind is ended with it."""

from __future__ import annotations

import asyncio
import gc
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


def test_what_only_hangs_together_with_itself_is_not_collected() -> None:
    """A crashed process's task whose `finally` ran when Python happened to collect made one seed
    two runs: after another seed, it was not the run that it was alone."""
    loop = SimLoop(random.Random(1))
    ended: list[str] = []

    async def crash() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("ended")

    async def live() -> None:
        loop.spawn(None, crash())
        await asyncio.sleep(1)
        gc.collect()
        assert not ended

    loop.run_until_complete(live())
    loop.finish([])
    assert ended == ["ended"]
