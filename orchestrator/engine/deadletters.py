"""Messages that cannot be handled are kept, never dropped and never thrown back at the broker.

A batch trigger settles all or nothing, so raising for one bad message would punish its neighbours;
and a message that cannot be read will not become readable by being delivered again. The same holds
for what the broker itself gave up (delivered too often, expired): triggers on its dead-letter
queues bring it here, and settle the broker's copy only after our record is stored.

The record is a `deadletter` document of kind `message` (see `letters`), in the partition of the
execution that it names, so that its tenant finds it; one that names none that exists is kept in the
platform's own partition.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from orchestrator.domain.failure import scrub
from orchestrator.domain.messages import BadMessage, Message, MessageType, decode
from orchestrator.domain.topology import DEAD_LETTER_SUFFIX, EXECUTIONS
from orchestrator.engine import documents, letters
from orchestrator.engine.core import Engine
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.resilience import patiently
from orchestrator.ports import BadDocument, Conflict

log = logging.getLogger(__name__)

MAX_KEPT_BYTES = 64 * 1024
REASON_PROPERTY = "DeadLetterReason"
DESCRIPTION_PROPERTY = "DeadLetterErrorDescription"


async def capture_dead(engine: Engine, incoming: Incoming, *, queue: str) -> None:
    """Keep a message of `queue`'s dead-letter queue, with the broker's reason. Raises as `capture`
    does."""
    await capture(engine, incoming, queue=queue + DEAD_LETTER_SUFFIX, reason=said(incoming))


def said(incoming: Incoming) -> str:
    """Why the broker gave a message up, in its words."""
    words = (
        incoming.properties.get(REASON_PROPERTY),
        incoming.properties.get(DESCRIPTION_PROPERTY),
    )
    return ": ".join(text for text in words if text) or "dead-lettered by the broker"


async def capture(engine: Engine, incoming: Incoming, *, queue: str, reason: str) -> None:
    """Keep `incoming` with `reason`. Idempotent by message id: one record however often it comes,
    also after somebody has resolved it. Raises what the store raises after `patiently` gave up: the
    host then abandons the message."""
    body = incoming.body[:MAX_KEPT_BYTES]
    key = incoming.message_id or hashlib.sha256(incoming.body).hexdigest()
    message, header = await _named(engine, incoming.body)
    partition = documents.SYSTEM_DEAD_LETTERS
    if message is not None:
        partition = (message.tenant, message.execution)
    # An `m` before the hash: no letter of a task looks like it.
    id = "dead:m" + hashlib.sha256(key.encode()).hexdigest()
    doc = documents.base(partition, id, letters.TYPE)
    doc |= {
        "createdAt": engine.clock.now(),
        "status": letters.LetterStatus.OPEN.value,
        "kind": "message",
        "queue": queue,
        "messageId": incoming.message_id,
        "deliveryCount": incoming.delivery_count,
        "reason": scrub(reason)[:2048],
        "attempt": 0,
        "attempts": [],
        "body": scrub(body.decode("utf-8", errors="replace")),
        "truncated": len(body) < len(incoming.body),
        **header,
    }
    try:
        await patiently(engine, engine.store.create, EXECUTIONS, partition, doc)
    except Conflict:
        return  # kept before
    engine.metrics.count("weft_dead_letters_total", "message")
    log.error(
        "message kept as a dead letter",
        extra={
            "action": "deadletter.captured",
            "queue": queue,
            "message_id": incoming.message_id,
            "reason": reason[:256],
        },
    )


async def _named(engine: Engine, body: bytes) -> tuple[Message | None, dict[str, Any]]:
    """The message, if it can be read and its execution exists, and what the letter says of it."""
    try:
        message = decode(body)
        partition = (message.tenant, message.execution)
        found = await patiently(
            engine, engine.store.read_many, EXECUTIONS, partition, [message.execution]
        )
    except (BadMessage, BadDocument):
        return None, {}
    doc = found.get(message.execution)
    if doc is None:
        return None, {}
    header = {"workflow": doc.body.get("workflow"), "version": doc.body.get("version")}
    if message.type in (MessageType.RUN_TASK, MessageType.TASK_FINISHED):
        header |= {"task": message.task, "item": message.item}
    return message, {name: value for name, value in header.items() if value is not None}
