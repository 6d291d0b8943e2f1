"""Dead letters of events: those that a trigger could not take in, or that could not be read at all.

Documents of type `deadletter` and kind `event` in a partition of their own, (tenant, `_events`):

    id        dead:e{hash}    of trigger, source, id and content: a redelivery adds none
    reason    filterFailed | mappingFailed | startRefused | idReused | tooManyHops: `trigger` says
              of which trigger; unreadable: it was no event, `body` has what came; else the broker's
              words
    event     the whole event (claim check)
    executions    once it was retried: what it has started

Everything else is as in `letters`.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain.cloudevents import CloudEvent
from orchestrator.domain.failure import Failure, scrub
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.triggers import Trigger
from orchestrator.engine import claimcheck, documents, letters
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import Conflict

log = logging.getLogger(__name__)

PLACE = "_events"
"""Stands for an execution; no execution's id begins with an underscore."""
KIND = "event"
MAX_KEPT_BYTES = 64 * 1024
MAX_REASON_CHARS = 2_048


async def keep(
    engine: Engine,
    tenant: str,
    event: CloudEvent,
    trigger: Trigger | None,
    reason: str,
    failure: Failure | None = None,
) -> str:
    """Keep `event`, which `trigger` (None: all of them) could not take in; the letter's public id.
    Idempotent, also after somebody has resolved it. Raises what the store raises after
    `patiently` gave up."""
    name = trigger.name if trigger else ""
    key = f"{name}\0{event.source}\0{event.id}\0{event.content}"
    data = jsonvalues.dumps(dict(event.body))
    id = _id(key)
    payload = await claimcheck.store(engine, (tenant, PLACE), id, data)
    more: dict[str, Any] = {"event": payload.to_doc()}
    if trigger is not None:
        more |= {"trigger": name, "workflow": trigger.workflow}
    if failure is not None:
        more |= {"errorType": failure.type, "failure": failure.to_doc()}
    if trace := event.traceparent:
        more["traceparent"] = trace
    return await _store(engine, tenant, id, reason, more)


async def keep_unreadable(
    engine: Engine, tenant: str, body: bytes, failure: Failure, *, key: str = ""
) -> str:
    """Keep what is no event. `key`: what the sender calls it, such as a message id. As `keep`."""
    kept = body[:MAX_KEPT_BYTES]
    more: dict[str, Any] = {
        "errorType": failure.type,
        "failure": failure.bounded().to_doc(),
        "body": scrub(kept.decode("utf-8", errors="replace")),
        "truncated": len(kept) < len(body),
    }
    digest = hashlib.sha256(body).hexdigest()
    return await _store(engine, tenant, _id(f"{key}\0{digest}"), "unreadable", more)


def _id(key: str) -> str:
    return f"dead:e{hashlib.sha256(key.encode()).hexdigest()}"


async def _store(engine: Engine, tenant: str, id: str, reason: str, more: dict[str, Any]) -> str:
    partition = (tenant, PLACE)
    doc: dict[str, Any] = {
        **documents.base(partition, id, letters.TYPE),
        "createdAt": engine.clock.now(),
        "status": letters.LetterStatus.OPEN.value,
        "kind": KIND,
        "reason": scrub(reason)[:MAX_REASON_CHARS],
        "attempt": 0,
        "attempts": [],
        **more,
    }
    public = f"{PLACE}~{id.removeprefix('dead:')}"
    try:
        await patiently(engine, engine.store.create, EXECUTIONS, partition, doc)
    except (Conflict, Unclear):
        return public  # kept before, or by this very call
    engine.metrics.count("weft_dead_letters_total", KIND)
    log.error(
        "event kept as a dead letter",
        extra={
            "action": "event.dead",
            "letter": public,
            "trigger": more.get("trigger", ""),
            "reason": reason[:256],
        },
    )
    return public
