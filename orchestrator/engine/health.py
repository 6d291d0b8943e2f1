"""Is this process fit to serve, and what does it depend on?

down       the store does not answer: nothing can be taken in. 503, also from `/ready`
degraded   something else does not answer, or work waits for too long. 200: taking the process
           out would not mend it, and what it takes in is safe
ok         neither
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from orchestrator.domain.topology import CONTROL
from orchestrator.engine import levels
from orchestrator.engine.code_catalog import Missing
from orchestrator.engine.core import Engine
from orchestrator.engine.views import Check, HealthView

STUCK_DEGRADED: Final = 8
"""From this many activities that outlived their timeout, a process is reported as degraded."""
WAITING_DEGRADED_MS: Final = 5 * 60_000
"""Messages, outboxes and executions that wait for longer than this are reported, too. An outbox
counts from the time when the sweeper should have sent it."""
PROBE_S: Final = 2.0
"""A dependency that takes longer to answer does not answer."""
KEEP_S: Final = 1.0
"""An answer is given again for so long: many probes are no load."""


class _Recent:
    """The last answer, and the asking in progress, which all who come meanwhile wait for."""

    def __init__(self, engine: Engine) -> None:
        self.at = float("-inf")
        self.view: HealthView | None = None
        self.asking: asyncio.Task[HealthView] | None = None


async def recent(engine: Engine) -> HealthView:
    """`check`, at most once per `KEEP_S`."""
    kept = engine.part(_Recent)
    if kept.view is not None and time.monotonic() - kept.at < KEEP_S:
        return kept.view
    if kept.asking is None:
        kept.asking = asyncio.create_task(_ask(engine, kept), name="weft-health")
        kept.asking.add_done_callback(lambda _: setattr(kept, "asking", None))
    # Shielded: a probe that gives up must not take the others' answer with it.
    return await asyncio.shield(kept.asking)


async def _ask(engine: Engine, kept: _Recent) -> HealthView:
    kept.view = await check(engine)
    kept.at = time.monotonic()
    return kept.view


async def check(engine: Engine) -> HealthView:
    """Ask every dependency once, all at the same time. Never raises."""

    async def store() -> None:
        await engine.store.read_many(CONTROL, ("health",), ["health"])

    probes = {"store": store, **{name: probe.ping for name, probe in engine.probes.items()}}
    *answers, backlog = await asyncio.gather(
        *(_probe(ping) for ping in probes.values()), _backlog(engine)
    )
    checks = dict(zip(probes, answers, strict=True))
    checks |= {"backlog": backlog, "activities": _activities(engine)}
    if engine.code.names() or Missing in engine.parts:
        checks["codeWorkflows"] = _code(engine)
    if not checks["store"].ok:
        status = "down"
    else:
        status = "ok" if all(item.ok for item in checks.values()) else "degraded"
    if engine.authenticator.warning:
        checks["identity"] = Check(ok=True, detail=engine.authenticator.warning)
    return HealthView(status=status, checks=checks)


async def _probe(ping: Callable[[], Awaitable[None]]) -> Check:
    """Whatever is wrong is the dependency's fault, and only its kind is told: texts name hosts."""
    begin = time.perf_counter()
    try:
        async with asyncio.timeout(PROBE_S):
            await ping()
    except TimeoutError:
        return Check(ok=False, detail=f"no answer within {PROBE_S:g} s")
    except Exception as error:
        return Check(ok=False, detail=type(error).__name__)
    return Check(ok=True, latency_ms=round((time.perf_counter() - begin) * 1000, 2))


async def _backlog(engine: Engine) -> Check:
    """Whether anything waits for longer than it should."""
    try:
        async with asyncio.timeout(PROBE_S):
            ages = await levels.refresh(engine)
    except TimeoutError:
        return Check(ok=False, detail=f"no answer within {PROBE_S:g} s")
    except Exception as error:
        return Check(ok=False, detail=type(error).__name__)
    outbox, overdue = ages.pop(levels.OUTBOX_AGE), ages.pop(levels.OVERDUE)
    found = {
        "messages wait unsent": (outbox, WAITING_DEGRADED_MS + engine.tunables.outbox_grace_ms),
        "an execution is overdue": (overdue, WAITING_DEGRADED_MS),
        "messages wait in a queue": (max(ages.values(), default=0), WAITING_DEGRADED_MS),
    }
    late = [f"{what} for {age // 1000} s" for what, (age, most) in found.items() if age > most]
    return Check(
        ok=not late,
        detail="; ".join(late),
        seconds={
            "outbox": outbox / 1000,
            "overdue": overdue / 1000,
            **{
                f"queue {name[len(levels.QUEUE_OLDEST) + 1 : -1]}": ms / 1000
                for name, ms in ages.items()
            },
        },
    )


def _code(engine: Engine) -> Check:
    """Whether tasks wait for a version of a code workflow that is not deployed here."""
    missing = engine.part(Missing).lately(engine.clock.now())
    detail = f"tasks wait for versions that are not deployed: {', '.join(missing)}"
    return Check(ok=not missing, detail=detail if missing else "")


def _activities(engine: Engine) -> Check:
    stuck = engine.activities.stuck()
    detail = f"{stuck} activities outlived their timeout and still run" if stuck else ""
    return Check(ok=stuck < STUCK_DEGRADED, detail=detail)
