"""Doubles of the ports for the host's tests: a clock that moves when told, a peek-lock broker."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import azure.functions as func

from orchestrator.functions.provider import EngineProvider
from orchestrator.local.host import PortInUse
from orchestrator.local.host.host import HostOptions, LocalHost
from orchestrator.local.host.host_json import WEFT, HostJson
from orchestrator.local.host.listening import listening_socket
from orchestrator.ports import (
    ChangePage,
    Document,
    MessageLockLost,
    NotFound,
    QueueCounts,
    Received,
)


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
    abandoned: list[str] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)  # messages of each complete_many
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

    async def receive(self, queue: str, max_messages: int, wait_ms: int) -> list[Received]:
        while True:
            got = self._take(queue, max_messages)
            if got:
                self.received.append(max_messages)
                return got
            self._news.clear()
            await self._news.wait()

    async def complete(self, message: Received) -> None:
        await self.complete_many([message])

    async def complete_many(self, messages: Sequence[Received]) -> None:
        self.calls.append(len(messages))
        lost: list[str] = []
        for message in messages:
            if self._held(message) is None:
                lost.append(message.message_id)
                continue
            del self._queues[message.queue][message.message_id]
            self.completed.append(message.message_id)
        if lost:
            raise MessageLockLost("lost", lost=lost)

    async def abandon(self, message: Received) -> None:
        entry = self._held(message)
        if entry is None:
            raise MessageLockLost("lost", lost=[message.message_id])
        entry.locked = False
        self.abandoned.append(message.message_id)
        self._news.set()

    async def dead_letter(self, message: Received, reason: str, description: str) -> None:
        raise NotImplementedError

    async def renew(self, message: Received) -> int:
        self.renewals.append(message.message_id)
        entry = self._held(message)
        if entry is None:
            raise MessageLockLost("lost", lost=[message.message_id])
        until = self.clock.now() + self.lock_ms
        entry.message = replace(entry.message, locked_until=until)
        return until

    async def peek(self, queue: str, limit: int) -> list[Received]:
        return [entry.message for entry in self._queues.get(queue, {}).values()][:limit]

    async def counts(self, queue: str) -> QueueCounts:
        raise NotImplementedError

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

    def _held(self, message: Received) -> _Entry | None:
        entry = self._queues[message.queue].get(message.message_id)
        if entry is None or not entry.locked or entry.message.lock_token != message.lock_token:
            return None
        return entry if entry.message.locked_until > self.clock.now() else None


async def until(condition: Callable[[], Any], pause: float = 0) -> None:
    """Wait for what another thread, process or task brings about; the test's limit bounds it."""
    while not condition():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(pause)


def port_is_free(port: int) -> bool:
    """Nobody listens there any more (connecting to find out would disturb the one who does)."""
    try:
        listening_socket("127.0.0.1", port).close()
    except PortInUse:
        return False
    return True


class FakeStore:
    """The three verbs of `DocumentStore` that the feed listener uses."""

    def __init__(self) -> None:
        self.log: list[dict[str, Any]] = []
        self.leases: dict[str, dict[str, Any]] = {}
        self.fail: list[Exception] = []

    async def changes(self, container: str, cursor: str | None, limit: int) -> ChangePage:
        if self.fail:
            raise self.fail.pop(0)
        start = int(cursor or 0)
        some = self.log[start : start + limit]
        documents = [Document(body["id"], body, f"e{body['id']}") for body in some]
        return ChangePage(documents, str(start + len(some)))

    async def read(self, container: str, partition: tuple[str, ...], id: str) -> Document:
        if id not in self.leases:
            raise NotFound(id)
        return Document(id, self.leases[id], "e")

    async def upsert(self, container: str, partition: tuple[str, ...], body: dict[str, Any]) -> str:
        assert (container, partition) == ("leases", (body["id"],))
        self.leases[body["id"]] = body
        return "e"


def provider() -> EngineProvider:
    """One that is never asked: the test's functions need no engine."""

    async def build() -> Any:
        raise AssertionError("no engine in this test")

    return EngineProvider(build)


def local_host(
    app: func.FunctionApp,
    *,
    broker: Any = None,
    store: Any = None,
    clock: Any = None,
    host_json: HostJson = WEFT,
    **options: Any,
) -> LocalHost:
    """A host over fakes."""
    clock = clock or FakeClock()
    return LocalHost(
        app,
        provider=provider(),
        broker=broker or FakeBroker(clock),
        store=store or FakeStore(),
        clock=clock,
        host_json=host_json,
        options=HostOptions(**options),
    )
