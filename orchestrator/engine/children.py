"""Start the child of a `workflow` task: what an attempt of such a task does.

The claim has stored which child it is (`kin.next_child`), so that neither a crash after the
submission nor a second worker can start another one. Afterwards the task waits without a worker:
`waiting` looks at it when the child has ended.
"""

from __future__ import annotations

from typing import Any

from orchestrator.domain.errors import (
    NotFoundError,
    ThrottledError,
    UnavailableError,
    WeftError,
)
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.priority import Priority
from orchestrator.domain.topology import MAX_CHILD_DEPTH
from orchestrator.engine import attempt, beginning, submit, telemetry
from orchestrator.engine.attempt import Outcome
from orchestrator.engine.beginning import Later, Refused
from orchestrator.engine.claims import Claim
from orchestrator.engine.core import Engine
from orchestrator.engine.gather import ItemMissing

BUSY_MS = 5_000
"""How long a start is put off that the platform refuses for now without saying for how long."""
UNKNOWN_MS = 3_000
UNKNOWN_LOOKS = 2
"""How often, and after how long, a workflow that is not in the catalog is looked up once more: a
replica may lag behind the one that published it just now."""


async def begin(engine: Engine, claim: Claim) -> Outcome | None:
    """One attempt to start the child (`beginning.attempt`)."""
    return await beginning.attempt(
        engine, claim, _begin, kind="child", wanted=lambda found: found.over
    )


async def _begin(engine: Engine, claim: Claim) -> tuple[dict[str, Any], str]:
    child = claim.doc["child"]
    try:
        await _submit(engine, claim)
    except (ThrottledError, UnavailableError, ItemMissing, OSError) as error:
        delay = error.retry_after_ms if isinstance(error, ThrottledError) else BUSY_MS
        raise Later(error, child, delay) from error
    except WeftError as error:
        unknown = child.get("unknown", 0)
        if isinstance(error, NotFoundError) and unknown < UNKNOWN_LOOKS:
            raise Later(error, {**child, "unknown": unknown + 1}, UNKNOWN_MS) from error
        found = "; ".join(f"{one.field} {one.message}" for one in error.details[:5])
        message = f"{error.message}: {found}" if found else error.message
        raise _refused(error.code, message, beginning.place(claim)) from error
    return child, child["execution"]


async def _submit(engine: Engine, claim: Claim) -> None:
    spec, parent = claim.spec, claim.aggregate
    depth = parent.header.get("depth", 0) + 1
    if depth > MAX_CHILD_DEPTH:
        message = (
            f"a child of {claim.aggregate.execution} would be more than {MAX_CHILD_DEPTH} "
            "executions deep; does a workflow start itself?"
        )
        raise _refused(FailureType.CHILD_TOO_DEEP, message, f"{beginning.place(claim)}.workflow")
    given = await attempt.given(engine, claim)
    await beginning.may_begin(engine, claim)
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


def _refused(type: str, message: str, field: str) -> Refused:
    return Refused(Failure(type=type, message=message, retryable=False, field=field))
