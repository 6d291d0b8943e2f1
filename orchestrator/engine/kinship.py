"""Whether a child is still wanted when it is taken up.

A worker may freeze just before it submits a child, while others end its task. Whoever ends the task
cannot stop a child that does not exist yet. So every child asks once, before its first task starts,
whether its parent still wants it.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.domain.inputs import Cancel, Input, Start
from orchestrator.domain.kin import still_wanted
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import documents
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently

_FINAL = frozenset({ExecutionStatus.CANCELLED.value, ExecutionStatus.COMPLETED.value})
"""States of a parent that nobody can take up again."""


async def admitted(engine: Engine, aggregate: Aggregate, inputs: Sequence[Input]) -> list[Input]:
    """`inputs`; of a child that starts now although its parent does not wait for it, its
    cancellation instead of its start."""
    starts = any(isinstance(given, Start) for given in inputs)
    pending = aggregate.state.status is ExecutionStatus.PENDING
    if not (starts and pending and "parent" in aggregate.header):
        return list(inputs)
    parent, place = aggregate.header["parent"], aggregate.header["parentTask"]
    id = documents.task_id(place["task"], place.get("item"))
    partition = (aggregate.partition[0], parent)
    found = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, [parent, id])
    ended = parent in found and found[parent].body["status"] in _FINAL
    doc = found[id].body if id in found else None
    if not ended and still_wanted(doc, place["number"]):
        return list(inputs)
    cancel = Cancel(by=f"execution:{parent}", reason="its parent does not wait for it")
    return [cancel, *(given for given in inputs if not isinstance(given, Start))]
