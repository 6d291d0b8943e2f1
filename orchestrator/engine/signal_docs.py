"""Stored signals, as the orchestrator meets them: what arrived, what a payload is, what is settled.

A signal is one document, `signal:{key}`, written once by the API together with its message:

    signalId, name, payload (claim check), receivedAt, requestHash
    status      RECEIVED, then TAKEN once an execution's state knows it; RAISED once it was
                handed to an orchestration (`signals_raised`), with `task` and `instance`
    sweepAt     while it is not known that the state has heard of the status: the sweeper sends
                `signalReceived` again by then

The state is the truth about what was taken; `status` is set after the commit and only spares the
sweeper a look. A mark that got lost leads to one more message, which finds nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from orchestrator.domain.inputs import SignalArrived, SignalHandedOver
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.payload import Payload
from orchestrator.domain.signalling import MAX_BUFFERED
from orchestrator.domain.state import ExecutionState
from orchestrator.domain.taken import mark_of
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.workflow import TaskType
from orchestrator.engine import claimcheck, documents
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import Document, Query, StoreError, Unavailable, Where

log = logging.getLogger(__name__)

TYPE = "signal"
RECEIVED = "RECEIVED"
TAKEN = "TAKEN"
RAISED = "RAISED"
WRITES_AT_ONCE = 16


def named(messages: Iterable[Message]) -> list[str]:
    """The keys of the signals that these messages are about."""
    kind = MessageType.SIGNAL_RECEIVED
    return [message.task for message in messages if message.type is kind]


def knows(state: ExecutionState, key: str) -> bool:
    """Whether the state has taken this signal in."""
    buffered = any(key in keys for keys in state.signals.values())
    return buffered or key in state.consumed.values() or mark_of(key) in state.taken.values()


def unseen(state: ExecutionState, messages: Sequence[Message]) -> list[Message]:
    """Messages about signals that this state, after a decision, still does not know: a replica may
    not show their documents yet."""
    kind = MessageType.SIGNAL_RECEIVED
    return [one for one in messages if one.type is kind and not knows(state, one.task)]


async def still_unseen(
    engine: Engine, partition: tuple[str, str], messages: Sequence[Message]
) -> list[Message]:
    """Those of the unseen whose document does not explain it: what was raised, the state has
    forgotten."""
    found = await _read(engine, partition, named(messages))
    raised = {doc.body["key"] for doc in found.values() if doc.body["status"] == RAISED}
    if raised:
        await settle(engine, partition, raised)
    return [one for one in messages if one.task not in raised]


async def arrivals(
    engine: Engine, aggregate: Aggregate, messages: Sequence[Message]
) -> list[SignalArrived | SignalHandedOver]:
    """The signals that these messages stand for: they came, or were raised. A CHECK asks for all
    that are stored and were not taken in; so does a timer that ends the wait for a signal: what
    came before it counts, although its message may be lost."""
    if not aggregate.workflow.takes_signals:
        return []
    partition = aggregate.partition
    found = await _read(engine, partition, named(messages))
    if _looks(engine, aggregate, messages):
        found |= {doc.id: doc for doc in await untaken(engine, partition)}
    return [_input(doc.body) for doc in found.values()]


def _input(body: dict[str, Any]) -> SignalArrived | SignalHandedOver:
    if body["status"] == RAISED:
        return SignalHandedOver(id=body["key"], name=body["name"])
    return SignalArrived(id=body["key"], name=body["name"], received_at=body["receivedAt"])


def _looks(engine: Engine, aggregate: Aggregate, messages: Sequence[Message]) -> bool:
    kinds = {message.type for message in messages}
    if MessageType.CHECK in kinds:
        return True
    now, tasks, state = engine.clock.now(), aggregate.workflow.tasks, aggregate.state
    return MessageType.TIMER_DUE in kinds and any(
        due_at <= now and tasks[task].type is TaskType.SIGNAL
        for task, due_at in (*state.waits.items(), *state.deadlines.items())
    )


async def untaken(engine: Engine, partition: tuple[str, str]) -> list[Document]:
    """Signals that are not marked as taken in, the oldest first, as many as the state can buffer.
    A mark may be missing: see `knows`."""
    query = Query(
        partition=partition,
        where=(Where("type", "=", TYPE), Where("status", "=", RECEIVED)),
        order_by="receivedAt",
        limit=MAX_BUFFERED,
    )
    found = await patiently(engine, engine.store.query, EXECUTIONS, query)
    return [*documents.checked({doc.id: doc for doc in found}).values()]


async def _read(
    engine: Engine, partition: tuple[str, str], keys: Collection[str]
) -> dict[str, Document]:
    if not keys:
        return {}
    ids = [documents.signal_id(key) for key in sorted(set(keys))]
    found = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, ids)
    return documents.checked(found)


async def stored_payloads(
    engine: Engine, partition: tuple[str, str], keys: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Key -> the stored form of its payload, not loaded. Raises `Unavailable` while a replica does
    not show one of them."""
    found = await _read(engine, partition, keys)
    if len(found) < len(set(keys)):
        raise Unavailable("a signal is not visible yet")
    return {key: found[documents.signal_id(key)].body["payload"] for key in sorted(set(keys))}


async def payloads(
    engine: Engine, partition: tuple[str, str], keys: Collection[str]
) -> dict[str, Json]:
    """Key -> payload. Raises as `stored_payloads` does."""
    stored = await stored_payloads(engine, partition, keys)
    return {
        key: await claimcheck.load(engine, Payload.from_doc(doc)) for key, doc in stored.items()
    }


async def settle(engine: Engine, partition: tuple[str, str], keys: Collection[str]) -> None:
    """Mark signals that the state has taken in. Never raises: the sweeper finds what is left."""
    await _mark(engine, partition, keys, {"status": TAKEN})


async def put_away(engine: Engine, partition: tuple[str, str], messages: Sequence[Message]) -> None:
    """Signals that came when the execution ended, or began to undo: nobody asks for them any more.
    They stay RECEIVED: if an operator takes the execution up again, its next check finds them."""
    await _mark(engine, partition, named(messages), {})


async def _mark(
    engine: Engine, partition: tuple[str, str], keys: Collection[str], change: dict[str, Any]
) -> None:
    try:
        found = await _read(engine, partition, keys)
        due = [doc for doc in found.values() if "sweepAt" in doc.body]
        for at in range(0, len(due), WRITES_AT_ONCE):
            some = due[at : at + WRITES_AT_ONCE]
            await asyncio.gather(*(_mark_one(engine, partition, doc, change) for doc in some))
    except (StoreError, Unclear) as error:
        log.warning(
            "signal not marked, the sweeper will ask again",
            extra={
                "action": "signal.not_marked",
                "execution": partition[1],
                "error": type(error).__name__,
            },
        )


async def _mark_one(
    engine: Engine, partition: tuple[str, str], doc: Document, change: dict[str, Any]
) -> None:
    body = {key: value for key, value in doc.body.items() if key != "sweepAt"}
    if doc.body["status"] != RAISED:
        body |= change
    await patiently(engine, engine.store.replace, EXECUTIONS, partition, body, if_match=doc.etag)
