"""Tenant slots as a process holds them: at most so many tasks of a tenant run, wherever they run.

A process takes as many as it needs now, hands them out to its tasks without asking again, keeps
them by one write every third of a lease, gives back what was idle for a second, and everything when
it closes. One that was killed loses its slots at the end of the lease. A tenant without a limit has
no slots, and costs nothing here.

A task that gets none is postponed (`gate`). When a slot becomes free in this process, one of those
that this process has postponed is called at once, and one more when the slot is given back unused;
its own message, when it comes, is a copy.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from orchestrator.domain import slots as rules
from orchestrator.domain.slots import Slots
from orchestrator.engine import slot_docs
from orchestrator.engine.core import Engine
from orchestrator.engine.documents import NewerSchema
from orchestrator.engine.tenant_limits import LimitBook
from orchestrator.ports import (
    Conflict,
    NotFound,
    OutMessage,
    PreconditionFailed,
    StoreError,
    TransportError,
    Unavailable,
)

log = logging.getLogger(__name__)

TICK_MS: Final = 1_000
"""How long a slot may be idle before it is given back; how long "all taken" is believed."""
TRIES: Final = 20
"""ETag conflicts in a row before a task has to wait."""
STAMP_MS: Final = 30_000
"""That all slots are taken is written this often at most by those who hold none."""
MAX_WAITING: Final = 1_000
"""Postponed tasks of one tenant that are called when a slot is free; others come by themselves."""


@dataclass(slots=True)
class _Held:
    """One tenant's slots in this process."""

    limit: int = 0  # for which `granted` was granted
    granted: int = 0
    until: int = 0
    written_at: int = 0
    used: int = 0
    peak: int = 0  # most used at once since the last tick
    wanting: int = 0
    full_at: int | None = None  # when "all taken" was last the answer
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: OrderedDict[tuple[object, ...], OutMessage] = field(
        default_factory=OrderedDict[tuple[object, ...], OutMessage]
    )

    def take(self, limit: int, now: int) -> bool:
        """One of those that are there."""
        if self.limit != limit or self.used >= self.granted or now >= self.until:
            return False
        self.used += 1
        self.peak = max(self.peak, self.used)
        return True


class SlotBook:
    """All slots of one process: `engine.part(SlotBook)`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._token = ""
        self._tenants: dict[str, _Held] = {}
        self._loop: asyncio.Task[None] | None = None

    async def take(self, tenant: str) -> bool | None:
        """A slot for one task: True, to be given back by `give_back`; False: all are taken; None:
        the tenant needs none. Raises `Throttled` or `Unavailable`: a limit holds also while the
        store is in trouble."""
        limit = await self._limit(tenant)
        if limit is None:
            return None
        held = self._tenants.setdefault(tenant, _Held())
        clock = self._engine.clock
        if held.take(limit, clock.now()):
            return True
        held.wanting += 1
        self._keep()  # not when it ends: who is being cancelled begins nothing new
        try:
            async with held.lock:
                if held.take(limit, clock.now()):
                    return True
                # Differences both ways: after a clock was set back, nothing here may wait for it.
                full = held.full_at is not None and abs(clock.now() - held.full_at) < TICK_MS
                if full and held.limit == limit:
                    return False
                await self._change(tenant, held, held.used + held.wanting, limit)
                if held.take(limit, clock.now()):
                    return True
                held.full_at = clock.now()
                return False
        finally:
            held.wanting -= 1

    def give_back(self, tenant: str) -> None:
        """The task has ended."""
        held = self._tenants.get(tenant)
        if held is None:
            return  # closed meanwhile, and given back with all the others
        held.used -= 1
        if held.waiting:
            self._call_next(held)

    def waits(self, tenant: str, task: tuple[object, ...], message: OutMessage) -> None:
        """A task that was postponed; `message` calls it when a slot is free here."""
        held = self._tenants.setdefault(tenant, _Held())
        held.waiting[task] = message
        if len(held.waiting) > MAX_WAITING:
            held.waiting.popitem(last=False)
        self._keep()

    def came(self, tenant: str, task: tuple[object, ...]) -> None:
        """It has come again, and need not be called."""
        if tenant in self._tenants:
            self._tenants[tenant].waiting.pop(task, None)

    async def busy(self, tenant: str) -> bool:
        """Whether tasks of the tenant may be waiting for slots: their silence is no loss. Never
        raises."""
        if await self._limit(tenant) is None:
            return False
        try:
            slots, _ = await slot_docs.find(self._engine, tenant)
        except _TROUBLE:
            return False
        return slots.busy(self._engine.clock.now())

    async def close(self) -> None:
        """Give everything back: nothing runs here any more."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
            self._loop = None
        for tenant, held in self._tenants.items():
            if held.granted:
                held.used = 0
                await self._renew(tenant, held, 0)
        self._tenants.clear()

    async def _limit(self, tenant: str) -> int | None:
        return (await self._engine.part(LimitBook).of(tenant)).concurrent_tasks

    def _call_next(self, held: _Held) -> None:
        _, message = held.waiting.popitem(last=False)
        self._engine.spawn(self._call(message), "weft-slot-free")

    async def _call(self, message: OutMessage) -> None:
        try:
            await self._engine.transport.send([message])
        except TransportError as error:
            log.info(
                "task that waits for a slot not called, its message will come: %s",
                type(error).__name__,
                extra={"action": "slots.not_called"},
            )

    async def _change(self, tenant: str, held: _Held, wanted: int, limit: int) -> None:
        """Hold `wanted` if the others leave so many; the caller has the lock."""
        engine = self._engine
        self._token = self._token or f"{engine.worker}:{engine.ids.new()}"
        for _ in range(TRIES):
            try:
                before, etag = await slot_docs.find(engine, tenant)
                now = engine.clock.now()
                after = rules.hold(
                    before,
                    self._token,
                    wanted,
                    used=held.used,
                    limit=limit,
                    now=now,
                    lease_ms=engine.tunables.lease_ms,
                )
                if after.of(self._token) < held.granted:
                    # Whatever becomes of the write: no task may take one of those any more.
                    held.granted = max(after.of(self._token), held.used)
                if after.of(self._token) or before.of(self._token) or _worth(before, after):
                    await slot_docs.write(engine, tenant, after, etag)
            except (Conflict, PreconditionFailed, NotFound):
                continue
            except (NewerSchema, KeyError, TypeError, ValueError) as error:
                raise Unavailable(f"the tenant's slots cannot be read: {error}") from error
            held.limit, held.granted = limit, after.of(self._token)
            held.until, held.written_at = now + engine.tunables.lease_ms, now
            return
        held.full_at = engine.clock.now()

    def _keep(self) -> None:
        if self._tenants and (self._loop is None or self._loop.done()):
            self._loop = asyncio.create_task(self._tick(), name="weft-slots")

    async def _tick(self) -> None:
        while self._tenants:
            await self._engine.clock.sleep(TICK_MS)
            await asyncio.gather(
                *(self._look_after(tenant, held) for tenant, held in list(self._tenants.items()))
            )
            for tenant, held in list(self._tenants.items()):
                if not (held.granted or held.used or held.wanting or held.waiting):
                    del self._tenants[tenant]

    async def _look_after(self, tenant: str, held: _Held) -> None:
        now, peak = self._engine.clock.now(), held.peak
        held.peak = held.used
        if held.lock.locked():
            return
        old = abs(now - held.written_at) >= self._engine.tunables.lease_ms // 3
        if held.granted > peak or (held.granted and old):
            before = held.granted
            await self._renew(tenant, held, peak)
            # Who was called when they became idle may have come to another process, in vain.
            for _ in range(min(before - held.granted, len(held.waiting))):
                self._call_next(held)
        if not held.granted:
            held.waiting.clear()  # nothing here could call them

    async def _renew(self, tenant: str, held: _Held, wanted: int) -> None:
        async with held.lock:
            limit = await self._limit(tenant)
            try:
                wanted = max(wanted, held.used)
                await self._change(tenant, held, wanted, held.limit if limit is None else limit)
            except StoreError as error:
                log.warning(
                    "slots not renewed or given back, will be tried again",
                    extra={"action": "slots.not_renewed", "error": type(error).__name__},
                )


_TROUBLE = (StoreError, NewerSchema, KeyError, TypeError, ValueError)


def _worth(before: Slots, after: Slots) -> bool:
    return abs(after.full_at - before.full_at) >= STAMP_MS


async def recount(engine: Engine) -> None:
    """Drop holders that have not been heard of, and tell how many slots are held. Never raises."""
    now, total = engine.clock.now(), 0
    try:
        for tenant, slots, etag in await slot_docs.all_of(engine):
            total += slots.held(now)
            if gone := slots.expired(now):
                try:
                    await slot_docs.write(engine, tenant, rules.without_expired(slots, now), etag)
                except (Conflict, PreconditionFailed, NotFound):
                    continue  # whoever was faster dropped them, too
                engine.metrics.count("weft_repairs_total", "slot", gone)
    except StoreError as error:
        log.warning(
            "slots not counted, the next sweep does it",
            extra={"action": "slots.not_counted", "error": type(error).__name__},
        )
        return
    engine.metrics.gauge("weft_slots_held", "", total)
