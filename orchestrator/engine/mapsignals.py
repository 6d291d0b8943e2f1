"""A `signal` task inside a map. Its document is WAITING, without a worker, until a decision hands
the item a signal (`signalled_items`), or until its time is over.

The worker only watches the time. When it is over the item fails, unless a signal of that name is on
its way: one that came in time counts, although the orchestrator may not have heard of it yet.
"""

from __future__ import annotations

from typing import Final

from orchestrator.domain.durations import format_duration
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.status import ExecutionStatus, TaskStatus
from orchestrator.engine import handback, outbox, results, signal_docs, task_docs
from orchestrator.engine.claims import Ended
from orchestrator.engine.core import Engine
from orchestrator.engine.parked import Parked, rewrite

TOLD_AT_ONCE: Final = 32
"""Signals that the orchestrator is told of before an item fails."""
MAX_LOOK_MS: Final = 24 * 3600 * 1000
"""How long the sweeper may leave an item alone: a call to close it may be lost."""


async def look(engine: Engine, found: Parked) -> int | None:
    """Begin the wait, or end it if it is due. Milliseconds after which the message is to come
    again, None: never. Raises what store and broker raise."""
    now, doc = engine.clock.now(), found.doc
    if found.etag is None or doc["status"] != TaskStatus.WAITING.value:
        return await _begin(engine, found, now)
    if found.aggregate.state.status is ExecutionStatus.PAUSED:
        return None  # resuming looks at those whose time is over
    early = doc["dueAt"] - now if "dueAt" in doc else None
    if early is None or early > 0:
        if early is not None and early <= handback.CLOCK_SKEW_MS:
            return early
        return await _look_later(engine, found, now)
    if await _told(engine, found):
        return handback.STALE_READ_MS
    await _fail(engine, found, now)
    return None


async def _begin(engine: Engine, found: Parked, now: int) -> None:
    doc = {
        **found.doc,
        "status": TaskStatus.WAITING.value,
        "startedAt": now,
        "awaits": found.spec.signal,
        "lookMs": engine.tunables.silence_ms,
    }
    if found.spec.wait_ms is not None:
        doc["dueAt"] = now + found.spec.wait_ms
    await results.record_wait(
        engine, found.aggregate, doc, found.etag, look_at=now + engine.tunables.silence_ms
    )


async def _look_later(engine: Engine, found: Parked, now: int) -> None:
    """Nothing has happened. At the sweeper's time the next look is noted, twice as far ahead."""
    if found.doc["sweepAt"] > now:
        return
    look_ms = min(2 * found.doc["lookMs"], MAX_LOOK_MS)
    look_at = now + look_ms
    if "dueAt" in found.doc:
        look_at = min(look_at, found.doc["dueAt"] + engine.tunables.retry_grace_ms)
    await rewrite(engine, found, {**found.doc, "lookMs": look_ms, "sweepAt": look_at})


async def _told(engine: Engine, found: Parked) -> bool:
    """Whether signals of this name that came in time are still to be handed to somebody; if so, the
    orchestrator was told. Others that wait may be served before this item."""
    name, partition, state = found.spec.signal, found.aggregate.partition, found.aggregate.state
    stored = await signal_docs.untaken(engine, partition)
    keys = [
        doc.body["key"]
        for doc in stored
        if doc.body["name"] == name
        and doc.body["receivedAt"] <= found.doc["dueAt"]
        and not signal_docs.knows(state, doc.body["key"])
    ]
    if not keys and name not in state.signals:
        return False
    messages = [
        Message(MessageType.SIGNAL_RECEIVED, *partition, key) for key in keys[:TOLD_AT_ONCE]
    ]
    messages = messages or [Message(MessageType.TIMER_DUE, *partition)]
    trace = found.aggregate.traceparent
    sending = [
        outbox.out_message(message, engine.ids.new(), traceparent=trace) for message in messages
    ]
    await engine.transport.send(sending)
    return True


async def _fail(engine: Engine, found: Parked, now: int) -> None:
    """The wait was an attempt, so that the dead letter of the next one is another."""
    spec, attempt = found.spec, found.doc["attempt"] + 1
    assert spec.wait_ms is not None
    failure = Failure(
        type=FailureType.SIGNAL_TIMEOUT,
        message=f"no signal {spec.signal!r} came within {format_duration(spec.wait_ms)}",
        retryable=False,
        field=f"$.tasks.{spec.id}.do.timeout",
    ).to_doc()
    times = {"startedAt": found.doc["startedAt"], "endedAt": now, "error": failure}
    doc = task_docs.without_lease(found.doc) | {
        "status": TaskStatus.DEAD_LETTERED.value,
        "failure": failure,
        "attempt": attempt,
        "attempts": [
            *found.doc["attempts"][1 - task_docs.MAX_KEPT_ATTEMPTS :],
            {"attempt": attempt, "worker": engine.worker, **times},
        ],
        "endedAt": now,
    }
    await results.record_end(engine, Ended(found.aggregate, doc, found.etag))
