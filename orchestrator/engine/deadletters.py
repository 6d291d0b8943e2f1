"""Messages that cannot be handled are kept, never dropped and never thrown back at the broker.

A batch trigger settles all or nothing, so raising for one bad message would punish its neighbours;
and a message that cannot be read will not become readable by being delivered again. So it becomes
a `deadletter` document in the platform's own partition, where an operator finds it.
"""

from __future__ import annotations

import hashlib
import logging

from orchestrator.domain.failure import scrub
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import documents
from orchestrator.engine.core import Engine
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.resilience import patiently

log = logging.getLogger(__name__)

MAX_KEPT_BYTES = 64 * 1024


async def capture(engine: Engine, incoming: Incoming, *, queue: str, reason: str) -> None:
    """Keep `incoming` with `reason`. Idempotent by message id: one record however often it comes.
    Raises what the store raises after `patiently` gave up: the host then abandons the message."""
    body = incoming.body[:MAX_KEPT_BYTES]
    key = incoming.message_id or hashlib.sha256(incoming.body).hexdigest()
    doc = documents.base(
        documents.SYSTEM_DEAD_LETTERS,
        "dead:" + hashlib.sha256(key.encode()).hexdigest(),
        "deadletter",
    )
    doc |= {
        "createdAt": engine.clock.now(),
        "queue": queue,
        "messageId": incoming.message_id,
        "deliveryCount": incoming.delivery_count,
        "reason": scrub(reason)[:2048],
        "body": body.decode("utf-8", errors="replace"),
        "truncated": len(body) < len(incoming.body),
    }
    await patiently(
        engine,
        engine.store.upsert,
        EXECUTIONS,
        documents.SYSTEM_DEAD_LETTERS,
        doc,
    )
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
