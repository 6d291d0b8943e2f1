"""The sweeper: finds by `sweepAt` what is overdue, whatever lost it, and sets it going again.

Stuck is impossible, not unlikely: every document that waits for a message says until when. The
sweeper needs no change feed and no memory; it must be enough alone. It only sends messages: what
they find is decided by the orchestrator and the workers, under their ETags, so that any number of
sweepers does no harm.
"""

from __future__ import annotations

import logging
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
    for doc in await _overdue(engine, "outbox", now):
        outboxes += await relay.relay_documents(engine, [doc], repair=True)
    waiting: dict[str, list[dict[str, Any]]] = {}
    for kind in CALLS:
        found = await _overdue(engine, kind, now)
        waiting[kind] = [doc for doc in found if not _recently(engine, doc, now)]
    waiting["task"] = [doc for doc in waiting["task"] if not await _postponed(engine, doc, now)]
    await slots.recount(engine)
    calls = [doc for docs in waiting.values() for doc in docs]
    if not await _send(engine, [call_for(engine, doc) for doc in calls]):
        return SweepReport(outboxes=outboxes)
    for doc in calls:
        engine.part(_Swept).sent.put(_key(doc), now)
    return _counted(engine, outboxes, waiting)


def _counted(
    engine: Engine, outboxes: int, waiting: dict[str, list[dict[str, Any]]]
) -> SweepReport:
    """What was lost, in the metrics, the log and the report. A look is none of it: at a task that
    waits for a child or a time, and at an execution that is only silent."""
    looks = [doc for doc in waiting["task"] if doc["status"] == TaskStatus.WAITING.value]
    report = SweepReport(
        outboxes=outboxes,
        tasks=len(waiting["task"]) - len(looks),
        signals=len(waiting[signal_docs.TYPE]),
        notifications=len(waiting[notify_docs.TYPE]),
        executions=len(waiting["execution"]),
    )
    for doc in waiting["task"]:
        if (lost := repairs.of_task(doc)) is not None:
            repairs.count(engine, lost)
    repairs.count(engine, "signal", report.signals)
    repairs.count(engine, "notification", report.notifications)
    engine.metrics.count("weft_checks_total", by=report.executions + len(looks))
    if report.outboxes or report.tasks or report.signals or report.notifications:
        log.warning(
            "sweeper sent what was overdue: %s outbox entries, %s tasks, %s signals, "
            "%s notifications",
            report.outboxes,
            report.tasks,
            report.signals,
            report.notifications,
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


async def _postponed(engine: Engine, doc: dict[str, Any], now: int) -> bool:
    late = now - doc["sweepAt"]
    return await is_postponed(engine, doc, patient=late < engine.tunables.max_silence_ms)


def _recently(engine: Engine, doc: dict[str, Any], now: int) -> bool:
    last = engine.part(_Swept).sent.get(_key(doc))
    # Both ways: after a clock was set back, what is lost must not wait for it.
    return last is not None and abs(now - last) < engine.tunables.silence_ms


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
