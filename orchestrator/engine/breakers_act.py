"""What operators see of circuit breakers and do to them: list, show, open, close.

Asking for what is already so succeeds, changes nothing and is not audited again.
"""

from __future__ import annotations

import asyncio

from orchestrator.domain import breakers as rules_of
from orchestrator.domain.breakers import Breaker, BreakerStatus
from orchestrator.domain.errors import InvalidError, NotFoundError, UnavailableError
from orchestrator.engine import audit
from orchestrator.engine.breakers import Breakers, Step
from orchestrator.engine.control import MAX_REASON_CHARS
from orchestrator.engine.core import Engine
from orchestrator.engine.documents import NewerSchema
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views_breakers import BreakerList, BreakerView

READ_AT_ONCE = 50
MAX_FOR_MS = 30 * 24 * 3600 * 1000
"""The longest time for which a breaker may be opened; longer: until somebody closes it."""


async def listing(engine: Engine, tenant: str) -> BreakerList:
    """Every breaker with a record. Raises what the store raises."""
    breakers = engine.part(Breakers)
    names = await breakers.stored_names(tenant)
    found: list[BreakerView] = []
    for at in range(0, len(names), READ_AT_ONCE):
        some = names[at : at + READ_AT_ONCE]
        read = await asyncio.gather(*(breakers.read(tenant, name) for name in some))
        found += [_view(engine, breaker) for breaker, stored in read if stored]
    return BreakerList(items=found)


async def show(engine: Engine, tenant: str, dependency: str) -> BreakerView:
    """One breaker. Raises `NotFoundError` if nothing was ever recorded of it."""
    name = dependency.lower()
    breaker, stored = await engine.part(Breakers).read(tenant, name)
    if not stored:
        raise NotFoundError(
            f"nothing is recorded of {name}: no task failed there, its breaker is closed",
            code="BREAKER_NOT_FOUND",
        )
    return _view(engine, breaker)


async def open_(
    engine: Engine,
    tenant: str,
    dependency: str,
    *,
    by: str,
    reason: str = "",
    for_ms: int | None = None,
) -> BreakerView:
    """Let no task of the dependency through: until it is closed, or for `for_ms`; then one task
    tries, as after any opening. Raises `InvalidError`, `UnavailableError`."""
    now = engine.clock.now()

    def step(before: Breaker) -> Breaker:
        return rules_of.open_by_hand(before, by=by, reason=reason, for_ms=for_ms, now=now)

    return await _act(engine, tenant, dependency.lower(), "openBreaker", by, reason, step)


async def close(
    engine: Engine, tenant: str, dependency: str, *, by: str, reason: str = ""
) -> BreakerView:
    """Let tasks through again, whoever opened it; failures seen before do not count any more.
    Raises `InvalidError`, `UnavailableError`."""
    now = engine.clock.now()

    def step(before: Breaker) -> Breaker:
        return rules_of.close_by_hand(before, by=by, reason=reason, now=now)

    return await _act(engine, tenant, dependency.lower(), "closeBreaker", by, reason, step)


async def _act(
    engine: Engine, tenant: str, name: str, action: str, by: str, reason: str, step: Step
) -> BreakerView:
    if len(reason) > MAX_REASON_CHARS:
        raise InvalidError(f"the reason may have {MAX_REASON_CHARS} characters", code="REASON")
    was: list[BreakerStatus] = []

    def noted(before: Breaker) -> Breaker:
        after = step(before)
        if after != before:  # else it may be our own write, its answer lost
            was.append(before.status)
        return after

    try:
        change = engine.part(Breakers).change
        breaker, changed = await patiently(engine, change, tenant, name, noted)
    except (Unclear, NewerSchema) as error:
        raise UnavailableError("the breaker cannot be changed now; try again") from error
    if changed:
        engine.metrics.count("weft_operator_actions_total", action)
        await audit.record(
            engine,
            tenant,
            action=action,
            execution="",
            by=by,
            reason=reason,
            dependency=name,
            resource=f"breaker:{name}",
            details={"before": was[-1].value if was else "", "after": breaker.status.value},
        )
    return _view(engine, breaker)


def _view(engine: Engine, breaker: Breaker) -> BreakerView:
    failures, successes = rules_of.totals(breaker, engine.clock.now(), engine.tunables.breaker)
    probing = breaker.status is BreakerStatus.HALF_OPEN and breaker.probe is not None
    return BreakerView(
        dependency=breaker.dependency,
        status=breaker.status,
        failures=failures,
        successes=successes,
        errors=list(breaker.errors),
        opened_at=breaker.opened_at,
        until=breaker.probe.until if probing and breaker.probe else breaker.until,
        manual=breaker.manual,
        by=breaker.by,
        reason=breaker.reason,
        updated_at=breaker.updated_at or None,
    )
