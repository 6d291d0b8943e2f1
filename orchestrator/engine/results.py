"""Record how an attempt ended, in one batch with the message that it causes.

    success, last failure  -> task document final     + outbox TASK_FINISHED
    failure with a retry   -> task document RETRYING  + outbox RUN_TASK, due at the next attempt

The write goes by the claim's ETag: an attempt whose lease was taken over cannot overwrite the
result of the next. While the store throttles, the result is kept and written again: the activity
is not run a second time for the store's sake.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from orchestrator.domain import kin
from orchestrator.domain.deadlines import exceeded
from orchestrator.domain.effects import Outgoing
from orchestrator.domain.failure import Failure
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.retry import is_retryable, next_delay
from orchestrator.domain.status import TaskStatus
from orchestrator.domain.topology import EXECUTIONS, MAX_SCHEDULE_AHEAD_MS
from orchestrator.engine import letters, outbox, relay, task_docs
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.attempt import Outcome
from orchestrator.engine.claims import Claim, Ended
from orchestrator.engine.core import Engine
from orchestrator.engine.leasing import still_held
from orchestrator.engine.parked import Parked
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import Conflict, Create, NotFound, PreconditionFailed, Replace

log = logging.getLogger(__name__)


async def record(engine: Engine, claim: Claim, outcome: Outcome) -> None:
    """Write the attempt's end and send its message. A lost lease drops the result. Raises what
    the store raises once `patiently` gave up: the lease then lapses and the task is taken over."""
    letter, verdict = None, None
    if outcome.failure is not None:
        verdict = _judge(claim, outcome.failure.bounded(), engine.clock.now())
        if verdict.delay is None:
            letter = await letters.given(engine, claim.aggregate, claim.doc)
    async with claim.lock:
        now = engine.clock.now()
        doc, message = _ended(claim, outcome, verdict, now)
        if letter is not None:
            letter = letters.of_attempt(claim.aggregate, claim.spec, doc, letter, now)
        written = await _write(engine, claim.aggregate, doc, claim.etag, message, now, letter)
        if written is None and await still_held(engine, claim):
            written = await _write(engine, claim.aggregate, doc, claim.etag, message, now, letter)
        # The lease ends here: a renewal while the message is sent would meet the new ETag, and be
        # taken for a lease that another worker has.
        claim.ended = True
    if written is None:
        engine.metrics.count("weft_late_results_total")
        log.warning(
            "result of an attempt that lost its lease dropped",
            extra={
                "action": "attempt.late",
                "execution": claim.aggregate.execution,
                "task": claim.doc["task"],
                "attempt": claim.attempt,
            },
        )
        return
    engine.metrics.count("weft_attempts_total", doc["status"])
    await relay.send_now(engine, written)


async def park(engine: Engine, claim: Claim, fields: dict[str, Any], due_at: int | None) -> bool:
    """End the claim without a result: the document as it is, without its lease, with `fields`
    (status and `sweepAt` among them), and a message to look at it at `due_at` (None: none).
    Whether it was written. Raises as `record` does."""
    async with claim.lock:
        now = engine.clock.now()
        message = None if due_at is None else _again(claim.aggregate, claim.doc, due_at, now)
        doc = {key: value for key, value in claim.doc.items() if key not in ("lease", "sweepAt")}
        doc |= fields
        written = await _write(engine, claim.aggregate, doc, claim.etag, message, now)
        if written is None and await still_held(engine, claim):
            written = await _write(engine, claim.aggregate, doc, claim.etag, message, now)
        claim.ended = True
    if written is not None:
        await relay.send_now(engine, written)
    return written is not None


async def record_wait(
    engine: Engine,
    aggregate: Aggregate,
    doc: dict[str, Any],
    etag: str | None,
    look_at: int | None = None,
) -> None:
    """Write the document of a `wait` or `signal` that begins, with a message for the time when it
    is due (`dueAt`; only a signal may have none). The sweeper looks a little after that, and at
    `look_at` if that is earlier."""
    now, due_at = engine.clock.now(), doc.get("dueAt")
    message = None if due_at is None else _again(aggregate, doc, due_at, now)
    late = None if due_at is None else due_at + (engine.tunables.retry_grace_ms if message else 0)
    doc["sweepAt"] = min(at for at in (late, look_at) if at is not None)
    written = await _write(engine, aggregate, doc, etag, message, now)
    if written is not None:
        await relay.send_now(engine, written)


async def record_parked(
    engine: Engine, found: Parked, outcome: Outcome, note: dict[str, Any]
) -> None:
    """The end of the attempt of a task that waited without a worker, like a worker's. `note`: what
    is to be kept of what it had started."""
    assert found.etag is not None
    doc = dict(found.doc)
    field = kin.started(doc)
    doc[field] = {**doc[field], **note}
    claim = Claim(
        found.aggregate, found.spec, found.position, found.item, doc, found.etag, token="", count=0
    )
    await record(engine, claim, outcome)


async def record_end(engine: Engine, ended: Ended) -> None:
    """Write a final document of a task that was not run, and tell the orchestrator."""
    message = _finished(ended.aggregate, ended.doc) if ended.report else None
    letter, now = None, engine.clock.now()
    if ended.doc["status"] == TaskStatus.DEAD_LETTERED.value:
        given = await letters.given(engine, ended.aggregate, ended.doc)
        spec = letters.spec_of(ended.aggregate, ended.doc)
        letter = letters.of_attempt(ended.aggregate, spec, ended.doc, given, now)
    written = await _write(engine, ended.aggregate, ended.doc, ended.etag, message, now, letter)
    if written is not None:
        engine.metrics.count("weft_attempts_total", ended.doc["status"])
        await relay.send_now(engine, written)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What follows from a failed attempt. `delay`: ms until the next one; None: the task has
    failed, with `final`."""

    failure: Failure  # of the attempt
    final: Failure
    delay: int | None


def _judge(claim: Claim, failure: Failure, now: int) -> _Verdict:
    """A retry that would come after the task's deadline is not waited for."""
    delay = _delay(claim, failure)
    due = claim.deadline_at
    if delay is not None and due is not None and now + delay >= due:
        return _Verdict(failure, exceeded(claim.spec, failure).bounded(), None)
    return _Verdict(failure, failure, delay)


def _ended(
    claim: Claim, outcome: Outcome, verdict: _Verdict | None, now: int
) -> tuple[dict[str, Any], Outgoing | None]:
    """The task document after the attempt, and the message to send with it."""
    doc = {key: value for key, value in claim.doc.items() if key not in ("lease", "sweepAt")}
    last = {**doc["attempts"][-1], "endedAt": now}
    if outcome.output is not None:
        doc |= {
            "status": TaskStatus.COMPLETED.value,
            "endedAt": now,
            "output": outcome.output.to_doc(),
            "attempts": [*doc["attempts"][:-1], last],
        }
        return doc, _finished(claim.aggregate, doc)
    assert verdict is not None
    last["error"] = verdict.failure.to_doc()
    doc["attempts"] = [*doc["attempts"][:-1], last]
    delay = verdict.delay
    if delay is None:
        doc |= {
            "status": TaskStatus.DEAD_LETTERED.value,
            "endedAt": now,
            "failure": verdict.final.to_doc(),
        }
        return doc, _finished(claim.aggregate, doc)
    due_at = now + delay
    doc |= {"status": TaskStatus.RETRYING.value, "dueAt": due_at}
    return doc, _again(claim.aggregate, doc, due_at, now)


def _again(aggregate: Aggregate, doc: dict[str, Any], due_at: int, now: int) -> Outgoing | None:
    """The message for the task's next turn; None beyond the horizon of scheduled messages:
    `sweepAt` holds it then."""
    if due_at - now > MAX_SCHEDULE_AHEAD_MS:
        return None
    message = Message(MessageType.RUN_TASK, *aggregate.partition, doc["task"], doc.get("item"))
    return Outgoing(message, due_at)


def _delay(claim: Claim, failure: Failure) -> int | None:
    if not is_retryable(claim.spec.retry, failure):
        return None
    key = f"{claim.aggregate.execution}:{claim.id}"
    return next_delay(
        claim.spec.retry,
        attempt=task_docs.counted(claim.doc),
        key=key,
        retry_after_ms=failure.retry_after_ms,
    )


def _finished(aggregate: Aggregate, doc: dict[str, Any]) -> Outgoing:
    return Outgoing(
        Message(MessageType.TASK_FINISHED, *aggregate.partition, doc["task"], doc.get("item"))
    )


async def _write(
    engine: Engine,
    aggregate: Aggregate,
    doc: dict[str, Any],
    etag: str | None,
    message: Outgoing | None,
    now: int,
    letter: dict[str, Any] | None = None,
) -> list[dict[str, Any]] | None:
    """The batch, with `letter` if there is one; the outbox documents to send, or None if somebody
    else has the task. `recorded` names this very write, to tell it from another's when its answer
    is lost."""
    partition = aggregate.partition
    doc["recorded"] = engine.ids.new()
    if doc["status"] == TaskStatus.RETRYING.value:
        doc["sweepAt"] = doc["dueAt"] + (engine.tunables.retry_grace_ms if message else 0)
    elif "endedAt" in doc and kin.has_open_child(doc):
        doc["sweepAt"] = now  # until it is known to have been stopped
    sends = outbox.build(
        engine,
        partition,
        [message] if message else [],
        now=now,
        header=aggregate.header,
    )
    first = Create(doc) if etag is None else Replace(doc, etag)
    operations = [first, *(Create(entry) for entry in sends)]
    if letter is not None:
        operations.append(Create(letter))
        engine.metrics.count("weft_dead_letters_total", letter["kind"])
    try:
        await patiently(engine, engine.store.batch, EXECUTIONS, partition, list(operations))
    except (PreconditionFailed, Conflict, NotFound):
        return None
    except Unclear:
        found = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, [doc["id"]])
        stored = found.get(doc["id"])
        if stored is None or stored.body.get("recorded") != doc["recorded"]:
            return None
    return sends
