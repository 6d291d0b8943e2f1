"""After a child or an orchestration was started: let its task wait without a worker, or try again.

What a task has started is noted in its document, in the field `kin.started` names: a child
execution, or an orchestration.
"""

from __future__ import annotations

import logging
from typing import Any

from orchestrator.domain import kin
from orchestrator.domain.durations import MAX_DURATION_MS
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.status import TaskStatus
from orchestrator.engine import claims, results
from orchestrator.engine.claims import Claim
from orchestrator.engine.core import Engine
from orchestrator.engine.parked import Parked

log = logging.getLogger(__name__)


async def wait(engine: Engine, claim: Claim, started: dict[str, Any], id: str) -> bool:
    """The task's document says from now on that it waits for `started`, whose id is `id`. Whether
    it was written. Raises what `results.park` raises."""
    field = kin.started(claim.doc)
    now, look = engine.clock.now(), engine.tunables.silence_ms
    started = {**started, "lookMs": look}
    deadline = started.get("deadlineAt")
    if deadline is None and claim.spec.timeout_ms < MAX_DURATION_MS:
        deadline = started["deadlineAt"] = now + claim.spec.timeout_ms
    due_at = now + look if deadline is None else min(now + look, deadline)
    *before, last = claim.doc["attempts"]
    fields = {
        "status": TaskStatus.WAITING.value,
        field: started,
        "attempts": [*before, {**last, field: id}],
        "sweepAt": due_at + (0 if deadline is None else engine.tunables.retry_grace_ms),
    }
    return await results.park(engine, claim, fields, deadline)


async def put_off(
    engine: Engine, claim: Claim, error: Exception, started: dict[str, Any], delay_ms: int
) -> None:
    """It cannot be started now (limits, a full disk, a replica that lags, Durable away): later,
    without paying an attempt."""
    log.warning(
        "start put off",
        extra={
            "action": "start.put_off",
            "execution": claim.aggregate.execution,
            "task": claim.doc["task"],
            "error": type(error).__name__,
        },
    )
    now = engine.clock.now()
    *before, last = claim.doc["attempts"]
    put_off = Failure(
        type=FailureType.PUT_OFF, message=f"{type(error).__name__}: {error}"
    ).bounded()
    fields = {
        "status": TaskStatus.RETRYING.value,
        "dueAt": now + delay_ms,
        "granted": claim.doc.get("granted", 0) + 1,
        kin.started(claim.doc): started,
        "attempts": [*before, {**last, "endedAt": now, "error": put_off.to_doc()}],
    }
    await results.park(engine, claim, fields, now + delay_ms)


def message_of(claim: Claim) -> Message:
    """The message that has the claim's task looked at."""
    partition = claim.aggregate.partition
    return Message(MessageType.RUN_TASK, *partition, claim.doc["task"], claim.item)


async def found_again(engine: Engine, claim: Claim) -> Parked | None:
    """A fresh look at a task that has begun to wait: whoever came meanwhile met our lease. None if
    it does not wait any more."""
    found = await claims.claim(engine, message_of(claim), _nobody)
    return found if isinstance(found, Parked) else None


async def _nobody(*_: object) -> claims.Refusal:
    """Nothing is to be claimed by this look."""
    return claims.Refusal("looked")
