"""One attempt of a task that begins something and then waits for it without a worker.

What it begins, a child execution or an orchestration, has an id that the claim has stored
(`kin.started` names the field), so that neither a crash afterwards nor a second worker begins
another one. This is what such attempts have in common; what they begin say `children` and
`orchestrations`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from orchestrator.domain import kin
from orchestrator.domain.errors import UnavailableError
from orchestrator.domain.expressions import ExpressionError
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsonvalues import NotJson
from orchestrator.engine import parking, waiting
from orchestrator.engine.attempt import LeaseLost, Outcome
from orchestrator.engine.claims import Claim
from orchestrator.engine.core import Engine
from orchestrator.engine.leases import LeaseKeeper
from orchestrator.engine.parked import Parked
from orchestrator.ports import PayloadNotFound, StoreError, TransportError

log = logging.getLogger(__name__)

Begin = Callable[[Engine, Claim], Awaitable[tuple[dict[str, Any], str]]]
"""Begins it, unless it is there: what the document notes of it from now on, and its id. Raises
`Later`, `Refused`, `LeaseLost`; `StoreError` where it is not known whether it has begun; anything
else is a failure of the attempt."""


class Later(Exception):
    """Not now, which is nobody's fault: again in `delay_ms`, with `noted` in the document."""

    def __init__(self, why: Exception, noted: dict[str, Any], delay_ms: int) -> None:
        super().__init__(str(why))
        self.why = why
        self.noted = noted
        self.delay_ms = delay_ms


class Refused(Exception):
    """Neither now nor later."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


async def may_begin(engine: Engine, claim: Claim) -> None:
    """To be asked right before it begins. Raises `LeaseLost`."""
    if not await engine.part(LeaseKeeper).may_begin(claim):
        raise LeaseLost


async def attempt(
    engine: Engine, claim: Claim, begin: Begin, *, kind: str, wanted: Callable[[Parked], bool]
) -> Outcome | None:
    """One attempt. None: it has begun and the task waits for it, or that is put off, or nothing
    could be stored and the lease lapses; else the failure. Raises `LeaseLost`.

    `kind`: of it, for the log. `wanted`: whether the task must be looked at again at once, since
    whoever came meanwhile met our lease."""
    try:
        noted, id = await begin(engine, claim)
    except LeaseLost:
        raise
    except Later as later:
        await parking.put_off(engine, claim, later.why, later.noted, later.delay_ms)
        return None
    except Refused as refused:
        return Outcome(failure=_final(claim, refused.failure))
    except StoreError as error:
        # Whether it has begun is not known: the next worker names the same one.
        extra = {"execution": claim.aggregate.execution, "task": claim.doc["task"]}
        _warn("not begun, another worker will", f"{kind}.not_started", error, **extra)
        return None
    except Exception as error:
        return Outcome(failure=_final(claim, _failure(claim, kind, error)))
    if await parking.wait(engine, claim, noted, id):
        await _look(engine, claim, kind, wanted)
    return None


async def _look(engine: Engine, claim: Claim, kind: str, wanted: Callable[[Parked], bool]) -> None:
    """The sweeper would do it, but what is not needed any more should not run until then."""
    try:
        found = await parking.found_again(engine, claim)
        if found is not None and wanted(found):
            await waiting.look(engine, parking.message_of(claim), (), found)
    except (StoreError, TransportError, UnavailableError) as error:
        _warn("not looked at again, the sweeper will", f"{kind}.not_looked_at", error)


def _warn(message: str, action: str, error: Exception, **extra: str) -> None:
    log.warning(message, extra={"action": action, "error": type(error).__name__, **extra})


def place(claim: Claim) -> str:
    """JSON path of the task in its definition."""
    return f"$.tasks.{claim.doc['task']}" + ("" if claim.item is None else ".do")


def _final(claim: Claim, failure: Failure) -> Failure:
    """`failure`; and what it was to begin will never exist, unless an earlier worker may have begun
    it."""
    field = kin.started(claim.doc)
    noted = claim.doc[field]
    if not noted.keys() & {"crashes", "refused"}:
        claim.doc[field] = {**noted, "settled": True}
    return failure


def _failure(claim: Claim, kind: str, error: Exception) -> Failure:
    """Why it could not begin. What is refused now is refused again."""
    field = f"{place(claim)}.input"
    match error:
        case ExpressionError():
            separator = "" if not error.path or error.path.startswith((".", "[")) else "."
            return Failure(
                type=FailureType.EXPRESSION,
                message=error.reason,
                retryable=False,
                field=f"{field}{separator}{error.path}",
                expression=error.source,
            )
        case NotJson():
            message = f"the input is not JSON at {error.path}: {error.reason}"
            kind = FailureType.INPUT_INVALID
            return Failure(type=kind, message=message, retryable=False, field=field)
        case PayloadNotFound():
            return Failure(type=type(error).__name__, message=f"the input: {error}")
        case _:
            log.error(
                "could not be begun: %s",
                type(error).__name__,
                extra={"action": f"{kind}.fault", "execution": claim.aggregate.execution},
            )
            return Failure(type=type(error).__name__, message="the platform could not start it")
