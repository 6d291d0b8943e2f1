"""Is this process fit to serve, and what does it depend on?"""

from __future__ import annotations

import time

from orchestrator.domain.topology import CONTROL, EXECUTIONS
from orchestrator.engine.code_catalog import Missing
from orchestrator.engine.core import Engine
from orchestrator.engine.views import Check, HealthView
from orchestrator.ports import Query, StoreError, Where

STUCK_DEGRADED = 8
"""From this many activities that outlived their timeout, a process is reported as degraded."""
OUTBOX_OLD_MS = 5 * 60_000


async def check(engine: Engine) -> HealthView:
    """Ask every dependency once. Never raises."""
    checks = {
        "store": await _store(engine),
        "outbox": await _outbox(engine),
        "activities": _activities(engine),
    }
    if engine.code.names() or Missing in engine.parts:
        checks["codeWorkflows"] = _code(engine)
    if not checks["store"].ok:
        status = "down"
    else:
        status = "ok" if all(item.ok for item in checks.values()) else "degraded"
    if engine.authenticator.warning:
        checks["identity"] = Check(ok=True, detail=engine.authenticator.warning)
    return HealthView(status=status, checks=checks)


async def _store(engine: Engine) -> Check:
    begin = time.perf_counter()
    try:
        await engine.store.read_many(CONTROL, ("health",), ["health"])
    except StoreError as error:
        return Check(ok=False, detail=type(error).__name__)
    return Check(ok=True, latency_ms=round((time.perf_counter() - begin) * 1000, 2))


async def _outbox(engine: Engine) -> Check:
    """Whether anything waits long past the time when the sweeper should have sent it."""
    limit = engine.clock.now() - OUTBOX_OLD_MS
    query = Query(
        where=(Where("type", "=", "outbox"), Where("sweepAt", "<=", limit)),
        order_by="sweepAt",
        limit=1,
    )
    try:
        found = await engine.store.query(EXECUTIONS, query)
    except StoreError as error:
        return Check(ok=False, detail=type(error).__name__)
    if found:
        return Check(ok=False, detail="messages wait unsent for more than five minutes")
    return Check(ok=True)


def _code(engine: Engine) -> Check:
    """Whether tasks wait for a version of a code workflow that is not deployed here."""
    missing = engine.part(Missing).lately(engine.clock.now())
    detail = f"tasks wait for versions that are not deployed: {', '.join(missing)}"
    return Check(ok=not missing, detail=detail if missing else "")


def _activities(engine: Engine) -> Check:
    stuck = engine.activities.stuck()
    detail = f"{stuck} activities outlived their timeout and still run" if stuck else ""
    return Check(ok=stuck < STUCK_DEGRADED, detail=detail)
