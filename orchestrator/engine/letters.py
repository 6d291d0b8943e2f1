"""Dead letters of tasks: what is kept of a failure that nobody will retry by itself.

A task's failure alone says what happened; a person who must decide what to do about it also needs
what was tried, with which input, and a place where the decision is kept. One document per task (or
map item) and attempt, in the execution's partition, written in the batch that makes the failure
final:

    id         dead:{task}[:{item}]:{attempt}    attempt `s{seq}`: it failed without a worker
    status     OPEN, then RETRIED | SKIPPED | FAILED | DISCARDED, once
    kind       task | item | message | notification (with `notification`, its key)
    reason     attemptsExhausted | notRetryable | notRun, or the broker's words for a message
    failure    the whole error chain       errorType    its outermost type, for filters
    input      what the last attempt was given (claim check), every secret masked
    attempts   as in the task document      workflow, version, task, item?, attempt, traceparent
    tolerated  true: its map may succeed without it (`tolerateFailures`)
    resolved   {by, at, reason, action}, once it is no longer OPEN
"""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain.failure import Failure
from orchestrator.domain.retry import is_retryable
from orchestrator.domain.status import TaskStatus
from orchestrator.domain.tolerance import NONE
from orchestrator.domain.workflow import TaskSpec, TaskType
from orchestrator.engine import attempt, claimcheck, documents
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine

log = logging.getLogger(__name__)

TYPE = "deadletter"


class LetterStatus(StrEnum):
    """Where a dead letter is. All but OPEN are final."""

    OPEN = "OPEN"
    RETRIED = "RETRIED"
    SKIPPED = "SKIPPED"
    FAILED = "FAILED"
    DISCARDED = "DISCARDED"


def spec_of(aggregate: Aggregate, doc: dict[str, Any]) -> TaskSpec:
    """What a task document's attempts run: for a map item, the map's `do`."""
    spec = aggregate.workflow.tasks[aggregate.workflow.index[doc["task"]]]
    return spec if "item" not in doc or spec.do is None else spec.do


async def given(engine: Engine, aggregate: Aggregate, doc: dict[str, Any]) -> dict[str, Any]:
    """`{"input"}` as the task's worker had it, secrets masked; `{}` where it cannot be told (its
    own expressions fail, a gathering has none). Never raises: a failure must become final."""
    if "inputOverride" in doc:
        return {"input": doc["inputOverride"]}
    spec = spec_of(aggregate, doc)
    if spec.type is TaskType.MAP:
        return {}
    try:
        value = await attempt.resolve(engine, aggregate, spec, doc.get("item"))
        data = jsonvalues.dumps(value)
        name = f"dead:{doc['id']}:{doc['attempt']}"
        payload = await claimcheck.store(engine, aggregate.partition, name, data)
    except Exception as error:
        log.info(
            "input of a dead letter not kept",
            extra={
                "action": "deadletter.no_input",
                "execution": aggregate.execution,
                "task": doc["task"],
                "error": type(error).__name__,
            },
        )
        return {}
    return {"input": payload.to_doc()}


def of_attempt(
    aggregate: Aggregate, spec: TaskSpec, doc: dict[str, Any], given: dict[str, Any], now: int
) -> dict[str, Any]:
    """The letter for a task document whose last attempt failed for good."""
    assert doc["status"] == TaskStatus.DEAD_LETTERED.value
    failure = Failure.from_doc(doc["failure"])
    reason = "attemptsExhausted" if is_retryable(spec.retry, failure) else "notRetryable"
    item = doc.get("item")
    letter = _letter(aggregate, doc["task"], item, str(doc["attempt"]), failure, reason, now)
    return {**letter, "attempt": doc["attempt"], "attempts": doc["attempts"], **given}


def of_decision(
    aggregate: Aggregate, task: str, failure: Failure, seq: int, now: int
) -> dict[str, Any]:
    """The letter for a task that failed without a worker, in the commit `seq`."""
    return _letter(aggregate, task, None, f"s{seq}", failure, "notRun", now)


def _letter(
    aggregate: Aggregate,
    task: str,
    item: int | None,
    attempt: str,
    failure: Failure,
    reason: str,
    now: int,
) -> dict[str, Any]:
    letter: dict[str, Any] = {
        **documents.base(aggregate.partition, documents.dead_id(task, item, attempt), TYPE),
        "createdAt": now,
        "status": LetterStatus.OPEN.value,
        "kind": "task" if item is None else "item",
        "reason": reason,
        "workflow": aggregate.workflow.name,
        "version": aggregate.header["version"],
        "task": task,
        "attempt": 0,
        "attempts": [],
        "errorType": failure.type,
        "failure": failure.to_doc(),
    }
    if item is not None:
        letter["item"] = item
        tolerate = aggregate.workflow.tasks[aggregate.workflow.index[task]].tolerate
        if tolerate != NONE:
            letter["tolerated"] = True
    if aggregate.traceparent:
        letter["traceparent"] = aggregate.traceparent
    return letter


def of_notification(
    aggregate: Aggregate, doc: dict[str, Any], failure: Failure, now: int, *, retryable: bool
) -> dict[str, Any]:
    """The letter for a notification that could not be delivered."""
    key = f"notify.{doc['key']}"  # a dot: no task is called like it
    reason = "attemptsExhausted" if retryable else "notRetryable"
    letter = _letter(aggregate, key, None, str(doc["attempt"]), failure, reason, now)
    del letter["task"]
    return {
        **letter,
        "kind": "notification",
        "notification": doc["key"],
        "attempt": doc["attempt"],
        "attempts": doc["attempts"],
    }
