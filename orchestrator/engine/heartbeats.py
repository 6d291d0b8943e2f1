"""An activity that promised heartbeats and falls silent has failed, however long it may still take.

Without a `heartbeatTimeout` the attempt's time limit is all there is; with one, a hung attempt is
found in seconds, not in half an hour.
"""

from __future__ import annotations

import asyncio

from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsontypes import Json
from orchestrator.engine.core import Engine
from orchestrator.ports import ActivityCall, ActivityFailed


async def run(engine: Engine, call: ActivityCall, limit_ms: int | None) -> Json:
    """Run the activity; its output. `limit_ms`: the longest silence, counted from its beginning or
    its last heartbeat; None: it need not report. Raises `ActivityFailed`: what the activity raises,
    or HEARTBEAT_TIMEOUT, with `call.cancelled` set."""
    if limit_ms is None:
        return await engine.activities.run(call)
    work = asyncio.create_task(engine.activities.run(call), name="weft-activity")
    silence = asyncio.create_task(_silent(engine, call, limit_ms), name="weft-heartbeats")
    try:
        await asyncio.wait({work, silence}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        call.cancelled = True
        silence.result()
        raise ActivityFailed(
            Failure(
                type=FailureType.HEARTBEAT_TIMEOUT,
                message=f"no heartbeat within {limit_ms / 1000:g} s",
            )
        )
    finally:
        for task in (work, silence):
            task.cancel()
        await asyncio.gather(work, silence, return_exceptions=True)


async def _silent(engine: Engine, call: ActivityCall, limit_ms: int) -> None:
    """Returns once the last heartbeat is `limit_ms` ago. Sleeps until that may be so and looks
    again: heartbeats themselves cost nothing."""
    while (left := call.last_heartbeat_at + limit_ms - engine.clock.now()) > 0:
        await engine.clock.sleep(min(left, limit_ms))  # more would be a clock that was set back
