"""A new execution is stored: the batch, and what its caller is told, the first time and when the
request comes again.

The execution's id is the database's to keep unique. With an idempotency key it is derived from
tenant, workflow and key, so that the second request meets the first one's execution.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from orchestrator.domain import codec
from orchestrator.domain.effects import Outgoing
from orchestrator.domain.errors import ConflictError
from orchestrator.domain.events import Event, ExecutionAccepted, TasksCopied
from orchestrator.domain.evolve import fold
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.workflow import Workflow
from orchestrator.engine import documents, outbox, relay, telemetry
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views import StartResult
from orchestrator.ports import Conflict, Create


def derived_id(tenant: str, workflow: str, key: str) -> str:
    """An id of the same alphabet as fresh ones, from the idempotency key. NUL separates, because
    no tenant, workflow name or key can contain it."""
    return "k" + hashlib.sha256(f"{tenant}\0{workflow}\0{key}".encode()).hexdigest()[:31]


def links(execution: str) -> dict[str, str]:
    """Where to look next."""
    own = f"/v1/executions/{execution}"
    return {"self": own, "tasks": f"{own}/tasks", "history": f"{own}/history"}


async def store(
    engine: Engine,
    partition: tuple[str, str],
    header: dict[str, Any],
    workflow: Workflow,
    copied: tuple[int, ...] = (),
) -> bool:
    """The submission's batch, then the fast path. False if the execution exists already. `copied`:
    tasks whose results are there already (`replay`). Here the execution's trace begins, or goes on
    from `header["traceparent"]`: all that becomes of it is under the span of its start."""
    about = {"tenant": partition[0], "workflow": workflow.name, "execution": partition[1]}
    above = header.get("traceparent", "")
    with telemetry.span(engine.tracer, "start", parent=above, root=True, about=about) as span:
        if span.traceparent:
            header = {**header, "traceparent": span.traceparent}
        return await _store(engine, partition, header, workflow, copied)


async def _store(
    engine: Engine,
    partition: tuple[str, str],
    header: dict[str, Any],
    workflow: Workflow,
    copied: tuple[int, ...] = (),
) -> bool:
    now = engine.clock.now()
    commit = engine.ids.new()
    happened: list[Event] = [
        ExecutionAccepted(at=now, tasks=workflow.visible, hidden=len(workflow.undo))
    ]
    if copied:
        happened.append(TasksCopied(at=now, tasks=copied))
    state = fold(None, happened)
    execution = {
        **documents.base(partition, partition[1], "execution"),
        **header,
        "createdAt": now,
        "status": state.status.value,
        "silence": engine.tunables.silence_ms,
        "sweepAt": now + engine.tunables.silence_ms,
        "state": codec.state_to_doc(state),
    }
    events = {
        **documents.base(partition, documents.events_id(0), "events"),
        "seq": 0,
        "commit": commit,
        "events": [codec.event_to_doc(event) for event in happened],
    }
    first = Outgoing(Message(MessageType.EXECUTION_STARTED, *partition))
    sends = outbox.build(engine, partition, [first], now=now, header=header)
    operations = [Create(execution), Create(events), *(Create(doc) for doc in sends)]
    try:
        await patiently(engine, engine.store.batch, EXECUTIONS, partition, operations)
    except Conflict:
        return False
    except Unclear as unclear:
        if not await _was_mine(engine, partition, commit):
            if isinstance(unclear.error, Conflict):
                return False
            raise unclear.error from unclear
    engine.metrics.count("weft_executions_total", "accepted")
    await relay.send_now(engine, sends)
    return True


async def _was_mine(engine: Engine, partition: tuple[str, str], commit: str) -> bool:
    """Whether the execution that is there came from this very call, its first answer lost."""
    found = await patiently(
        engine,
        engine.store.read_many,
        EXECUTIONS,
        partition,
        [documents.events_id(0)],
    )
    return any(doc.body["commit"] == commit for doc in found.values())


async def repeat(
    engine: Engine, tenant: str, execution: str, digest: str | None, key: str
) -> StartResult | None:
    """The first answer again, if the execution exists. `digest` None: whatever was asked for."""
    found = await patiently(
        engine, engine.store.read_many, EXECUTIONS, (tenant, execution), [execution]
    )
    doc = found.get(execution)
    if doc is None:
        return None
    if digest is not None and doc.body["requestHash"] != digest:
        raise ConflictError(
            f"idempotency key {key!r} was used before with another request; use a new key, or send "
            "the same request",
            code="IDEMPOTENCY_KEY_REUSED",
        )
    engine.metrics.count("weft_duplicates_suppressed_total", "start")
    return StartResult(
        id=execution,
        workflow=doc.body["workflow"],
        version=doc.body["version"],
        status=doc.body["status"],
        created=False,
        links=links(execution),
    )


async def answer(
    engine: Engine,
    partition: tuple[str, str],
    header: Mapping[str, Any],
    *,
    created: bool,
    digest: str | None,
    key: str,
) -> StartResult:
    """What the caller is told once `store` has said whether it made the execution. Raises
    `ConflictError`, also if the id belongs to something else (`digest`: see `repeat`)."""
    tenant, execution = partition
    if not created:
        known = await repeat(engine, tenant, execution, digest, key)
        if known is None:
            raise ConflictError("the execution id is taken; try again", code="ID_TAKEN")
        return known
    return StartResult(
        id=execution,
        workflow=header["workflow"],
        version=header["version"],
        status=ExecutionStatus.PENDING,
        created=True,
        links=links(execution),
    )
