"""Tasks of a paused execution: the sweeper need not look after them.

Their messages are dropped until it is resumed, and resuming looks after everything in flight
itself. So what is overdue gives up its `sweepAt`: otherwise it would be sent and dropped once a
minute for as long as the pause lasts, be counted as lost each time, and keep others out of a
sweeper's pass.
"""

from __future__ import annotations

from orchestrator.domain import kin
from orchestrator.domain.status import TaskStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import Document, NotFound, PreconditionFailed


async def lay_down(engine: Engine, found: Document) -> None:
    """Drop the `sweepAt` of a task document whose retry is due or whose worker is dead. Whoever is
    faster has it. Raises what the store raises once `patiently` gave up."""
    doc, now = found.body, engine.clock.now()
    match doc["status"]:
        case TaskStatus.RETRYING.value:
            overdue = doc["dueAt"] <= now
        case TaskStatus.RUNNING.value:
            overdue = doc["lease"]["until"] <= now
        case _:
            overdue = False
    # A child must be stopped if the execution is cancelled: that one is looked after.
    if not overdue or "sweepAt" not in doc or kin.started(doc):
        return
    body = {key: value for key, value in doc.items() if key != "sweepAt"}
    partition = (doc["tenantId"], doc["executionId"])
    try:
        await patiently(
            engine, engine.store.replace, EXECUTIONS, partition, body, if_match=found.etag
        )
    except (PreconditionFailed, NotFound, Unclear):
        return
