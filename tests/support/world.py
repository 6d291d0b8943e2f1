"""A small world for engine tests: the real engine on the real SQLite store, with a broker in
memory, a clock that only tests move, and activities made of plain functions.

Nothing sleeps: `settle` delivers messages until none is due, `advance` moves the clock. Messages
can be lost, doubled or held back by editing `transport.messages`.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from orchestrator.adapters.local.sqlite_store import SqliteStore
from orchestrator.domain.failure import Failure
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.topology import EVENTS_QUEUE, ORCHESTRATION_QUEUE
from orchestrator.engine import (
    catalog,
    event_queue,
    execute,
    inspect,
    orchestrate,
    submit,
    sweep,
    verify,
)
from orchestrator.engine.core import Engine, Tunables
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.views import ExecutionView, StartResult
from orchestrator.ports import (
    ActivityCall,
    ActivityFailed,
    DocumentStore,
    OutMessage,
    PayloadNotFound,
    SecretNotFound,
    TransportError,
)
from tests.support.identities import DEVELOPMENT

TENANT = "acme"
START = 1_800_000_000_000


class ManualClock:
    """Time that stands still until `advance`; sleepers wake in order of their time."""

    def __init__(self, now: int = START) -> None:
        self._now = now
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> int:
        """Epoch milliseconds."""
        return self._now

    async def sleep(self, ms: int) -> None:
        """Wait until the test has moved the clock that far."""
        future = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now + max(0, ms), self._count, future))
        await future

    def sleeping(self) -> int:
        """How many wait for time to pass."""
        return len(self._sleepers)

    def jump(self, ms: int) -> None:
        """Move the clock without waking anybody (a clock that was set)."""
        self._now += ms

    async def advance(self, ms: int) -> None:
        """Let `ms` pass: sleepers wake, each at its own time, and run until they wait again."""
        until = self._now + ms
        while self._sleepers and self._sleepers[0][0] <= until:
            at, _, future = heapq.heappop(self._sleepers)
            self._now = max(self._now, at)
            if not future.done():
                future.set_result(None)
            await quiesce()
        self._now = max(self._now, until)


async def quiesce(rounds: int = 20) -> None:
    """Let everything that can run now run, without time passing."""
    for _ in range(rounds):
        await asyncio.sleep(0)


class CountingIds:
    """Ids that are the same in every run."""

    def __init__(self, prefix: str = "id") -> None:
        self._prefix = prefix
        self._count = 0

    def new(self) -> str:
        """`id-000001`, …"""
        self._count += 1
        return f"{self._prefix}-{self._count:06}"


class MemoryTransport:
    """A broker in memory with duplicate detection; tests edit `messages` to lose or hold them."""

    def __init__(self) -> None:
        self.messages: list[OutMessage] = []
        self.sent: list[OutMessage] = []  # everything ever sent, duplicates included
        self.seen: set[str] = set()
        self.failing = False

    async def send(self, messages: Sequence[OutMessage]) -> None:
        """Accept, unless `failing`."""
        if self.failing:
            raise TransportError("the broker is down")
        for message in messages:
            self.sent.append(message)
            if message.message_id not in self.seen:
                self.seen.add(message.message_id)
                self.messages.append(message)

    async def close(self) -> None:
        """Nothing to release."""

    def take(self, now: int, queue: str | None = None, limit: int = 1_000) -> list[OutMessage]:
        """Remove and return what is due."""
        due = [
            message
            for message in self.messages
            if (message.due_at or 0) <= now and queue in (None, message.queue)
        ][:limit]
        taken = {id(message) for message in due}
        self.messages = [message for message in self.messages if id(message) not in taken]
        return due


class MemoryPayloads:
    """Payloads in a dict."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    async def put(self, tenant: str, execution: str, name: str, data: bytes) -> str:
        """Content is not deduplicated: tests look at names."""
        ref = f"mem:v1:{tenant}/{execution}/{name}"
        self.data[ref] = data
        return ref

    async def get(self, ref: str) -> bytes:
        """The data."""
        if ref not in self.data:
            raise PayloadNotFound(ref)
        return self.data[ref]

    async def delete(self, tenant: str, execution: str) -> None:
        """All of the execution."""
        for ref in [one for one in self.data if one.startswith(f"mem:v1:{tenant}/{execution}/")]:
            del self.data[ref]


class DictSecrets:
    """Secrets in a dict (tenant, name) -> value."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], str] = {}

    async def get(self, tenant: str, name: str) -> str:
        """The value."""
        if (tenant, name) not in self.values:
            raise SecretNotFound(f"no secret {name!r}")
        return self.values[tenant, name]


Fake = Callable[[ActivityCall], Any]


class FakeActivities:
    """Activities as functions of the call; sync or async; an exception is a failure named after
    its class. Records every call."""

    def __init__(self, **functions: Fake) -> None:
        self.functions: dict[str, Fake] = {"weft.transform": lambda call: call.input, **functions}
        self.calls: list[ActivityCall] = []
        self.dependencies: dict[str, str] = {}  # activity -> what it calls

    def names(self) -> frozenset[str]:
        """Registered names."""
        return frozenset(self.functions)

    def dependency(self, activity: str) -> str | None:
        """As tests say."""
        return self.dependencies.get(activity)

    async def run(self, call: ActivityCall) -> Json:
        """Run one."""
        self.calls.append(call)
        try:
            result = self.functions[call.activity](call)
            if isinstance(result, Awaitable):
                result = await result
            return result
        except ActivityFailed:
            raise
        except Exception as error:
            raise ActivityFailed(Failure(type=type(error).__name__, message=str(error))) from error

    def stuck(self) -> int:
        """None here."""
        return 0

    async def close(self) -> None:
        """Nothing to release."""


class World:
    """One engine and its surroundings. `open` before use, `close` after."""

    def __init__(
        self,
        folder: Path,
        activities: FakeActivities | None = None,
        *,
        tunables: Tunables | None = None,
        wrap_store: Callable[[DocumentStore], DocumentStore] | None = None,
    ) -> None:
        self.folder = folder
        self.clock = ManualClock()
        # Commits in the loop, not in a thread: the order of things must be the same in every run.
        self.sqlite = SqliteStore(folder / "weft.db", clock=self.clock, inline_commit_s=1e9)
        self.transport = MemoryTransport()
        self.payloads = MemoryPayloads()
        self.secrets = DictSecrets()
        self.activities = activities or FakeActivities()
        self.ids = CountingIds()
        self.tunables = tunables or Tunables()
        self._wrap_store = wrap_store or (lambda store: store)
        self.engine = self.another("worker-1")

    def another(self, worker: str) -> Engine:
        """A further process on the same store and broker (its own caches and leases)."""
        return Engine(
            store=self._wrap_store(self.sqlite),
            transport=self.transport,
            payloads=self.payloads,
            secrets=self.secrets,
            activities=self.activities,
            clock=self.clock,
            ids=self.ids,
            worker=worker,
            authenticator=DEVELOPMENT,
            platform_tenant="default",
            tunables=self.tunables,
        )

    async def open(self) -> World:
        """Open the store."""
        await self.sqlite.open()
        return self

    async def close(self) -> None:
        """Stop everything."""
        for part in self.engine.parts.values():
            if hasattr(part, "close"):
                await part.close()
        await self.engine.drain()
        await self.sqlite.close()

    async def publish(self, definition: dict[str, Any]) -> int:
        """Publish; the version."""
        return (await catalog.publish(self.engine, TENANT, definition)).version

    async def start(self, workflow: str, input: Json = None, **options: Any) -> StartResult:
        """Start an execution."""
        return await submit.start(self.engine, TENANT, workflow, input, **options)

    async def deliver(self, messages: Iterable[OutMessage], engine: Engine | None = None) -> None:
        """Hand messages to their triggers: orchestration as one batch, tasks side by side."""
        engine = engine or self.engine
        batch: list[Incoming] = []
        tasks: list[Awaitable[None]] = []
        for message in messages:
            incoming = Incoming(
                body=message.body, message_id=message.message_id, properties=message.properties
            )
            if message.queue == ORCHESTRATION_QUEUE:
                batch.append(incoming)
            elif message.queue == EVENTS_QUEUE:
                tasks.append(event_queue.handle(engine, TENANT, incoming))
            else:
                tasks.append(execute.handle(engine, incoming, queue=message.queue))
        if batch:
            await orchestrate.handle(engine, batch)
        await asyncio.gather(*tasks)
        await engine.drain()

    async def settle(self, engine: Engine | None = None, rounds: int = 10_000) -> None:
        """Deliver until nothing is due."""
        for _ in range(rounds):
            due = self.transport.take(self.clock.now())
            if not due:
                return
            await self.deliver(due, engine)
        raise AssertionError("messages never ran out")

    async def run_until_quiet(self, limit_ms: int = 10 * 24 * 3600 * 1000) -> None:
        """Settle, and let time pass to the next due message, until none is left."""
        end = self.clock.now() + limit_ms
        while True:
            await self.settle()
            later = [message.due_at for message in self.transport.messages if message.due_at]
            if not later or min(later) > end:
                return
            await self.clock.advance(max(0, min(later) - self.clock.now()))

    async def sweep(self) -> Any:
        """One sweep, and what it causes."""
        report = await sweep.sweep(self.engine)
        await self.settle()
        return report

    async def view(self, execution: str) -> ExecutionView:
        """The execution as the API shows it."""
        return await inspect.execution(self.engine, TENANT, execution)

    async def statuses(self, execution: str) -> dict[str, str]:
        """Task id -> status."""
        found, _ = await inspect.tasks(self.engine, TENANT, execution, limit=10_000, after=None)
        return {task.id: task.status.value for task in found}

    async def verified(self, execution: str) -> None:
        """History must fold to the state."""
        report = await verify.verify(self.engine, TENANT, execution)
        assert report.ok, report.problems
