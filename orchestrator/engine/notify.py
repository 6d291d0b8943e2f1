"""Tell that an execution has ended: claim, send, record, as a task's attempt does.

Delivery is at least once: if a worker dies between sending and recording, it is sent again under
the same event id. What cannot be delivered (`notify_send`) becomes a dead letter of kind
`notification`.
"""

from __future__ import annotations

import logging
from typing import Any

from orchestrator.domain.effects import Outgoing
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.retry import is_retryable, next_delay
from orchestrator.domain.status import TaskStatus
from orchestrator.domain.topology import EXECUTIONS, MAX_SCHEDULE_AHEAD_MS, TASKS_STANDARD_QUEUE
from orchestrator.domain.workflow import NotifySpec
from orchestrator.engine import aggregate as aggregates
from orchestrator.engine import (
    deadletters,
    documents,
    handback,
    letters,
    notify_send,
    outbox,
    relay,
    task_docs,
    telemetry,
)
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.documents import NewerSchema
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import (
    Conflict,
    Create,
    Document,
    NotFound,
    PreconditionFailed,
    Replace,
    Throttled,
    Unavailable,
)

log = logging.getLogger(__name__)

LEASE_MS = 30_000
"""Longer than an attempt may take (`notify_send.SEND_MS`), so nothing has to renew it."""


async def handle(engine: Engine, message: Message, incoming: Incoming) -> None:
    """Take one message. Raises only if neither the store nor the broker can be reached."""
    try:
        await _deliver(engine, message, incoming)
    except (Throttled, Unavailable, NewerSchema) as error:
        log.warning(
            "notification not sent, its message is handed back",
            extra={"action": "notify.handed_back", "error": type(error).__name__},
        )
        await handback.send(engine, [message], [incoming])
    except Exception as error:
        log.exception(
            "notification cannot be sent, its message becomes a dead letter",
            extra={"action": "notify.poisoned", "execution": message.execution},
        )
        reason = f"notification {message.task}: {type(error).__name__}"
        await deadletters.capture(engine, incoming, queue=TASKS_STANDARD_QUEUE, reason=reason)


async def _deliver(engine: Engine, message: Message, incoming: Incoming) -> None:
    partition = (message.tenant, message.execution)
    ids = [partition[1], documents.notification_id(message.task)]
    found = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, ids)
    if len(found) < len(ids):
        stale = handback.STALE_READ_MS
        await handback.send(
            engine, [message], [incoming], delay_ms=stale, max_hops=handback.MAX_STALE_HOPS
        )
        return
    stored, execution = found[ids[1]], found[ids[0]]
    now = engine.clock.now()
    early = stored.body.get("dueAt", 0) - now
    if not _is_due(stored.body, now):
        if 0 < early <= handback.CLOCK_SKEW_MS:
            await handback.send(engine, [message], [incoming], delay_ms=early)
        return
    aggregate = await aggregates.from_document(engine, execution.body, execution.etag, items=False)
    number: int = stored.body["number"]
    spec = aggregate.workflow.notify[number]
    claim = await _claim(engine, aggregate, spec, stored, now)
    if claim is None:
        return
    doc, etag = claim
    with telemetry.span(
        engine.tracer,
        "notify",
        parent=aggregate.traceparent,
        kind="consumer",
        links=telemetry.links_of([incoming]),
        about={"tenant": partition[0], "execution": partition[1], "attempt": doc["attempt"]},
    ) as span:
        failure = await notify_send.send(engine, aggregate, spec, doc)
        if failure is not None:
            span.fail(failure.type)
        await _record(engine, aggregate, spec, doc, etag, failure)


def _is_due(doc: dict[str, Any], now: int) -> bool:
    """Whether nobody has sent it, works on it, or waits for its next attempt."""
    if doc["status"] in task_docs.FINAL:
        return False
    if doc["status"] == TaskStatus.RUNNING.value:
        return doc["lease"]["until"] <= now
    return doc.get("dueAt", 0) <= now


async def _claim(
    engine: Engine, aggregate: Aggregate, spec: NotifySpec, stored: Document, now: int
) -> tuple[dict[str, Any], str] | None:
    """The document with our lease, and its ETag; None if somebody else has it, or if it has died
    with its last attempt."""
    doc = {key: value for key, value in stored.body.items() if key not in ("dueAt", "recorded")}
    if doc["status"] == TaskStatus.RUNNING.value:
        gone = Failure(
            type=FailureType.LEASE_EXPIRED,
            message=f"worker {doc['lease']['worker']} stopped before it said how it ended",
        )
        if _delay(aggregate, spec, doc, gone) is None:
            await _record(engine, aggregate, spec, doc, stored.etag, gone)
            return None
        last = {**doc["attempts"][-1], "endedAt": now, "error": gone.to_doc()}
        doc["attempts"] = [*doc["attempts"][:-1], last]
    token = engine.ids.new()
    doc |= {
        "status": TaskStatus.RUNNING.value,
        "attempt": doc["attempt"] + 1,
        "attempts": [
            *doc["attempts"][1 - task_docs.MAX_KEPT_ATTEMPTS :],
            {"attempt": doc["attempt"] + 1, "worker": engine.worker, "startedAt": now},
        ],
        "lease": {"worker": engine.worker, "token": token, "until": now + LEASE_MS, "beatAt": now},
        "sweepAt": now + LEASE_MS,
    }
    partition = aggregate.partition
    try:
        etag = await patiently(
            engine, engine.store.replace, EXECUTIONS, partition, doc, if_match=stored.etag
        )
    except (Conflict, PreconditionFailed, NotFound):
        return None
    except Unclear:
        found = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, [doc["id"]])
        mine = found.get(doc["id"])
        if mine is None or mine.body.get("lease", {}).get("token") != token:
            return None
        etag = mine.etag
    return doc, etag


async def _record(
    engine: Engine,
    aggregate: Aggregate,
    spec: NotifySpec,
    doc: dict[str, Any],
    etag: str,
    failure: Failure | None,
) -> None:
    """How the attempt ended, with the message of the next one or with the dead letter. A lost lease
    drops it: whoever has it now sends under the same event id."""
    now, partition = engine.clock.now(), aggregate.partition
    body = {key: value for key, value in doc.items() if key not in ("lease", "sweepAt")}
    last = {**doc["attempts"][-1], "endedAt": now}
    outgoing: list[Outgoing] = []
    letter: dict[str, Any] | None = None
    if failure is None:
        body |= {"status": TaskStatus.COMPLETED.value, "endedAt": now}
    else:
        failure = failure.bounded()
        last["error"] = failure.to_doc()
        delay = _delay(aggregate, spec, doc, failure)
        if delay is None:
            body |= {"status": TaskStatus.DEAD_LETTERED.value, "endedAt": now}
        else:
            due_at = now + delay
            body |= {"status": TaskStatus.RETRYING.value, "dueAt": due_at}
            body["sweepAt"] = due_at + engine.tunables.retry_grace_ms
            if delay <= MAX_SCHEDULE_AHEAD_MS:
                message = Message(MessageType.NOTIFY, *partition, doc["key"])
                outgoing.append(Outgoing(message, due_at))
    body["attempts"] = [*doc["attempts"][:-1], last]
    body["recorded"] = engine.ids.new()
    if failure is not None and body["status"] == TaskStatus.DEAD_LETTERED.value:
        retryable = is_retryable(spec.retry, failure)
        letter = letters.of_notification(aggregate, body, failure, now, retryable=retryable)
    sends = outbox.build(engine, partition, outgoing, now=now, header=aggregate.header)
    operations = [Replace(body, etag), *(Create(entry) for entry in sends)]
    if letter is not None:
        operations.append(Create(letter))
    try:
        await patiently(engine, engine.store.batch, EXECUTIONS, partition, list(operations))
    except (PreconditionFailed, Conflict, NotFound):
        return
    except Unclear:
        found = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, [doc["id"]])
        mine = found.get(doc["id"])
        if mine is None or mine.body.get("recorded") != body["recorded"]:
            return
    engine.metrics.count("weft_notifications_total", body["status"])
    if letter is not None:
        engine.metrics.count("weft_dead_letters_total", letter["kind"])
    await relay.send_now(engine, sends)


def _delay(
    aggregate: Aggregate, spec: NotifySpec, doc: dict[str, Any], failure: Failure
) -> int | None:
    if not is_retryable(spec.retry, failure):
        return None
    return next_delay(
        spec.retry,
        attempt=task_docs.counted(doc),
        key=f"{aggregate.execution}:{doc['id']}",
        retry_after_ms=failure.retry_after_ms,
    )
