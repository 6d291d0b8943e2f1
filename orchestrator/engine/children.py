"""Start the child of a `workflow` task: what an attempt of such a task does.

The claim has stored which child it is (`kin.next_child`), so that neither a crash after the
submission nor a second worker can start another one. Afterwards the task waits without a worker:
`waiting` looks at it when the child has ended.
"""

from __future__ import annotations

import logging

from orchestrator.domain.errors import (
    NotFoundError,
    ThrottledError,
    UnavailableError,
    WeftError,
)
from orchestrator.domain.expressions import ExpressionError
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsonvalues import NotJson
from orchestrator.domain.priority import Priority
from orchestrator.domain.topology import MAX_CHILD_DEPTH
from orchestrator.engine import attempt, parking, submit, telemetry, waiting
from orchestrator.engine.attempt import LeaseLost, Outcome
from orchestrator.engine.claims import Claim
from orchestrator.engine.core import Engine
from orchestrator.engine.gather import ItemMissing
from orchestrator.engine.leases import LeaseKeeper
from orchestrator.ports import PayloadNotFound, StoreError, TransportError

log = logging.getLogger(__name__)

BUSY_MS = 5_000
"""How long a start is put off that the platform refuses for now without saying for how long."""
UNKNOWN_MS = 3_000
UNKNOWN_LOOKS = 2
"""How often, and after how long, a workflow that is not in the catalog is looked up once more: a
replica may lag behind the one that published it just now."""


async def begin(engine: Engine, claim: Claim) -> Outcome | None:
    """One attempt to start the child. None: it is started and the task waits for it, or nothing
    could be stored, and the lease lapses; else the failure. Raises `LeaseLost`."""
    try:
        await _submit(engine, claim)
    except LeaseLost:
        raise
    except StoreError as error:
        # Whether it was submitted is not known: the next worker names the same child.
        log.warning(
            "child not started, another worker will",
            extra={
                "action": "child.not_started",
                "execution": claim.aggregate.execution,
                "task": claim.doc["task"],
                "error": type(error).__name__,
            },
        )
        return None
    except (ThrottledError, UnavailableError, ItemMissing, OSError) as error:
        await _put_off(engine, claim, error)
        return None
    except NotFoundError as error:
        if claim.doc["child"].get("unknown", 0) < UNKNOWN_LOOKS:
            await _put_off(engine, claim, error, unknown=True)
            return None
        return Outcome(failure=_failure(claim, error))
    except Exception as error:
        return Outcome(failure=_failure(claim, error))
    child = claim.doc["child"]
    if await parking.wait(engine, claim, child, child["execution"]):
        await _look_if_over(engine, claim)
    return None


async def _submit(engine: Engine, claim: Claim) -> None:
    spec, parent = claim.spec, claim.aggregate
    depth = parent.header.get("depth", 0) + 1
    if depth > MAX_CHILD_DEPTH:
        raise _TooDeep
    given = await attempt.given(engine, claim)
    if not await engine.part(LeaseKeeper).may_begin(claim):
        raise LeaseLost
    pinned = parent.header.get("pins", {}).get(spec.workflow)
    place = {"task": claim.doc["task"], "attempt": claim.attempt}
    place |= {} if claim.item is None else {"item": claim.item}
    header = {
        "parent": parent.execution,
        "parentTask": {**place, "number": claim.doc["child"]["number"]},
        "depth": depth,
        "priority": Priority.of(parent.header).value,
    }
    if hops := parent.header.get("hops"):
        header["hops"] = hops
    link = submit.Link(
        execution=claim.doc["child"]["execution"], header=header, pinned=pinned is not None
    )
    await submit.start(
        engine,
        parent.partition[0],
        spec.workflow,
        given,
        version=pinned if spec.workflow_version is None else spec.workflow_version,
        traceparent=telemetry.traceparent(parent.traceparent),
        started_by=f"execution:{parent.execution}",
        link=link,
    )


async def _look_if_over(engine: Engine, claim: Claim) -> None:
    """The execution may have been cancelled while the child was started: whoever came to tell met
    our lease. The sweeper would find it, but a child's work should not run until then."""
    try:
        found = await parking.found_again(engine, claim)
        if found is not None and found.over:
            await waiting.look(engine, parking.message_of(claim), (), found)
    except (StoreError, TransportError, UnavailableError) as error:
        log.warning(
            "child's task not looked at again, the sweeper will",
            extra={"action": "child.not_looked_at", "error": type(error).__name__},
        )


async def _put_off(
    engine: Engine, claim: Claim, error: Exception, *, unknown: bool = False
) -> None:
    """The platform takes no start now: later."""
    delay = error.retry_after_ms if isinstance(error, ThrottledError) else BUSY_MS
    child = claim.doc["child"]
    if unknown:
        delay, child = UNKNOWN_MS, {**child, "unknown": child.get("unknown", 0) + 1}
    await parking.put_off(engine, claim, error, child, delay)


class _TooDeep(Exception):
    """The parent is as deep as an execution may be."""


def _failure(claim: Claim, error: Exception) -> Failure:
    """Why the child could not be started. What is refused now is refused again."""
    field = f"$.tasks.{claim.doc['task']}" + ("" if claim.item is None else ".do")
    if "crashes" not in claim.doc["child"]:  # else an earlier worker may have submitted it
        claim.doc["child"] = {**claim.doc["child"], "settled": True}
    match error:
        case ExpressionError():
            separator = "" if not error.path or error.path.startswith((".", "[")) else "."
            return Failure(
                type=FailureType.EXPRESSION,
                message=error.reason,
                retryable=False,
                field=f"{field}.input{separator}{error.path}",
                expression=error.source,
            )
        case _TooDeep():
            message = (
                f"a child of {claim.aggregate.execution} would be more than {MAX_CHILD_DEPTH} "
                "executions deep; does a workflow start itself?"
            )
            return _refused(FailureType.CHILD_TOO_DEEP, message, f"{field}.workflow")
        case NotJson():
            message = f"the child's input is not JSON at {error.path}: {error.reason}"
            return _refused(FailureType.INPUT_INVALID, message, f"{field}.input")
        case WeftError():
            found = "; ".join(f"{one.field} {one.message}" for one in error.details[:5])
            message = f"{error.message}: {found}" if found else error.message
            return _refused(error.code, message, field)
        case PayloadNotFound():
            return Failure(type=type(error).__name__, message=f"the child's input: {error}")
        case _:
            log.error(
                "child could not be started: %s",
                type(error).__name__,
                extra={"action": "child.fault", "execution": claim.aggregate.execution},
            )
            return Failure(type=type(error).__name__, message="the platform could not start it")


def _refused(type: str, message: str, field: str) -> Failure:
    return Failure(type=type, message=message, retryable=False, field=field)
