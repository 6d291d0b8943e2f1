"""The executor: one message of a task queue, one attempt.

Claim, run, record. A message that needs no work (duplicate, finished, paused, somebody else's) is
settled; a failing activity is a recorded attempt, never an exception to the host, so that the
broker's delivery count keeps meaning "the process died".
"""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager
from dataclasses import replace

from orchestrator.domain.errors import UnavailableError
from orchestrator.domain.messages import BadMessage, Message, MessageType, decode
from orchestrator.domain.topology import (
    ORCHESTRATION_QUEUE,
    TASK_QUEUES,
    TASKS_LOW_QUEUE,
    TASKS_STANDARD_QUEUE,
)
from orchestrator.domain.workflow import TaskType
from orchestrator.engine import (
    attempt,
    children,
    claims,
    deadletters,
    gate,
    handback,
    levels,
    notify,
    orchestrate,
    orchestrations,
    results,
    telemetry,
    waiting,
)
from orchestrator.engine.claims import Claim, Ended, Refusal
from orchestrator.engine.core import Engine
from orchestrator.engine.documents import NewerSchema
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.lanes import Lanes
from orchestrator.engine.leases import LeaseKeeper
from orchestrator.engine.parked import Parked
from orchestrator.ports import Throttled, TransportError, Unavailable
from orchestrator.ports_telemetry import Span

log = logging.getLogger(__name__)


async def handle(engine: Engine, incoming: Incoming, *, queue: str = TASKS_STANDARD_QUEUE) -> None:
    """Take one message of `queue`. Raises only if neither the store nor the broker can be reached:
    the host then abandons the message."""
    levels.heard(engine, queue, [incoming])
    try:
        message = decode(incoming.body)
        moved = message.queue == ORCHESTRATION_QUEUE and queue == TASKS_LOW_QUEUE
        if message.queue not in TASK_QUEUES and not moved:
            raise BadMessage(f"{message.type.value} does not belong to a task queue")
    except BadMessage as error:
        await deadletters.capture(engine, incoming, queue=queue, reason=error.reason)
        return
    lanes = engine.part(Lanes)
    if moved:
        async with lanes.decides(message.tenant):
            await orchestrate.handle_moved(engine, message, incoming)
        return
    if lanes.overflows(queue, message.tenant):
        await handback.move(engine, [(message, incoming)])
        return
    async with lanes.held(queue, message.tenant):
        if message.type is MessageType.NOTIFY:
            await notify.handle(engine, message, incoming)
            return
        async with gate.Passage(engine, incoming) as passage:
            await _take(engine, message, incoming, passage)


async def _take(
    engine: Engine, message: Message, incoming: Incoming, passage: gate.Passage
) -> None:
    try:
        claim = await claims.claim(engine, message, passage.admit)
        if isinstance(claim, Parked):
            await waiting.look(engine, message, [incoming], claim)
            return
    except TransportError:
        raise
    except (Throttled, Unavailable, UnavailableError, NewerSchema) as error:
        log.warning(
            "task not claimed, its message is handed back",
            extra={"action": "execute.handed_back", "error": type(error).__name__},
        )
        await handback.send(engine, [message], [incoming])
        return
    except Exception as error:
        log.exception(
            "task cannot be claimed, its message becomes a dead letter",
            extra={
                "action": "execute.poisoned",
                "execution": message.execution,
                "task": message.task,
            },
        )
        await deadletters.capture(
            engine,
            incoming,
            queue=message.queue,
            reason=f"task {message.task}: {type(error).__name__}: {error}",
        )
        return
    await _work(engine, message, incoming, claim, passage)


async def _work(
    engine: Engine,
    message: Message,
    incoming: Incoming,
    claim: Claim | Ended | Refusal,
    passage: gate.Passage,
) -> None:
    match claim:
        case gate.Postponed():
            await gate.postpone(engine, message, incoming, claim)
        case Refusal():
            engine.metrics.count("weft_claims_refused_total", claim.reason)
            if claim.unheard:
                # An item of a map that was retried after its deadline had ended meanwhile: waiting
                # for the sweeper to find that could take until the next deadline.
                found = replace(message, type=MessageType.TASK_FINISHED)
                await handback.send(engine, [found], [incoming], delay_ms=0)
            elif claim.again_ms is not None:
                await handback.send(
                    engine,
                    [message],
                    [incoming],
                    delay_ms=claim.again_ms,
                    max_hops=handback.MAX_STALE_HOPS,
                )
        case Ended():
            await results.record_end(engine, claim)
        case Claim():
            with _span(engine, claim, incoming) as span:
                await _attempt(engine, claim, passage, span)


def _span(engine: Engine, claim: Claim, incoming: Incoming) -> AbstractContextManager[Span]:
    """Of an attempt: under its execution's trace, also if its message has lost that."""
    tenant, execution = claim.aggregate.partition
    about: dict[str, str | int] = {
        "tenant": tenant,
        "workflow": claim.aggregate.workflow.name,
        "execution": execution,
        "task": claim.doc["task"],
        "attempt": claim.attempt,
    }
    if claim.item is not None:
        about["item"] = claim.item
    return telemetry.span(
        engine.tracer,
        "execute",
        parent=claim.aggregate.traceparent,
        kind="consumer",
        links=telemetry.links_of([incoming]),
        about=about,
    )


async def _attempt(engine: Engine, claim: Claim, passage: gate.Passage, span: Span) -> None:
    keeper, begun = engine.part(LeaseKeeper), time.perf_counter()
    keeper.add(claim)
    try:
        if claim.spec.type is TaskType.WORKFLOW:
            outcome = await children.begin(engine, claim)
        elif claim.spec.type is TaskType.DURABLE:
            outcome = await orchestrations.begin(engine, claim)
        else:
            outcome = await attempt.run(engine, claim)
        if outcome is not None:
            took, kind = time.perf_counter() - begun, claim.spec.type.value
            engine.metrics.observe("weft_task_duration_seconds", kind, took)
            span.note({"weft.type": kind})
            if outcome.failure is not None:
                span.fail(outcome.failure.type)
            await _record(engine, claim, outcome)
            await passage.done(claim, outcome)
    except attempt.LeaseLost:
        span.fail("LeaseLost")
        engine.metrics.count("weft_claims_refused_total", "lateStart")
    finally:
        keeper.remove(claim)


async def _record(engine: Engine, claim: Claim, outcome: attempt.Outcome) -> None:
    try:
        await results.record(engine, claim, outcome)
    except (Throttled, Unavailable) as error:
        # The lease lapses, and the task runs again under the same idempotency key.
        engine.metrics.count("weft_results_lost_total")
        log.error(
            "result could not be stored, the task will be run again",
            extra={
                "action": "execute.result_lost",
                "execution": claim.aggregate.execution,
                "task": claim.doc["task"],
                "attempt": claim.attempt,
                "error": type(error).__name__,
            },
        )
