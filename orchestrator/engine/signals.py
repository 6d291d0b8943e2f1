"""Send a signal to an execution, and list what was sent.

A signal is stored with its message in one batch, in the execution's partition, and is durable when
the answer is given; the orchestrator takes it in from there. Its id makes it idempotent: the same
id with the same content is the same signal, however often it is sent.

What is certainly wrong is refused at once: a name that nothing in the workflow takes (the version
of an execution never changes, so nobody would ever take it), a payload that does not fit the
schema, an execution that has ended. If the execution ends at that very moment, the signal is kept
as an unmatched one.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from orchestrator.domain import jsonvalues
from orchestrator.domain.effects import Outgoing
from orchestrator.domain.errors import (
    ConflictError,
    ErrorDetail,
    InvalidError,
)
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.nearest import Nearest
from orchestrator.domain.signalling import MAX_BUFFERED, key_of
from orchestrator.domain.status import TERMINAL_EXECUTION, ExecutionStatus
from orchestrator.domain.taken import mark_of
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.workflow import Workflow
from orchestrator.engine import admission, audit, claimcheck, documents, inspect, outbox, relay
from orchestrator.engine import aggregate as aggregates
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.aside import faults_of
from orchestrator.engine.core import Engine
from orchestrator.engine.inspect import After
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.signal_docs import RAISED, RECEIVED, TYPE, knows
from orchestrator.engine.views_signals import SignalResult, SignalStatus, SignalView
from orchestrator.ports import Conflict, Create, Document, Query, Where

SHOWN_NAMES = 10
_Takers: TypeAlias = dict[str, tuple[int, int | None]]
"""Key of a signal that a task has, or mark of one that a map item has -> (task, item)."""
_OVER = TERMINAL_EXECUTION | {ExecutionStatus.COMPENSATING}
"""Nothing of it waits for a signal any more."""


async def send(
    engine: Engine,
    tenant: str,
    execution: str,
    name: str,
    payload: Json = None,
    *,
    id: str | None = None,
    sent_by: str = "",
    traceparent: str = "",
) -> SignalResult:
    """Store the signal and send its message. Durable when it returns.

    The same `id` with the same name and payload answers as the first time (`created` False), also
    when the execution has ended meanwhile. Raises `NotFoundError`, `ConflictError` (id used with
    other content; execution ended; too many signals that nobody took), `InvalidError` (unknown
    name; payload against its schema), `TooLargeError`."""
    partition = (tenant, execution)
    id = engine.ids.new() if id is None else id
    key = key_of(id)
    aggregate, known = await _look(engine, partition, key)
    digest = jsonvalues.body_hash({"name": name, "payload": payload})
    if known is not None:
        return _repeat(engine, known, digest)
    await _check(aggregate, name, payload)
    data = jsonvalues.dumps(payload)
    await admission.payload(engine, tenant, len(data), "the payload", "$.payload")
    if aggregate.workflow.hearer(name) is not None:
        admission.step(len(data), "the payload", "$.payload")
    kept = await claimcheck.store(engine, partition, documents.signal_id(key), data)
    now = engine.clock.now()
    doc: dict[str, Any] = {
        **documents.base(partition, documents.signal_id(key), TYPE),
        "key": key,
        "signalId": id,
        "name": name,
        "payload": kept.to_doc(),
        "requestHash": digest,
        "commit": engine.ids.new(),
        "receivedAt": now,
        "sentBy": sent_by,
        "status": RECEIVED,
        # After the outbox's own turn: it knows better what was sent.
        "sweepAt": now + engine.tunables.outbox_grace_ms + engine.tunables.retry_grace_ms,
    }
    message = Outgoing(Message(MessageType.SIGNAL_RECEIVED, *partition, key))
    # Its sender's trace is another one: the message links to it (`telemetry.TRACELINK`).
    sends = outbox.build(engine, partition, [message], now=now, header=aggregate.header)
    operations = [Create(doc), *(Create(entry) for entry in sends)]
    try:
        await patiently(engine, engine.store.batch, EXECUTIONS, partition, operations)
    except (Conflict, Unclear) as error:
        _, known = await _look(engine, partition, key)
        if known is None:
            raise error.error if isinstance(error, Unclear) else error from error
        if known.body["commit"] != doc["commit"]:
            return _repeat(engine, known, digest)
    engine.metrics.count("weft_signals_total", "accepted")
    await relay.send_now(engine, sends)
    await audit.record(
        engine,
        tenant,
        action="signal",
        execution=execution,
        by=sent_by,
        details={"signal": name},
        id=f"signal:{execution}:{key}",
    )
    return _result(doc, created=True)


async def _look(
    engine: Engine, partition: tuple[str, str], key: str
) -> tuple[Aggregate, Document | None]:
    """The execution, and the signal if it is known. Raises `NotFoundError`."""
    ids = [partition[1], documents.signal_id(key)]
    found = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, ids)
    if ids[0] not in found:
        raise inspect.unknown(partition[1])
    doc = found[ids[0]]
    return await aggregates.from_document(engine, doc.body, doc.etag, items=False), found.get(
        ids[1]
    )


async def _check(aggregate: Aggregate, name: str, payload: Json) -> None:
    state = aggregate.state
    if state.status in _OVER:
        raise ConflictError(
            f"the execution is {state.status.value}: it takes no signals any more",
            code="EXECUTION_ENDED",
        )
    workflow = aggregate.workflow
    if not workflow.takes(name):
        raise _unknown(workflow, name)
    waiting = workflow.signals.get(name)
    first = None if waiting is None else workflow.tasks[waiting[0]].listener
    schema = None if first is None else first.schema  # all tasks of a name agree
    faults = [] if schema is None else await faults_of(schema, payload, "$.payload")
    if faults:
        raise InvalidError(
            f"the payload does not fit the schema of signal {name!r}",
            code="PAYLOAD_INVALID",
            details=sorted(faults, key=lambda fault: fault.field),
        )
    if sum(map(len, state.signals.values())) >= MAX_BUFFERED:
        raise ConflictError(
            f"{MAX_BUFFERED:,} signals of this execution wait for a task that takes them; send "
            "more when some have been taken",
            code="TOO_MANY_SIGNALS",
        )


def _unknown(workflow: Workflow, name: str) -> InvalidError:
    names = sorted({*workflow.signals, *workflow.hears})
    hint = Nearest().hint(name, names)
    if not hint:
        shown = ", ".join(names[:SHOWN_NAMES])
        hint = f"its tasks wait for: {shown}" if names else "it has no signal task"
    message = f"no task of workflow {workflow.name!r} waits for a signal {name!r}"
    return InvalidError(
        f"{message} ({hint})",
        code="UNKNOWN_SIGNAL",
        details=[ErrorDetail("$.name", message, "UNKNOWN_SIGNAL", hint)],
    )


def _repeat(engine: Engine, known: Document, digest: str) -> SignalResult:
    if known.body["requestHash"] != digest:
        raise ConflictError(
            f"signal id {known.body['signalId']!r} was used before with another name or payload; "
            "use a new id, or send the same signal",
            code="SIGNAL_ID_REUSED",
        )
    engine.metrics.count("weft_duplicates_suppressed_total", "signal")
    return _result(known.body, created=False)


def _result(doc: dict[str, Any], *, created: bool) -> SignalResult:
    return SignalResult(
        id=doc["signalId"],
        name=doc["name"],
        execution=doc["executionId"],
        received_at=doc["receivedAt"],
        created=created,
    )


async def page(
    engine: Engine, tenant: str, execution: str, *, limit: int, after: After
) -> tuple[list[SignalView], After]:
    """A page of the execution's signals, oldest first, and where the next begins. Raises
    `NotFoundError`."""
    partition = (tenant, execution)
    aggregate, _ = await _look(engine, partition, "")
    query = Query(
        partition=partition,
        where=(Where("type", "=", TYPE), Where("tenantId", "=", tenant)),
        order_by="receivedAt",
        after=after,
        limit=limit,
    )
    found = await patiently(engine, engine.store.query, EXECUTIONS, query)
    state = aggregate.state
    takers: _Takers = {key: (task, None) for task, key in state.consumed.items()}
    takers |= {mark: place for place, mark in state.taken.items()}
    items = [_view(aggregate, takers, doc.body) for doc in found]
    more = (found[-1].body["receivedAt"], found[-1].id) if len(found) == limit else None
    return items, more


def _view(aggregate: Aggregate, takers: _Takers, doc: dict[str, Any]) -> SignalView:
    key, state = doc["key"], aggregate.state
    task, item = takers.get(key) or takers.get(mark_of(key)) or (None, None)
    raised = doc["status"] == RAISED
    if raised:
        task = aggregate.workflow.index[doc["task"]]
    if task is not None:
        status = SignalStatus.RAISED if raised else SignalStatus.CONSUMED
    elif state.status in _OVER:
        status = SignalStatus.UNMATCHED
    else:
        status = SignalStatus.BUFFERED if knows(state, key) else SignalStatus.RECEIVED
    return SignalView(
        id=doc["signalId"],
        name=doc["name"],
        received_at=doc["receivedAt"],
        sent_by=doc["sentBy"],
        bytes=doc["payload"]["bytes"],
        status=status,
        task=None if task is None else aggregate.workflow.tasks[task].id,
        item=item,
    )
