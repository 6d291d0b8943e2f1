"""How many executions of a tenant have not ended: counted in the read model, not kept in step.

An exact counter would have to be written at every start and every end. So the read model is counted
instead, at most once a second and process (once in ten while far below the limit). Added to it is
what this process has started and the read model does not show yet. Several processes together may
therefore exceed a limit, by what the others start between two counts and within the change feed's
delay.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

from orchestrator.domain.status import TERMINAL_EXECUTION, ExecutionStatus
from orchestrator.domain.topology import VISIBILITY
from orchestrator.engine.core import Engine
from orchestrator.engine.lru import Lru
from orchestrator.ports import Query, StoreError, Where

log = logging.getLogger(__name__)

OPEN: Final = tuple(status for status in ExecutionStatus if status not in TERMINAL_EXECUTION)
NEAR_MS: Final = 1_000
FAR_MS: Final = 10_000
UNSEEN_MS: Final = 30_000
"""A start of ours that the read model does not show for so long will not show for other reasons."""
LOOKED_UP: Final = 100
"""Of our own latest starts that are looked for in the read model; older ones are taken as shown."""
REMEMBERED: Final = 5_000


@dataclass(slots=True)
class _Known:
    count: int = 0
    at: int | None = None
    own: dict[str, int] = field(default_factory=dict[str, int])  # execution -> when it was started
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def total(self) -> int:
        return self.count + len(self.own)


class OpenExecutions:
    """One engine's view of all tenants; see `Engine.part`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: Lru[_Known] = Lru(REMEMBERED)

    async def enter(self, tenant: str, execution: str, limit: int) -> int | None:
        """Note that `execution` is about to be started; or, if `limit` are open, how many are.
        Raises nothing: while the store is in trouble, the last count holds."""
        known = self._entry(tenant)
        async with known.lock:  # the others wait for this count instead of counting too
            if not self._fresh(known, limit):
                await self._recount(tenant, known, limit)
            if known.total >= limit:
                return known.total
            known.own[execution] = self._engine.clock.now()
        return None

    def leave(self, tenant: str, execution: str) -> None:
        """It was not started after all."""
        self._entry(tenant).own.pop(execution, None)

    def _entry(self, tenant: str) -> _Known:
        known = self._known.get(tenant)
        if known is None:
            known = _Known()
            self._known.put(tenant, known)
        return known

    def _fresh(self, known: _Known, limit: int) -> bool:
        if known.at is None:
            return False
        most = NEAR_MS if known.total * 2 >= limit else FAR_MS
        return abs(self._engine.clock.now() - known.at) < most

    async def _recount(self, tenant: str, known: _Known, limit: int) -> None:
        now = self._engine.clock.now()
        known.own = {id: at for id, at in known.own.items() if abs(now - at) < UNSEEN_MS}
        latest = list(known.own)[-LOOKED_UP:]
        try:
            async with asyncio.timeout(self._engine.tunables.fast_path_ms / 1000):
                # Looked for before the count: what is there then is in the count, or has ended.
                shown = await self._shown(tenant, latest)
                known.count = await count(self._engine, tenant, most=limit + 1)
            known.own = {id: known.own[id] for id in latest if id in known.own and id not in shown}
        except (StoreError, TimeoutError) as error:
            self._engine.metrics.count("weft_limits_trouble_total")
            log.warning(
                "open executions not counted, the last count holds: %s",
                type(error).__name__,
                extra={"action": "limits.not_counted", "tenant": tenant},
            )
        known.at = now

    async def _shown(self, tenant: str, ids: list[str]) -> set[str]:
        if not ids:
            return set()
        return set(await self._engine.store.read_many(VISIBILITY, (tenant,), ids))


async def count(engine: Engine, tenant: str, *, most: int) -> int:
    """Executions of the tenant that have not ended, as the read model shows them; counted up to
    `most` in each status. Raises what the store raises."""
    counts = await asyncio.gather(
        *(
            engine.store.count(
                VISIBILITY,
                Query(
                    partition=(tenant,),
                    where=(
                        Where("type", "=", "execution"),
                        Where("tenantId", "=", tenant),
                        Where("status", "=", status.value),
                        Where("createdAt", ">", 0),  # all: it says what to order by
                    ),
                    order_by="createdAt",
                    limit=max(1, most),
                ),
            )
            for status in OPEN
        )
    )
    return sum(counts)
