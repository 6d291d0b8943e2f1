"""Doubles of the ports for the host's tests: a clock that moves when told, a peek-lock broker."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import azure.functions as func

from orchestrator.functions.provider import EngineProvider
from orchestrator.local.host import HostOptions, LocalHost
from orchestrator.local.host.host_json import WEFT, HostJson
from orchestrator.ports import ChangePage, Document, LockLost, NotFound, Received


class FakeClock:
    """Time stands still until `advance`."""

    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self._now = now
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> int:
        return self._now

    async def sleep(self, ms: int) -> None:
        if ms <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + ms, next(self._order), woken))
        await woken

    async def advance(self, ms: int) -> None:
        """Move on, waking sleepers in order, and let everything settle."""
        await settle()
        end = self._now + ms
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, due)
            if not woken.done():
                woken.set_result(None)
            await settle()
        self._now = end
        await settle()


async def settle() -> None:
    """Let all runnable tasks run until they wait for something."""
    for _ in range(20):
        await asyncio.sleep(0)


@dataclass(slots=True)
class _Entry:
    message: Received
    locked: bool = False


@dataclass
class FakeBroker:
    """Peek-lock in memory, under the rules of Service Bus as far as the host can see them."""

    clock: FakeClock
    lock_ms: int = 60_000
    max_delivery_count: int = 10
    dead: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    renewals: list[str] = field(default_factory=list)
    received: list[int] = field(default_factory=list)  # the limit of each receive that got some

    def __post_init__(self) -> None:
        self._queues: dict[str, dict[str, _Entry]] = {}
        self._numbers = itertools.count(1)
        self._news = asyncio.Event()

    def put(self, queue: str, *bodies: bytes, properties: Mapping[str, str] | None = None) -> None:
        for body in bodies:
            number = next(self._numbers)
            message = Received(
                queue=queue,
                body=body,
                message_id=f"m{number}",
                lock_token="",
                delivery_count=0,
                enqueued_at=self.clock.now(),
                locked_until=0,
                sequence_number=number,
                properties=dict(properties or {}),
            )
            self._queues.setdefault(queue, {})[message.message_id] = _Entry(message)
        self._news.set()

    def count(self, queue: str, message_id: str) -> int:
        """Deliveries so far of a message that is still there."""
        return self._queues[queue][message_id].message.delivery_count

    async def receive(self, queue: str, limit: int, *, wait_ms: int) -> list[Received]:
        while True:
            got = self._take(queue, limit)
            if got:
                self.received.append(limit)
                return got
            self._news.clear()
            waits = [
                asyncio.ensure_future(self._news.wait()),
                asyncio.ensure_future(self.clock.sleep(wait_ms)),
            ]
            done, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in rest:
                wait.cancel()
            if waits[1] in done:
                return []

    def _take(self, queue: str, limit: int) -> list[Received]:
        got: list[Received] = []
        for entry in list(self._queues.get(queue, {}).values()):
            if len(got) == limit:
                break
            if entry.locked and entry.message.locked_until > self.clock.now():
                continue
            if entry.message.delivery_count >= self.max_delivery_count:
                self.dead.append(entry.message.message_id)
                del self._queues[queue][entry.message.message_id]
                continue
            entry.locked = True
            entry.message = replace(
                entry.message,
                delivery_count=entry.message.delivery_count + 1,
                lock_token=f"t{next(self._numbers)}",
                locked_until=self.clock.now() + self.lock_ms,
            )
            got.append(entry.message)
        return got

    def _held(self, queue: str, token: str) -> _Entry | None:
        for entry in self._queues.get(queue, {}).values():
            if entry.locked and entry.message.lock_token == token:
                return entry if entry.message.locked_until > self.clock.now() else None
        return None
