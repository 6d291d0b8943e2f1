"""Signals for the orchestration of a `durable` task: a worker raises them as external events.

    API            signal document RECEIVED, message to the orchestrator
    orchestrator   into the state's buffer (`signalReceived`), message to the task
    worker         raises it; the document says RAISED, message to the orchestrator
    orchestrator   out of the buffer (`signalRaised`)

One worker at a time does that (`raisingUntil` in the task's document). The signal's document is
what says that it was raised, so the state need not remember it, and an execution may take any
number of signals. A crash between raising and recording raises it once more: the envelope holds its
id, by which the instance drops doubles.
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
from orchestrator.engine.parked import Parked, rewrite
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.signal_docs import RAISED
from orchestrator.ports import Create, Document, NotFound, PreconditionFailed, Replace

AT_ONCE = 25
"""Signals that one look raises."""
TURN_MS = 15_000
"""How long a worker has its turn at most; it gives it back when it is done. Without turns, workers
that look at the same time would each raise all of them."""
MARK_ATTEMPTS = 4

Ask = Callable[[Engine, Callable[[Any], Awaitable[None]]], Awaitable[None]]


async def hand_over(engine: Engine, found: Parked, instance: str, ask: Ask) -> bool:
    """Raise the signals that are buffered for the task, oldest first; whether somebody must look
    again soon. Raises as `ask` does, and what the store raises."""
    if found.item is not None:
        return False
    workflow, state = found.aggregate.workflow, found.aggregate.state
    names = [name for name in state.signals if workflow.hearer(name) == found.position]
    ids = [documents.signal_id(key) for name in names for key in state.signals[name]]
    if not ids:
        return False
    docs = await _unraised(engine, found, ids)
    if not docs:
        return False  # word of them is on its way
    now, noted = engine.clock.now(), found.doc["instance"]
    if noted.get("raisingUntil", 0) > now:
        return True
    turn = {**noted, "raisingUntil": now + TURN_MS}
    mine = await rewrite(engine, found, {**found.doc, "instance": turn})
    if mine is None:
        return True
    # Before we had our turn somebody else may have raised some.
    docs = await _unraised(engine, found, [doc.id for doc in docs])
    try:
        for doc in docs[:AT_ONCE]:
            try:
                await ask(engine, _raising(instance, doc.body["name"], _event(doc.body)))
            except NotFound:
                break  # it has ended: the next look sees that
            await _mark(engine, found, doc, instance)
    except Exception:
        soon = min(mine.doc["sweepAt"], now + engine.tunables.silence_ms)
        await rewrite(engine, mine, {**mine.doc, "instance": noted, "sweepAt": soon})
        raise
    await rewrite(engine, mine, {**mine.doc, "instance": noted})
    return len(docs) > AT_ONCE


async def _unraised(engine: Engine, found: Parked, ids: list[str]) -> list[Document]:
    partition = found.aggregate.partition
    docs = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, ids)
    waiting = [doc for doc in docs.values() if doc.body["status"] != RAISED]
    return sorted(waiting, key=lambda doc: (doc.body["receivedAt"], doc.id))


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
        sends = outbox.build(engine, partition, [message], now=now, header={})
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
