"""The secrets that one process has read, for a while, in memory only.

Key Vault throttles, and a wide map would ask it a thousand times at once. So each secret is read
once per period, and all who wait share the answer. A rotated secret is taken up when the period is
over, or at the next attempt after one that used it has failed: the old value is the likely reason.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from orchestrator.engine.core import Engine
from orchestrator.engine.lru import Lru
from orchestrator.ports import SecretNotFound

KEEP_MISSING_MS: Final = 30_000
"""A secret that does not exist is usually created just then."""
FRESH_MS: Final = 5_000
"""A value that was read within this is not read again because an attempt failed: a service that
refuses everybody must not be passed on to the vault as load."""
MAX_KEPT: Final = 2_000

_Key = tuple[str, str]  # tenant, name


@dataclass(frozen=True, slots=True)
class _Read:
    at: int  # epoch ms
    value: str | None  # None: there is none

    def __repr__(self) -> str:
        return f"_Read(at={self.at})"


class SecretBook:
    """One engine's memory of secrets; see `Engine.part`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: Lru[_Read] = Lru(MAX_KEPT)
        self._reading: dict[_Key, asyncio.Task[_Read]] = {}

    async def get(self, tenant: str, name: str) -> str:
        """The value. Raises `SecretNotFound`; `Throttled`, `Unavailable`, which are not kept."""
        key = (tenant, name)
        found = self._known.get(key)
        if found is None or not self._holds(found):
            found = await self._read(key)
        if found.value is None:
            raise SecretNotFound(f"tenant {tenant!r:.80} has no secret {name!r:.80}")
        return found.value

    def doubt(self, tenant: str, name: str) -> bool:
        """An attempt that used it has failed: read it again next time, unless it was read just
        now. Whether it will be."""
        found = self._known.get((tenant, name))
        if found is not None and 0 <= self._engine.clock.now() - found.at < FRESH_MS:
            return False
        self._known.drop((tenant, name))
        return True

    async def close(self) -> None:
        """Forget everything, give up reads that run."""
        running = list(self._reading.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._known = Lru(MAX_KEPT)

    def _holds(self, found: _Read) -> bool:
        keep = self._engine.tunables.secrets_ttl_ms
        if found.value is None:
            keep = min(keep, KEEP_MISSING_MS)
        # Not a plain difference: a wall clock that was set back must not keep old values alive.
        return 0 <= self._engine.clock.now() - found.at < keep

    async def _read(self, key: _Key) -> _Read:
        """One read, shared by all who wait for it; one who gives up does not end it."""
        running = self._reading.get(key)
        if running is None:
            running = asyncio.create_task(self._load(key), name="read-secret")
            self._reading[key] = running
            running.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(running)

    def _done(self, key: _Key, task: asyncio.Task[_Read]) -> None:
        self._reading.pop(key, None)
        if not task.cancelled():
            task.exception()  # looked at, in case everyone who waited has given up

    async def _load(self, key: _Key) -> _Read:
        at = self._engine.clock.now()
        try:
            found = _Read(at, await self._engine.secrets.get(*key))
        except SecretNotFound:
            found = _Read(at, None)
        self._known.put(key, found)
        return found
