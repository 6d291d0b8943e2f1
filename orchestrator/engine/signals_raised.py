"""Signals for the orchestration of a `durable` task: a worker raises them as external events.

    API            signal document RECEIVED, message to the orchestrator
    orchestrator   into the state's buffer (`signalReceived`), message to the task
    worker         raises it; the document says RAISED, message to the orchestrator
    orchestrator   out of the buffer (`signalRaised`)

The document is what says that it was raised, so the state need not remember it, and an execution
may take any number of signals. A crash between raising and recording raises it once more: the
envelope holds its id, by which the instance drops doubles.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from orchestrator.domain.effects import Outgoing
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.orchestration import SignalEnvelope
from orchestrator.domain.payload import Payload
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import documents, outbox, relay
from orchestrator.engine.core import Engine
from orchestrator.engine.parked import Parked
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.signal_docs import RAISED
from orchestrator.ports import Create, Document, NotFound, PreconditionFailed, Replace

AT_ONCE = 25
"""Signals that one look raises."""
MARK_ATTEMPTS = 4

Ask = Callable[[Engine, Callable[[Any], Awaitable[None]]], Awaitable[None]]


async def hand_over(engine: Engine, found: Parked, instance: str, ask: Ask) -> bool:
    """Raise the signals that are buffered for the task, oldest first; whether any are left, or
    cannot be seen yet. Raises as `ask` does, and what the store raises."""
    if found.item is not None:
        return False
    workflow, state = found.aggregate.workflow, found.aggregate.state
    names = [name for name in state.signals if workflow.hearer(name) == found.position]
    ids = [documents.signal_id(key) for name in names for key in state.signals[name]]
    if not ids:
        return False
    partition = found.aggregate.partition
    docs = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, ids)
    waiting = sorted(docs.values(), key=lambda doc: (doc.body["receivedAt"], doc.id))
    for doc in waiting[:AT_ONCE]:
        if doc.body["status"] != RAISED:
            event = _event(doc.body)
            name = doc.body["name"]
            try:
                await ask(engine, _raising(instance, name, event))
            except NotFound:
                return False  # it has ended: the next look sees that
        await _mark(engine, found, doc, instance)
    return len(ids) > AT_ONCE or len(docs) < len(ids)


def _raising(instance: str, name: str, event: str) -> Callable[[Any], Awaitable[None]]:
    return lambda hub: hub.raise_event(instance, name, event)


def _event(body: dict[str, Any]) -> str:
    payload = Payload.from_doc(body["payload"])
    return SignalEnvelope(
        id=body["signalId"],
        at=body["receivedAt"],
        payload=payload.text,
        payload_ref=None if payload.ref is None else payload,
    ).encode()


async def _mark(engine: Engine, found: Parked, doc: Document, instance: str) -> None:
    """The document says that it was raised, and the orchestrator is told. Whoever changes it
    meanwhile only marks that it was taken in."""
    partition, now = found.aggregate.partition, engine.clock.now()
    message = Outgoing(Message(MessageType.SIGNAL_RECEIVED, *partition, doc.body["key"]))
    for _ in range(MARK_ATTEMPTS):
        grace = engine.tunables.outbox_grace_ms + engine.tunables.retry_grace_ms
        body = {
            **doc.body,
            "status": RAISED,
            "task": found.doc["task"],
            "instance": instance,
            "sweepAt": now + grace,
        }
        sends = outbox.build(engine, partition, [message], now=now)
        operations = [Replace(body, doc.etag), *(Create(entry) for entry in sends)]
        try:
            await patiently(engine, engine.store.batch, EXECUTIONS, partition, operations)
        except (PreconditionFailed, Unclear):
            ids = [doc.id]
            docs = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, ids)
            if doc.id not in docs:
                return
            doc = docs[doc.id]
            continue
        await relay.send_now(engine, sends)
        return
