"""A decision hands signals to map items: their documents are written with the commit.

An item that waits has no worker, and nobody holds its document (`mapsignals`). The batch that says
which signal it took also completes the document, under its ETag. If no worker has parked the item
yet, the batch creates the document, and the worker that comes later finds it finished. If a worker
was faster, because the item's time was over, its result has to be heard first.
"""

from __future__ import annotations

from typing import Any, Final

from orchestrator.domain.decide import Decision
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.payload import Payload
from orchestrator.domain.status import TaskStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import documents, facts, signal_docs, task_docs
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently
from orchestrator.engine.takeover import Changed
from orchestrator.ports import Create, Operation, Replace

INLINE_BYTES: Final = 4 * 1024
"""A larger payload is moved to the payload store: many of them would be too much for one batch."""


class ItemsEnded(Changed):
    """Items have results of which the decision did not know; `messages` would have told."""

    def __init__(self, messages: list[Message]) -> None:
        super().__init__(f"{len(messages)} items ended otherwise")
        self.messages = messages


async def complete(
    engine: Engine, aggregate: Aggregate, decision: Decision, *, now: int
) -> list[Operation]:
    """What a commit writes for the items that took signals. Raises `ItemsEnded`, and what the
    stores raise once `patiently` gave up."""
    taken = decision.signalled_items
    if not taken:
        return []
    partition, tasks = aggregate.partition, aggregate.workflow.tasks
    ids = {place: documents.task_id(tasks[place[0]].id, place[1]) for place in taken}
    found = await patiently(
        engine, engine.store.read_many, EXECUTIONS, partition, list(ids.values())
    )
    ended = [
        Message(MessageType.TASK_FINISHED, *partition, tasks[task].id, item)
        for (task, item), id in ids.items()
        if id in found and facts.has_ended(aggregate, task, found[id].body)
    ]
    if ended:
        raise ItemsEnded(ended)
    payloads = await signal_docs.stored_payloads(engine, partition, set(taken.values()))
    operations: list[Operation] = []
    for (task, item), signal in taken.items():
        id = ids[task, item]
        existing = found.get(id)
        body: dict[str, Any] = {
            "task": tasks[task].id,
            "attempt": 0,
            "attempts": [],
            **documents.base(partition, id, "task"),
            **({} if existing is None else task_docs.without_lease(existing.body)),
            "item": item,
            "status": TaskStatus.COMPLETED.value,
            "endedAt": now,
            "output": await _small(engine, partition, id, payloads[signal]),
            "signal": signal,
        }
        operations.append(Create(body) if existing is None else Replace(body, existing.etag))
    return operations


async def _small(
    engine: Engine, partition: tuple[str, str], id: str, stored: dict[str, Any]
) -> dict[str, Any]:
    payload = Payload.from_doc(stored)
    if payload.text is None or payload.size <= INLINE_BYTES:
        return stored
    data = payload.text.encode()
    ref = await patiently(engine, engine.payloads.put, *partition, id, data)
    return Payload(ref=ref, size=payload.size).to_doc()
