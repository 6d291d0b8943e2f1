"""Executions that have been archived."""

from __future__ import annotations

from orchestrator.domain.status import ExecutionStatus
from orchestrator.engine import archive, inspect, retain
from orchestrator.engine.core import Engine


async def archived(engine: Engine, tenant: str, execution: str) -> str:
    """Archive an execution that has just ended; the id of the archive."""
    state = (await inspect.aggregate(engine, tenant, execution)).state
    assert state.ended_at is not None
    done = await retain.remove(
        engine, (tenant, execution), ExecutionStatus(state.status), engine.clock.now()
    )
    assert done == "archived"
    return archive.archive_id(execution, state.ended_at)
