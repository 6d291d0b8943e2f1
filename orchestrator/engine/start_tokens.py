"""The rate of a tenant's starts, shared by all processes: one token bucket per tenant.

    id               type      in container `control` (each document is a partition)
    starts:{hash}    starts    `tokens` at `at`; guarded by its ETag

A process takes tokens in blocks of a quarter of a second's worth, so a steady stream costs four
writes a second and process, and no read. Tokens that it does not use within a second are void, and
so are those of a process that died. So within any stretch of time there are at most as many starts
as the burst, plus the rate times the stretch and one second.

Trouble with the store refuses nobody (`tenant_limits` says why). Losing to other processes again
and again does: then they are taking the tokens.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.domain.bucket import Bucket, Rate, full, take, wait_ms
from orchestrator.domain.errors import LimitError
from orchestrator.domain.tenant_limits import Limit, TenantLimits
from orchestrator.domain.topology import CONTROL, SCHEMA_VERSION
from orchestrator.engine.core import Engine
from orchestrator.engine.lru import Lru
from orchestrator.ports import Conflict, NotFound, PreconditionFailed, StoreError

log = logging.getLogger(__name__)

BLOCK_S: Final = 0.25
KEPT_MS: Final = 1_000
TRIES: Final = 20
REMEMBERED: Final = 5_000
BUSY_MS: Final = 1_000
TROUBLE_MS: Final = 1_000
TTL_SECONDS: Final = 24 * 3600
"""A bucket that nobody touched for so long is full, and needs no document."""


@dataclass(slots=True)
class _Purse:
    """What one process knows and has of one tenant's tokens."""

    tokens: int = 0
    until: int = 0  # when they are void
    waiting: int = 0
    bucket: Bucket | None = None  # as it was written or read last; others may have taken since
    etag: str | None = None
    trouble_at: int | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class StartTokens:
    """One engine's tokens; see `Engine.part`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._purses: Lru[_Purse] = Lru(REMEMBERED)

    async def take(self, tenant: str, limits: TenantLimits) -> int | None:
        """Use one token; None if it was used, or is not needed, else in how many ms there will be
        one. Raises nothing."""
        if limits.starts_per_second is None:
            return None
        rate = Rate(limits.starts_per_second, limits.burst)
        purse = self._purse(tenant)
        purse.waiting += 1
        try:
            async with purse.lock:
                if self._use(purse):
                    return None
                return await self._more(tenant, purse, rate)
        finally:
            purse.waiting -= 1

    def give_back(self, tenant: str) -> None:
        """The token was not needed after all: it serves the next start here."""
        purse, now = self._purse(tenant), self._engine.clock.now()
        if not 0 < purse.until - now <= KEPT_MS:
            purse.tokens, purse.until = 0, now + KEPT_MS
        purse.tokens += 1

    async def left(self, tenant: str, limits: TenantLimits) -> int | None:
        """Tokens that are there now; None without a limit. Raises what the store raises."""
        if limits.starts_per_second is None:
            return None
        bucket, _ = await self._read(_id(tenant))
        rate, now = Rate(limits.starts_per_second, limits.burst), self._engine.clock.now()
        return rate.burst if bucket is None else take(bucket, rate, rate.burst, now)[0]

    # --- inside -----------------------------------------------------------------------------------

    def _purse(self, tenant: str) -> _Purse:
        purse = self._purses.get(tenant)
        if purse is None:
            purse = _Purse()
            self._purses.put(tenant, purse)
        return purse

    def _use(self, purse: _Purse) -> bool:
        # Both ways: a clock that was set back must not keep tokens for hours.
        if not 0 < purse.until - self._engine.clock.now() <= KEPT_MS:
            purse.tokens = 0
        if purse.tokens < 1:
            return False
        purse.tokens -= 1
        return True

    async def _more(self, tenant: str, purse: _Purse, rate: Rate) -> int | None:
        now = self._engine.clock.now()
        if purse.trouble_at is not None and abs(now - purse.trouble_at) < TROUBLE_MS:
            return None  # those behind must not wait for a sick store one after the other
        try:
            async with asyncio.timeout(self._engine.tunables.fast_path_ms / 1000):
                got, wait = await self._shared(tenant, purse, rate)
        except (StoreError, TimeoutError, KeyError, TypeError, ValueError) as error:
            purse.bucket = purse.etag = None
            purse.trouble_at = now
            self._engine.metrics.count("weft_limits_trouble_total")
            log.warning(
                "tokens not taken, the start goes on: %s",
                type(error).__name__,
                extra={"action": "limits.no_tokens", "tenant": tenant},
            )
            return None
        if not got:
            return wait
        purse.tokens, purse.until = got - 1, self._engine.clock.now() + KEPT_MS
        return None

    async def _shared(self, tenant: str, purse: _Purse, rate: Rate) -> tuple[int, int]:
        """Take a block from the tenant's bucket; how many, and how long to wait if none."""
        id, store = _id(tenant), self._engine.store
        for _ in range(TRIES):
            if purse.bucket is None:
                purse.bucket, purse.etag = await self._read(id)
            now = self._engine.clock.now()
            before = purse.bucket or full(rate, now)
            wanted = max(purse.waiting, math.ceil(rate.per_second * BLOCK_S))
            got, after = take(before, rate, wanted, now)
            if not got:
                # Also by memory: others can only have taken from it since.
                return 0, wait_ms(before, rate, now)
            body = _body(id, tenant, after, rate)
            try:
                if purse.etag is None:
                    purse.etag = await store.create(CONTROL, (id,), body)
                else:
                    purse.etag = await store.replace(CONTROL, (id,), body, if_match=purse.etag)
            except (Conflict, PreconditionFailed, NotFound):
                purse.bucket = purse.etag = None
                continue
            purse.bucket = after
            return got, 0
        return 0, BUSY_MS

    async def _read(self, id: str) -> tuple[Bucket | None, str | None]:
        try:
            doc = await self._engine.store.read(CONTROL, (id,), id)
        except NotFound:
            return None, None
        return Bucket(float(doc.body["tokens"]), int(doc.body["at"])), doc.etag


def _id(tenant: str) -> str:
    return f"starts:{hashlib.sha256(tenant.encode()).hexdigest()[:32]}"


def _body(id: str, tenant: str, bucket: Bucket, rate: Rate) -> dict[str, Any]:
    return {
        "id": id,
        "type": "starts",
        "tenantId": tenant,
        "v": SCHEMA_VERSION,
        "tokens": bucket.tokens,
        "at": bucket.at,
        "ttl": TTL_SECONDS + math.ceil(rate.burst / rate.per_second),
    }


def refusal(limits: TenantLimits, retry_after_ms: int) -> LimitError:
    """What is said to who has no token."""
    allowed = limits.starts_per_second or 0
    return LimitError(Limit.STARTS, allowed, allowed, retry_after_ms=retry_after_ms)
