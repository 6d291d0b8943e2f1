"""The sweeper: finds by `sweepAt` what is overdue, whatever lost it, and sets it going again.

Stuck is impossible, not unlikely: every document that waits for a message says until when. The
sweeper needs no change feed and no memory; it must be enough alone. It only sends messages: what
they find is decided by the orchestrator and the workers, under their ETags, so that any number of
sweepers does no harm.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.priority import Priority
from orchestrator.domain.status import TaskStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import notify_docs, outbox, relay, repairs, signal_docs, slots, telemetry
from orchestrator.engine.core import Engine
from orchestrator.engine.lru import Lru
from orchestrator.engine.resilience import patiently
from orchestrator.engine.silence import is_postponed
from orchestrator.engine.views import SweepReport
from orchestrator.ports import OutMessage, Query, TransportError, Where

log = logging.getLogger(__name__)

CALLS = {
    "task": MessageType.RUN_TASK,
    signal_docs.TYPE: MessageType.SIGNAL_RECEIVED,
    notify_docs.TYPE: MessageType.NOTIFY,
    "execution": MessageType.CHECK,
}
"""Type of a document that waits -> what is sent when it waits for too long."""
KEYED = (signal_docs.TYPE, notify_docs.TYPE)
MAX_PAGES = 50
REMEMBERED = 100_000


class _Swept:
    """What this process sent lately, so that a backlog is not sent again every few seconds while
    its messages wait in the queue."""

    def __init__(self, engine: Engine) -> None:
        self.sent: Lru[int] = Lru(REMEMBERED)


async def sweep(engine: Engine) -> SweepReport:
    """One pass over everything overdue. What cannot be sent now is found by the next pass, and
    neither reported nor counted as a repair by this one."""
    now = engine.clock.now()
    outboxes = 0
    tasks: list[OutMessage] = []
    signals: list[OutMessage] = []
    notifications: list[OutMessage] = []
    executions: list[OutMessage] = []
    looks: list[OutMessage] = []
    swept: list[tuple[object, ...]] = []
    found: Counter[str] = Counter()
    for doc in await _overdue(engine, "outbox", now):
        outboxes += await relay.relay_documents(engine, [doc], repair=True)
    for doc in await _overdue(engine, "task", now):
        if not _recently(engine, doc, now) and not await is_postponed(engine, doc):
            # A task that waits for a child or a time is looked at now and then: nothing was lost.
            sending = looks if doc["status"] == TaskStatus.WAITING.value else tasks
            sending.append(call_for(engine, doc))
            if (lost := repairs.of_task(doc)) is not None:
                found[lost] += 1
            swept.append(_key(doc))
    for doc in await _overdue(engine, signal_docs.TYPE, now):
        if not _recently(engine, doc, now):
            signals.append(call_for(engine, doc))
            swept.append(_key(doc))
    for doc in await _overdue(engine, notify_docs.TYPE, now):
        if not _recently(engine, doc, now):
            notifications.append(call_for(engine, doc))
            swept.append(_key(doc))
    for doc in await _overdue(engine, "execution", now):
        if not _recently(engine, doc, now):
            executions.append(call_for(engine, doc))
            swept.append(_key(doc))
    await slots.recount(engine)
    if not await _send(engine, tasks + signals + notifications + looks + executions):
        return SweepReport(outboxes=outboxes)
    for key in swept:
        engine.part(_Swept).sent.put(key, now)
    for label, number in found.items():
        repairs.count(engine, label, number)
    repairs.count(engine, "signal", len(signals))
    repairs.count(engine, "notification", len(notifications))
    engine.metrics.count("weft_checks_total", by=len(executions) + len(looks))
    report = SweepReport(
        outboxes=outboxes,
        tasks=len(tasks),
        signals=len(signals),
        notifications=len(notifications),
        executions=len(executions),
    )
    if outboxes or tasks or signals or notifications:
        log.warning(
            "sweeper sent what was overdue: %s outbox entries, %s tasks, %s signals, "
            "%s notifications",
            outboxes,
            len(tasks),
            len(signals),
            len(notifications),
            extra={"action": "sweep.repaired"},
        )
    return report


async def _overdue(engine: Engine, kind: str, now: int) -> list[dict[str, Any]]:
    """Documents of this type whose `sweepAt` has passed, oldest first."""
    result: list[dict[str, Any]] = []
    after: tuple[str | int, str] | None = None
    for _ in range(MAX_PAGES):
        query = Query(
            where=(Where("type", "=", kind), Where("sweepAt", "<=", now)),
            order_by="sweepAt",
            after=after,
            limit=engine.tunables.sweep_page,
        )
        found = await patiently(engine, engine.store.query, EXECUTIONS, query)
        result += [doc.body for doc in found]
        if len(found) < query.limit:
            break
        after = (found[-1].body["sweepAt"], found[-1].id)
    return result


def _key(doc: dict[str, Any]) -> tuple[object, ...]:
    return (doc["tenantId"], doc["executionId"], doc["id"], doc["sweepAt"])


def _recently(engine: Engine, doc: dict[str, Any], now: int) -> bool:
    last = engine.part(_Swept).sent.get(_key(doc))
    return last is not None and now - last < engine.tunables.silence_ms


def call_for(engine: Engine, doc: dict[str, Any]) -> OutMessage:
    """What sets a document of `CALLS` going again. A fresh message id each time: one used before
    would be dropped as a duplicate."""
    task = doc.get("key", "") if doc["type"] in KEYED else doc.get("task", "")
    where = (doc["tenantId"], doc["executionId"], task, doc.get("item"))
    message = Message(CALLS[doc["type"]], *where, Priority.of(doc))
    trace = doc.get(telemetry.TRACEPARENT, "")  # of executions; a worker looks for itself
    return outbox.out_message(message, engine.ids.new(), traceparent=trace)


async def _send(engine: Engine, messages: list[OutMessage]) -> bool:
    """Whether they were sent; if not, the next pass does it."""
    if not messages:
        return True
    try:
        await engine.transport.send(messages)
    except TransportError as error:
        log.warning(
            "sweeper could not send, the next pass will",
            extra={"action": "sweep.failed", "error": type(error).__name__},
        )
        return False
    return True
