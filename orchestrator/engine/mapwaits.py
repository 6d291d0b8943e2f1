"""A `wait` task inside a map. Its document is WAITING until `dueAt`; it occupies no worker.

Waiting is no attempt. Finding out that there is no time to wait for is one. (A `wait` outside of
maps is the orchestrator's, and has no document.)"""

from __future__ import annotations

from typing import Any

from orchestrator.domain.evaluation import Refused
from orchestrator.domain.expressions import ExpressionError
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.payload import Payload
from orchestrator.domain.status import TaskStatus
from orchestrator.domain.waits import due_time
from orchestrator.engine import attempt, handback, repairs, results, task_docs
from orchestrator.engine.claims import Ended
from orchestrator.engine.core import Engine
from orchestrator.engine.gather import ItemMissing
from orchestrator.engine.parked import Parked
from orchestrator.ports import PayloadNotFound, Unavailable


async def look(engine: Engine, found: Parked) -> int | None:
    """Begin the wait, or end it if it is due. Milliseconds after which the message is to come
    again, None: never. Raises what the store raises."""
    now = engine.clock.now()
    if found.etag is not None and found.doc["status"] == TaskStatus.WAITING.value:
        early = found.doc["dueAt"] - now
        if early > 0:
            return early if early <= handback.CLOCK_SKEW_MS else None
        repairs.count_look(engine, found.doc, "timer")
        return await _waited(engine, found)
    try:
        due_at = due_time(found.spec, await _until(engine, found), _do(found), now)
    except (ItemMissing, OSError) as error:
        raise Unavailable(str(error)) from error
    except (Refused, ExpressionError, PayloadNotFound) as error:
        await _no_time(engine, found, _wait_failure(found, error), now)
        return None
    if due_at <= now:
        return await _waited(engine, found)
    doc = {**found.doc, "status": TaskStatus.WAITING.value, "dueAt": due_at, "startedAt": now}
    await results.record_wait(engine, found.aggregate, doc, found.etag)
    return None


async def _no_time(engine: Engine, found: Parked, failure: Failure, now: int) -> None:
    """Finding out was an attempt, the only one: the same data gives the same."""
    attempt = found.doc["attempt"] + 1
    times = {"startedAt": now, "endedAt": now, "error": failure.to_doc()}
    await _end(
        engine,
        found,
        {
            "status": TaskStatus.DEAD_LETTERED.value,
            "failure": failure.to_doc(),
            "attempt": attempt,
            "attempts": [
                *found.doc["attempts"][1 - task_docs.MAX_KEPT_ATTEMPTS :],
                {"attempt": attempt, "worker": engine.worker, **times},
            ],
            "endedAt": now,
        },
    )


async def _until(engine: Engine, found: Parked) -> Json:
    until = found.spec.until
    if until is None:
        return None
    return await attempt.evaluate(engine, found.aggregate, found.spec, until, found.item)


async def _waited(engine: Engine, found: Parked) -> None:
    nothing = Payload(text="null", size=4).to_doc()
    done = {"status": TaskStatus.COMPLETED.value, "output": nothing}
    await _end(engine, found, {**done, "endedAt": engine.clock.now()})


async def _end(engine: Engine, found: Parked, fields: dict[str, Any]) -> None:
    dropped = ("dueAt", "sweepAt")
    doc = {key: value for key, value in found.doc.items() if key not in dropped}
    await results.record_end(engine, Ended(found.aggregate, {**doc, **fields}, found.etag))


def _wait_failure(found: Parked, error: Exception) -> Failure:
    match error:
        case Refused():
            return error.failure.bounded()
        case ExpressionError():
            return Failure(
                type=FailureType.EXPRESSION,
                message=error.reason,
                retryable=False,
                field=f"{_do(found)}.until",
                expression=error.source,
            ).bounded()
        case _:
            return Failure(type=type(error).__name__, message=str(error)).bounded()


def _do(found: Parked) -> str:
    return f"$.tasks.{found.spec.id}.do"
