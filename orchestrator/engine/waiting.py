"""Look at a task that waits without a worker: has its child ended, is its time due, is it over?

    waits for a child     the child has ended     -> its result is the attempt's
                          `timeout` has passed    -> the child is cancelled; TIMEOUT
                          the execution does not need it any more -> CANCELLED, then the child is
                          the execution is cancelled and undone -> the child is, too; then CANCELLED
    waits for a time      due                     -> COMPLETED
    waits for a signal    its time is over        -> SIGNAL_TIMEOUT
    for one of the two    not needed, or the execution fails fast -> CANCELLED
    for an orchestration  as for a child, see `instances`
    has ended, its child may run                  -> the child is cancelled

Nobody holds a lease here: whoever looks writes under the ETag, and one of them wins. If nothing is
wrong, the sweeper has the task looked at again, each time after twice as long.

A child is stopped in two steps: first the task's document says that it has ended, then the child
is cancelled, and only when it was seen to have ended (or was not there for several looks) the
sweeper may forget the document. So a child that is being submitted at that moment is either seen
by a look, or sees the ended document when it is taken up (`kinship`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.domain import codec, kin
from orchestrator.domain.errors import ConflictError, NotFoundError
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.messages import Message
from orchestrator.domain.payload import Payload
from orchestrator.domain.status import TERMINAL_EXECUTION, ExecutionStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.workflow import TaskType
from orchestrator.engine import (
    claimcheck,
    control,
    handback,
    instances,
    mapsignals,
    mapwaits,
    repairs,
    results,
    task_docs,
)
from orchestrator.engine.attempt import Outcome
from orchestrator.engine.claims import Ended
from orchestrator.engine.core import Engine
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.parked import MISSING_LOOKS, NO_ATTEMPT, Parked, rewrite
from orchestrator.engine.resilience import patiently
from orchestrator.ports import Document, PayloadNotFound, Unavailable


async def look(
    engine: Engine, message: Message, incoming: Sequence[Incoming], found: Parked
) -> None:
    """Do what the task needs now. Raises what store and broker raise, and `UnavailableError`."""
    if again_ms := await _look(engine, found, incoming):
        await handback.send(
            engine, [message], incoming, delay_ms=again_ms, max_hops=instances.MAX_LOOKS
        )


async def _look(engine: Engine, found: Parked, incoming: Sequence[Incoming]) -> int | None:
    """Milliseconds after which the message is to come again, None: never."""
    if "endedAt" in found.doc:
        return await _stop(engine, found)
    if found.over or (found.gives_back and found.spec.type in NO_ATTEMPT):
        await _close(engine, found)
        return None
    if found.spec.type is TaskType.WAIT:
        return await mapwaits.look(engine, found)
    if found.spec.type is TaskType.SIGNAL:
        return await mapsignals.look(engine, found)
    if found.spec.type is TaskType.DURABLE:
        return await instances.look(engine, found, incoming, _close)
    return await _child(engine, found)


# --- children -------------------------------------------------------------------------------------


async def _child(engine: Engine, found: Parked) -> int | None:
    now = engine.clock.now()
    child = found.doc["child"]
    deadline = child.get("deadlineAt")
    late = deadline is not None and deadline <= now
    doc = await _read(engine, found)
    if doc is None:
        if late or child.get("missing", 0) + 1 >= MISSING_LOOKS:
            kind = FailureType.TIMEOUT if late else FailureType.CHILD_NOT_FOUND
            failure = Failure(type=kind, message=f"the child {child['execution']} is not there")
            await results.record_parked(engine, found, Outcome(failure=failure), {})
            return None
        return await _look_later(engine, found, now, missing=child.get("missing", 0) + 1)
    status = ExecutionStatus(doc["status"])
    undone = found.aggregate.state.status is ExecutionStatus.COMPENSATING
    if status not in TERMINAL_EXECUTION and (late or undone):
        if undone:
            reason, action = "its parent is undone", control.CANCEL_COMPENSATING
        else:
            reason, action = "the time limit of its parent's task has passed", control.CANCEL
        await _cancel(engine, found, reason, action)
        doc = await _read(engine, found) or doc
        status = ExecutionStatus(doc["status"])
    if status not in TERMINAL_EXECUTION and (undone or not late):
        return await _look_later(engine, found, now, missing=0)
    if undone and status is ExecutionStatus.CANCELLED:
        await _close(engine, found)
        return None
    if not late:
        repairs.count_look(engine, found.doc, "child")
    outcome = await _outcome(engine, found, doc, status, late=late)
    await results.record_parked(engine, found, outcome, {"settled": True})
    return None


async def _read(engine: Engine, found: Parked) -> dict[str, Any] | None:
    """The child's document."""
    id = found.doc["child"]["execution"]
    partition = (found.aggregate.partition[0], id)
    docs = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, [id])
    return docs[id].body if id in docs else None


async def _look_later(engine: Engine, found: Parked, now: int, *, missing: int) -> int | None:
    """Nothing has happened. Before the sweeper's time that may be an old copy, so the message
    comes again; at its time the next look is noted, twice as far ahead."""
    if found.doc["sweepAt"] > now:
        return handback.STALE_READ_MS
    child = dict(found.doc["child"])
    if missing:
        child["missing"] = missing
        due_at = now + engine.tunables.silence_ms
    else:
        child.pop("missing", None)
        child["lookMs"] = min(2 * child["lookMs"], engine.tunables.max_silence_ms)
        due_at = now + child["lookMs"]
    if "deadlineAt" in child:
        late = max(now, child["deadlineAt"]) + engine.tunables.retry_grace_ms
        due_at = min(due_at, late)
    await rewrite(engine, found, {**found.doc, "child": child, "sweepAt": due_at})
    return None


async def _outcome(
    engine: Engine, found: Parked, doc: dict[str, Any], status: ExecutionStatus, *, late: bool
) -> Outcome:
    """What the child's end means for the task."""
    name = f"child {doc['executionId']} of workflow {doc['workflow']!r}"
    if status is ExecutionStatus.COMPLETED:
        try:
            return Outcome(output=await _moved(engine, found, doc["state"].get("output")))
        except OSError as error:  # a full disk is not the child's fault
            raise Unavailable(str(error)) from error
        except PayloadNotFound as error:
            message = f"the output of {name} cannot be read: {error}"
            return Outcome(failure=Failure(type=type(error).__name__, message=message))
    if late:
        message = f"{name} did not end within {found.spec.timeout_ms / 1000:g} s"
        return Outcome(failure=Failure(type=FailureType.TIMEOUT, message=message))
    if status is ExecutionStatus.CANCELLED:
        message = f"{name} was cancelled"
        failure = Failure(type=FailureType.CHILD_CANCELLED, message=message, retryable=False)
        return Outcome(failure=failure)
    record = doc["state"].get("failure")
    cause = None if record is None else codec.record_from_doc(record).failure
    message = f"{name} failed" + (f": {cause.message}" if cause else "")
    causes = () if cause is None else (cause,)
    return Outcome(failure=Failure(type=FailureType.CHILD_FAILED, message=message, causes=causes))


async def _moved(engine: Engine, found: Parked, stored: dict[str, Any] | None) -> Payload:
    """The child's output, owned by the parent: the child may be removed one day."""
    if stored is None:
        return Payload(text="null", size=4)
    payload = Payload.from_doc(stored)
    if payload.ref is None:
        return payload
    data = await claimcheck.read_text(engine, payload)
    name = f"{found.doc['id']}:{found.doc['attempt']}"
    return await claimcheck.store(engine, found.aggregate.partition, name, data)


# --- ends -----------------------------------------------------------------------------------------


async def _close(engine: Engine, found: Parked) -> None:
    """CANCELLED, then what it has started; the orchestrator is told only if it waits for that."""
    now = engine.clock.now()
    closed = task_docs.cancelled(found.doc, now)
    await results.record_end(
        engine, Ended(found.aggregate, closed, found.etag, report=not found.over)
    )
    if not kin.has_open_child(closed):
        return
    partition, id = found.aggregate.partition, found.doc["id"]
    docs = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, [id])
    doc: Document | None = docs.get(id)
    if doc is not None and "endedAt" in doc.body and kin.has_open_child(doc.body):
        await _stop(
            engine,
            Parked(
                aggregate=found.aggregate,
                spec=found.spec,
                position=found.position,
                item=found.item,
                doc=doc.body,
                etag=doc.etag,
                over=found.over,
            ),
        )


async def _stop(engine: Engine, found: Parked) -> int | None:
    """Stop what an ended task has started. A task that is dispatched again is looked at again."""
    if "instance" in found.doc:
        return await instances.stop(engine, found)
    now = engine.clock.now()
    child = dict(found.doc["child"])
    doc = await _read(engine, found)
    if doc is None and child.get("missing", 0) + 1 < MISSING_LOOKS:
        if found.doc["sweepAt"] > now:
            return None
        child["missing"] = child.get("missing", 0) + 1
        sweep_at = now + engine.tunables.silence_ms
        await rewrite(engine, found, {**found.doc, "child": child, "sweepAt": sweep_at})
        return None
    if doc is not None and ExecutionStatus(doc["status"]) not in TERMINAL_EXECUTION:
        await _cancel(engine, found, "its parent does not need it any more")
    body = {key: value for key, value in found.doc.items() if key != "sweepAt"}
    await rewrite(engine, found, {**body, "child": {**child, "settled": True}})
    return None if found.over else handback.STALE_READ_MS


async def _cancel(
    engine: Engine, found: Parked, reason: str, action: control.Action = control.CANCEL
) -> None:
    """The child is CANCELLED, has ended otherwise, or undoes what it had completed, when this
    returns."""
    tenant, parent = found.aggregate.partition
    id = found.doc["child"]["execution"]
    try:
        await control.act(engine, tenant, id, action, by=f"execution:{parent}", reason=reason)
    except ConflictError:
        return  # it ended just now, or has failed and undoes already
    except NotFoundError as error:  # a replica lags
        raise Unavailable(str(error)) from error
    engine.metrics.count("weft_children_cancelled_total")
