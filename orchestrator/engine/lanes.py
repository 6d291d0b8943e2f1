"""Fair shares between tenants, without any limit being set: the overflow lane.

A queue is first in, first out: whoever sends one task behind another tenant's five thousand waits
for all of them. So while more than one tenant is active,

- of the tasks that are dispatched and the executions that are started, the queue takes as many of a
  tenant a second as a process has places, and the rest goes to the low queue at once;
- while a task queue is crowded in this process, what a tenant has beyond its share of the places is
  moved to the low queue, once, as it is: no attempt, no document. Moving takes a fraction of a
  millisecond, so the queue in front of the others empties at the speed of moving and not of work.
- of a full batch of the orchestration queue, a tenant that has more than its share keeps a quarter
  of that, and the rest is moved likewise. What is counted are executions: many results of one are
  one decision, and in the low queue each would be one of its own.

A tenant that is alone is never moved and costs one read a second, and that only while it is
crowding.

The low queue, with what was moved and the tasks of low priority, yields: it may use all places that
the other two leave, and an eighth of them in any case, so that nothing starves.

Which tenants are active is a mark that whoever orchestrates for them leaves (document `active` in
`control`: tenant to epoch ms): the process that works through a backlog may see nobody else's
messages before its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from typing import Any, Final

from orchestrator.domain.topology import CONTROL, SCHEMA_VERSION, TASKS_LOW_QUEUE
from orchestrator.engine import documents
from orchestrator.engine.core import Engine
from orchestrator.engine.lru import Lru
from orchestrator.ports import Conflict, NotFound, PreconditionFailed, StoreError

log = logging.getLogger(__name__)

LANE: Final = "lane"
"""Property of a task message that is not in its class's queue."""
OVERFLOW: Final = "overflow"
MARKS: Final = "active"
"""Id and type of the document with the marks."""
MARK_MS: Final = 20_000
"""A mark that is younger is not renewed."""
PAUSE_MS: Final = 1_000
"""Between two reads, and between two writes, of the marks by one process."""
MAX_MARKS: Final = 200
"""The latest ones are kept: beyond, everybody's share is at its least anyway."""
TRIES: Final = 5
REMEMBERED: Final = 10_000
LEAST_SHARE: Final = 8
"""One place in so many is the low queue's, however much the others have to do."""
DECIDING_SHARE: Final = 16
"""Of the places of the low queue, one in so many is for decisions that were moved there."""
MAX_WAIT_MS: Final = 60_000
"""A message waits for a place that long at most: its function's time runs already."""


class _Turn:
    """A message of the low queue that waits for a place."""

    __slots__ = ("come", "since", "tenant")

    def __init__(self, tenant: str, since: int) -> None:
        self.tenant = tenant
        self.since = since
        self.come = asyncio.Event()


class Lanes:
    """The places of one process, and who else wants some: `engine.part(Lanes)`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: dict[str, Counter[str]] = {}  # queue -> tenant -> messages being handled
        self._active: dict[str, int] = {}  # tenant -> when it was last marked or seen
        self._unmarked: set[str] = set()
        self._sent: Lru[tuple[float, int]] = Lru(REMEMBERED)  # what began, leaking; as of when
        self._waiting: deque[_Turn] = deque()
        self._bell: asyncio.Task[None] | None = None
        self._read_at = self._wrote_at = -PAUSE_MS
        self._deciding = asyncio.Semaphore(max(1, engine.tunables.task_places // DECIDING_SHARE))

    @contextlib.asynccontextmanager
    async def held(self, queue: str, tenant: str) -> AsyncGenerator[None, None]:
        """A place in `queue` for the duration of the block; waits for one if it is the low queue
        and the process is full."""
        held = self._held.setdefault(queue, Counter())
        if queue == TASKS_LOW_QUEUE and (self._waiting or not self._free(held)):
            await self._wait(tenant)
        else:
            held[tenant] += 1
        try:
            yield
        finally:
            self._leave(held, tenant)

    @contextlib.asynccontextmanager
    async def decides(self, tenant: str) -> AsyncGenerator[None, None]:
        """A place for a decision that was moved to the low queue. Few are made at once: they are
        all processor and store, which everybody's decisions wait for."""
        async with self._deciding, self.held(TASKS_LOW_QUEUE, tenant):
            yield

    async def close(self) -> None:
        """Whoever still waits may go on."""
        if self._bell is not None:
            self._bell.cancel()
            await asyncio.gather(self._bell, return_exceptions=True)
        while self._waiting:
            self._let_in()

    def _free(self, low: Counter[str]) -> bool:
        places = self._engine.tunables.task_places
        if low.total() < max(1, places // LEAST_SHARE):
            return True
        return sum(held.total() for held in self._held.values()) < places

    def _leave(self, held: Counter[str], tenant: str) -> None:
        held[tenant] -= 1
        if not held[tenant]:
            del held[tenant]
        while self._waiting and self._free(self._held[TASKS_LOW_QUEUE]):
            self._let_in()

    async def _wait(self, tenant: str) -> None:
        """For a place; it is held on return."""
        turn = _Turn(tenant, self._engine.clock.now())
        self._waiting.append(turn)
        if self._bell is None or self._bell.done():
            self._bell = asyncio.create_task(self._ring(), name="weft-lanes")
        try:
            await turn.come.wait()
        except asyncio.CancelledError:
            if turn.come.is_set():
                self._leave(self._held[TASKS_LOW_QUEUE], tenant)
            else:
                self._waiting.remove(turn)
            raise

    def _let_in(self) -> None:
        turn = self._waiting.popleft()
        self._held[TASKS_LOW_QUEUE][turn.tenant] += 1
        turn.come.set()

    async def _ring(self) -> None:
        """Nobody waits for so long that its message's lock or its function could end."""
        while self._waiting:
            await self._engine.clock.sleep(MAX_WAIT_MS // 4)
            now = self._engine.clock.now()
            while self._waiting and not 0 <= now - self._waiting[0].since < MAX_WAIT_MS:
                self._let_in()

    def overflows(self, queue: str, tenant: str) -> bool:
        """Whether the tenant's next message of `queue` must make room for others."""
        tunables, held = self._engine.tunables, self._held.get(queue)
        if queue == TASKS_LOW_QUEUE or held is None or not tunables.active_ms:
            return False
        # As long as a quarter of the places is free, nobody is in anybody's way.
        if held.total() < tunables.task_places * 3 // 4:
            return False
        self._look()
        tenants = {*held, tenant, *self._others(tunables.active_ms)}
        return len(tenants) > 1 and held[tenant] >= max(1, tunables.task_places // len(tenants))

    def crowding(self, batch: Mapping[tuple[str, str], int]) -> list[tuple[str, str]]:
        """Of a batch of the orchestration queue (executions, with how many messages each has):
        those that must make room for others."""
        tunables = self._engine.tunables
        places = tunables.decision_places
        # A batch that is not full has nobody behind it.
        if not tunables.active_ms or sum(batch.values()) < places * 3 // 4:
            return []
        self._look()
        has = Counter(tenant for tenant, _ in batch)
        tenants = {*has, *self._others(tunables.active_ms)}
        # Few decisions are made in less time than they are moved, however many there are who wait.
        share = max(1, places // min(len(tenants), 4))
        if len(tenants) < 2 or max(has.values()) <= share:
            return []
        crowding: list[tuple[str, str]] = []
        kept: Counter[str] = Counter()
        # Those with the most messages stay: they are the cheapest here, and the dearest there.
        for partition in sorted(batch, key=lambda one: -batch[one]):
            tenant = partition[0]
            kept[tenant] += 1
            if has[tenant] > share and kept[tenant] > max(1, share // 4):
                crowding.append(partition)
        return crowding

    def beyond(self, queue: str, tenant: str, count: int) -> int:
        """How many of `count` that begin now, and would go to `queue`, go to the low queue at once,
        because the tenant has sent its share already and others are active."""
        now, tunables = self._engine.clock.now(), self._engine.tunables
        if not tunables.active_ms or not count:
            return 0
        key = (queue, tenant)
        sent, since = self._sent.get(key) or (0.0, now)
        sent = max(0.0, sent - max(0, now - since) * tunables.task_places / 1000)
        left = max(0, tunables.task_places - int(sent))
        over = 0
        if count > left:
            self._look()
            if any(one != tenant for one in self._others(tunables.active_ms)):
                over = count - left
        self._sent.put(key, (min(sent + count - over, 2.0 * tunables.task_places), now))
        return over

    def note(self, tenants: Iterable[str]) -> None:
        """Work is being dispatched for these tenants: leave marks that are due, beside the
        caller."""
        if not self._engine.tunables.active_ms:
            return
        now = self._engine.clock.now()
        for tenant in tenants:
            if abs(now - self._active.get(tenant, -MARK_MS)) >= MARK_MS:
                self._active[tenant] = now
                self._unmarked.add(tenant)
        if self._unmarked and abs(now - self._wrote_at) >= PAUSE_MS:
            self._wrote_at = now
            wanted, self._unmarked = self._unmarked, set()
            self._engine.spawn(self._mark(wanted), "weft-active")

    def _others(self, active_ms: int) -> Iterator[str]:
        since = self._engine.clock.now() - active_ms
        return (tenant for tenant, at in self._active.items() if at > since)

    def _look(self) -> None:
        now = self._engine.clock.now()
        if abs(now - self._read_at) >= PAUSE_MS:
            self._read_at = now
            self._engine.spawn(self._read(), "weft-active")

    async def _read(self) -> None:
        try:
            self._take_in((await self._find())[0])
        except _TROUBLE as error:
            _trouble(error)

    async def _find(self) -> tuple[dict[str, int], str | None]:
        found = await self._engine.store.read_many(CONTROL, (MARKS,), [MARKS])
        if MARKS not in found:
            return {}, None
        documents.check_version(found[MARKS].body)
        tenants: dict[str, int] = found[MARKS].body["tenants"]
        return tenants, found[MARKS].etag

    def _take_in(self, marks: dict[str, int]) -> None:
        for tenant, at in marks.items():
            self._active[tenant] = max(at, self._active.get(tenant, 0))
        since = self._engine.clock.now() - self._engine.tunables.active_ms
        self._active = {tenant: at for tenant, at in self._active.items() if at > since}

    async def _mark(self, wanted: set[str]) -> None:
        engine = self._engine
        try:
            for _ in range(TRIES):
                marks, etag = await self._find()
                now = engine.clock.now()
                since = now - MARK_MS
                missing = [tenant for tenant in wanted if marks.get(tenant, 0) <= since]
                self._take_in(marks)
                if not missing:
                    return
                try:
                    await self._write({**marks, **dict.fromkeys(missing, now)}, now, etag)
                    return
                except (Conflict, PreconditionFailed, NotFound):
                    continue
        except _TROUBLE as error:
            _trouble(error)

    async def _write(self, marks: dict[str, int], now: int, etag: str | None) -> None:
        since = now - self._engine.tunables.active_ms
        latest = sorted(marks.items(), key=lambda one: -one[1])[:MAX_MARKS]
        doc: dict[str, Any] = {
            "id": MARKS,
            "type": MARKS,
            "v": SCHEMA_VERSION,
            "tenants": {tenant: at for tenant, at in latest if at > since},
        }
        if etag is None:
            await self._engine.store.create(CONTROL, (MARKS,), doc)
        else:
            await self._engine.store.replace(CONTROL, (MARKS,), doc, if_match=etag)


_TROUBLE = (StoreError, documents.NewerSchema, KeyError, ValueError, TypeError, AttributeError)


def _trouble(error: Exception) -> None:
    """Nothing depends on the marks but who waits for whom."""
    log.warning(
        "marks of active tenants not read or written: %s",
        type(error).__name__,
        extra={"action": "lanes.trouble"},
    )
