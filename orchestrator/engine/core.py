"""What every use case works with: the ports, the tunables and the caches of one process.

Built once by `bootstrap.build`; tests build it with fakes. Nothing here is a module-level global,
so several engines can live in one process (the simulation runs dozens).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from orchestrator.domain.breakers import BreakerRules
from orchestrator.domain.retention import Retention
from orchestrator.domain.tenant_limits import TenantLimits
from orchestrator.domain.topology import MAX_CONCURRENT_TASKS, MAX_ORCHESTRATION_BATCH
from orchestrator.engine.lru import Lru
from orchestrator.engine.metrics import Metrics
from orchestrator.ports import (
    ActivityRunner,
    Clock,
    DocumentStore,
    Ids,
    PayloadStore,
    Secrets,
    Transport,
)
from orchestrator.ports_auth import Authenticator, Closed
from orchestrator.ports_durable import CodeWorkflows, Empty, Orchestrations
from orchestrator.ports_events import EventSink
from orchestrator.ports_telemetry import Backlog, NoTracer, Pinging, Tracer

P = TypeVar("P")


class Closing(Protocol):
    """Something that must be closed at the end."""

    async def close(self) -> None:
        """Release everything. Idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunables:
    """Times and sizes of the engine. Milliseconds, bytes."""

    lease_ms: int = 30_000
    """A worker must renew its task within this, or it is taken for dead."""
    silence_ms: int = 60_000
    """An open execution without any commit for this long is looked after by the sweeper; the wait
    doubles up to `max_silence_ms` while nothing is found wrong."""
    max_silence_ms: int = 15 * 60_000
    outbox_grace_ms: int = 60_000
    """An outbox document older than this is sent by the sweeper."""
    retry_grace_ms: int = 10_000
    """A retry whose message did not come this long after it was due is sent again."""
    fast_path_ms: int = 2_000
    """The committer's own sending gives up after this; the slow path takes over."""
    batch_budget_ms: int = 180_000
    """An orchestration batch hands back what it has not begun by then (the lock lasts 300 s)."""
    commit_attempts: int = 50
    """ETag conflicts in a row before a message is handed back as a new one."""
    throttle_budget_ms: int = 30_000
    """How long one operation keeps trying while the store throttles or does not answer."""
    scheduler_lease_ms: int = 30_000
    """A scheduler that does not renew its leadership for this long may be replaced."""
    task_places: int = MAX_CONCURRENT_TASKS
    """Messages of one task queue that this process takes at once, as `host.json` says."""
    decision_places: int = MAX_ORCHESTRATION_BATCH
    """Messages of the orchestration queue in one batch at most, as `host.json` says."""
    active_ms: int = 60_000
    """How long a tenant that had work counts as one who wants its share; 0: no fair shares."""
    breaker: BreakerRules = field(default_factory=BreakerRules)
    retention: Retention = field(default_factory=Retention)
    secrets_ttl_ms: int = 5 * 60_000
    """How long a secret is used without reading it again."""
    limits: TenantLimits = field(default_factory=TenantLimits)
    """Of every tenant, where nothing else was written for it."""
    audit_days: int = 0
    """How long audit records are kept; 0: for ever."""
    sweep_page: int = 200
    cache_executions: int = 2_000
    cache_definitions: int = 500
    cache_values: int = 64
    cache_bytes: int = 64 * 1024 * 1024
    """What each of the three caches may take by itself, as its users estimate it."""


@dataclass(slots=True, kw_only=True)
class Engine:
    """The ports and the caches. `worker` names this process in leases and attempts."""

    store: DocumentStore
    transport: Transport
    payloads: PayloadStore
    secrets: Secrets
    activities: ActivityRunner
    clock: Clock
    ids: Ids
    worker: str
    authenticator: Authenticator = field(default_factory=Closed)
    events_tenant: str = "default"
    """Whose events those are that no caller brings: of the events queue, of Event Grid."""
    platform_tenant: str = ""
    """Whose administrators are the platform's: they set the limits of tenants. Empty: nobody."""
    sink: EventSink | None = None
    """Where events for targets outside of the platform go. None: to its own queue of events."""
    event_targets: frozenset[str] = frozenset()
    """Names of further targets, where there is no sink for them."""
    code: CodeWorkflows = field(default_factory=Empty)
    """The code workflows that are deployed with this app."""
    orchestrations: Orchestrations | None = None
    """The task hub that runs them. None: this process has none, and starts are put off."""
    tunables: Tunables = field(default_factory=Tunables)
    metrics: Metrics = field(default_factory=Metrics)
    tracer: Tracer = field(default_factory=NoTracer)
    backlog: Backlog | None = None
    """The broker, if it can say how long messages wait in it."""
    probes: Mapping[str, Pinging] = field(default_factory=dict[str, Pinging])
    """Dependencies beside the store that `/health` asks, by the names that it shows."""
    aggregates: Lru[Any] = field(init=False)
    definitions: Lru[Any] = field(init=False)
    values: Lru[Any] = field(init=False)
    background: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])
    parts: dict[Any, Any] = field(default_factory=dict[Any, Any])
    """Helpers with a life of their own (such as the lease keeper), one of each, made on demand."""

    others: tuple[Closing, ...] = ()
    """Whatever else belongs to this engine alone and is closed with it, in this order, after the
    ports (clients of other services, then the credential that all of them share)."""

    def __post_init__(self) -> None:
        given = self.tunables
        self.aggregates = Lru(given.cache_executions, limit=given.cache_bytes)
        self.definitions = Lru(given.cache_definitions, limit=given.cache_bytes)
        self.values = Lru(given.cache_values, limit=given.cache_bytes)

    def part(self, kind: Callable[[Engine], P]) -> P:
        """The engine's one instance of `kind`, made by `kind(engine)` when first asked for. It
        may have an `async close()`."""
        found = self.parts.get(kind)
        if found is None:
            found = self.parts[kind] = kind(self)
        return found

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` beside the caller; `drain` waits for it. `work` must handle its own errors."""
        task = asyncio.create_task(work, name=name)
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    async def drain(self) -> None:
        """Wait until all spawned work has ended (shutdown, tests)."""
        while self.background:
            await asyncio.gather(*self.background, return_exceptions=True)
            # From Python 3.12 on, gathering what has ended does not yield: the callbacks that
            # forget it would never run, and this loop never end.
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Drain, then release helpers, ports and `others`. Idempotent. Raises the first error, once
        everything was closed: one that fails must not leave other connections open."""
        await self.drain()
        parts = [part for part in self.parts.values() if hasattr(part, "close")]
        self.parts.clear()
        failed: list[Exception] = []
        given = (self.sink, self.orchestrations)
        optional = tuple(port for port in given if port is not None)
        ports = (self.activities, *optional, self.transport, self.store)
        # The tracer last but for the others: what is closed before it may still be traced.
        for closing in (*parts, *ports, self.tracer, *self.others):
            try:
                await closing.close()
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]
