"""Something of a tenant that many requests need and that seldom changes: read once a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from orchestrator.engine.core import Engine
from orchestrator.engine.lru import Lru

REMEMBERED_MS: Final = 1_000
REMEMBERED_TENANTS: Final = 500

T = TypeVar("T")


class Remembered(Generic[T]):
    """A memory of `load(tenant)`: each answer serves for `REMEMBERED_MS`, and a reading is shared
    by all who wait for it."""

    def __init__(self, engine: Engine, load: Callable[[str], Awaitable[T]]) -> None:
        self._engine = engine
        self._load = load
        self._known: Lru[tuple[int, T]] = Lru(REMEMBERED_TENANTS)
        self._reading: dict[str, asyncio.Task[T]] = {}

    async def of(self, tenant: str) -> T:
        """What was loaded at most a second ago. Raises what `load` raises."""
        known = self._known.get(tenant)
        # Not a plain difference: a wall clock that was set back must not keep old things alive.
        if known is not None and 0 <= self._engine.clock.now() - known[0] < REMEMBERED_MS:
            return known[1]
        running = self._reading.get(tenant)
        if running is None:
            running = asyncio.create_task(self._read(tenant), name="read-tenant")
            self._reading[tenant] = running
            running.add_done_callback(lambda done: self._ended(tenant, done))
        return await asyncio.shield(running)

    def last(self, tenant: str) -> T | None:
        """What was loaded last, however long ago."""
        known = self._known.get(tenant)
        return None if known is None else known[1]

    def forget(self, tenant: str) -> None:
        """Read again next time; a reading that runs may be of before, and is not remembered."""
        self._known.drop(tenant)
        self._reading.pop(tenant, None)

    async def _read(self, tenant: str) -> T:
        at, this = self._engine.clock.now(), asyncio.current_task()
        found = await self._load(tenant)
        if self._reading.get(tenant) is this:
            self._known.put(tenant, (at, found))
        return found

    def _ended(self, tenant: str, done: asyncio.Task[T]) -> None:
        if self._reading.get(tenant) is done:
            del self._reading[tenant]
        if not done.cancelled():
            done.exception()  # seen, also if all who waited have gone

    async def close(self) -> None:
        """Give up readings that run."""
        running = list(self._reading.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
