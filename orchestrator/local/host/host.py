"""The embedded host: the triggers of a FunctionApp, bound to the embedded adapters.

There is no second set of handlers: what runs here is the object that Azure runs, so a workflow that
finishes on a laptop went through the functions that will be deployed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import azure.functions as func

from orchestrator.domain.topology import QUEUES
from orchestrator.functions.http_errors import stack
from orchestrator.functions.provider import EngineProvider
from orchestrator.local.host.errors import IndexingError
from orchestrator.local.host.feed_listener import FeedListener
from orchestrator.local.host.host_json import HostJson
from orchestrator.local.host.http_server import HttpServer
from orchestrator.local.host.indexing import (
    FeedBinding,
    HttpBinding,
    IndexedFunction,
    OrchestrationBinding,
    QueueBinding,
    TimerBinding,
    index,
)
from orchestrator.local.host.invoke import Invoker
from orchestrator.local.host.listening import listening_socket, url
from orchestrator.local.host.queue_listener import BatchListener, QueueListener, SingleListener
from orchestrator.local.host.timer_listener import TimerListener
from orchestrator.ports import Clock, DocumentStore, Receiver

if TYPE_CHECKING:
    from orchestrator.local.durable.service import DurableService

logger = logging.getLogger("orchestrator.local.host")

RENEW_EVERY_MS: Final = min(spec.lock_seconds for spec in QUEUES.values()) * 1000 // 4
"""How often running messages are looked at: several chances between half a lock and its end."""

IDLE_LOOK_S: Final = 0.002
"""Between two looks of `run_until_idle`."""

HTTP, QUEUE, FEED, TIMER = "http", "queue", "feed", "timer"
ALL_ROLES: Final = frozenset({HTTP, QUEUE, FEED, TIMER})
WORKER_ROLES: Final = frozenset({HTTP, QUEUE})
"""What each of several processes runs; one of them runs feed and timers too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """What `host.json` does not say. Milliseconds."""

    address: str = "127.0.0.1"
    port: int = 0  # 0: any free one
    roles: frozenset[str] = ALL_ROLES
    grace_ms: int = 10_000  # running functions get this long when the host stops
    # Calls of one batch function at once. More made nothing faster where it was measured (chains,
    # fans of 200 and 2,000), but cost 5 to 10 % more: fewer messages of an execution per commit.
    parallel_batches: int = 1
    # Wait between looks at a change feed: how far lists are behind. An idle look takes 0.1 ms.
    feed_poll_ms: int = 250
    feed_page: int = 500  # documents that a change-feed function gets at most
    data: Path | None = None  # where durable functions keep their file
    settings: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


class LocalHost:
    """One process's host. `start`, then `stop`; an instance is used once."""

    def __init__(
        self,
        app: func.FunctionApp,
        *,
        provider: EngineProvider,
        broker: Receiver,
        store: DocumentStore,
        clock: Clock,
        host_json: HostJson,
        options: HostOptions,
        sock: socket.socket | None = None,
    ) -> None:
        """`provider` is closed by `stop`, and with it whatever the engine holds. `sock`: a
        listening socket to serve instead of opening one.

        Raises `IndexingError` with everything that the real host or worker would refuse."""
        self._provider = provider
        self._options = options
        self._sock = sock
        self._clock = clock
        self._pool = ThreadPoolExecutor(thread_name_prefix="function")
        self._broker = broker
        self._invokers: list[Invoker] = []
        self._queues: list[QueueListener] = []
        self._others: list[TimerListener | FeedListener] = []
        self._receiving: list[asyncio.Task[None]] = []
        self._ticking: list[asyncio.Task[None]] = []
        self._renewing: asyncio.Task[None] | None = None
        self._died = asyncio.Event()
        self.functions = index(app, options.settings, route_prefix=host_json.route_prefix)
        http: dict[Invoker, HttpBinding] = {}
        self._durable = self._durable_service(host_json)
        for function in self.functions:
            if isinstance(function.binding, OrchestrationBinding):
                continue
            invoker = Invoker(function, self._pool, host_json.function_timeout_ms)
            self._invokers.append(invoker)
            if self._durable is not None:
                self._durable.bind(invoker)
            if isinstance(function.binding, HttpBinding):
                http[invoker] = function.binding
            else:
                self._bind(function, invoker, store, host_json)
        try:
            self._http = HttpServer(http)
        except ValueError as error:
            raise IndexingError([str(error)]) from error

    def _durable_service(self, host_json: HostJson) -> DurableService | None:
        if not any(function.durable for function in self.functions):
            return None
        if self._options.data is None:
            raise IndexingError(["durable functions need a data directory: set HostOptions.data"])
        # Imported here: apps without such functions do not pay for it.
        from orchestrator.local.durable.service import DurableService

        return DurableService(self.functions, host_json.function_timeout_ms)

    def _bind(
        self,
        function: IndexedFunction,
        invoker: Invoker,
        store: DocumentStore,
        host_json: HostJson,
    ) -> None:
        options, binding = self._options, function.binding
        if isinstance(binding, QueueBinding) and QUEUE in options.roles:
            if binding.many:
                listener: QueueListener = BatchListener(
                    invoker,
                    binding.queue,
                    self._broker,
                    self._clock,
                    size=host_json.max_message_batch_size,
                    parallel=options.parallel_batches,
                )
            else:
                listener = SingleListener(
                    invoker,
                    binding.queue,
                    self._broker,
                    self._clock,
                    concurrency=host_json.max_concurrent_calls,
                    renewal_ms=host_json.max_lock_renewal_ms,
                )
            self._queues.append(listener)
        elif isinstance(binding, FeedBinding) and FEED in options.roles:
            self._others.append(
                FeedListener(
                    invoker,
                    binding,
                    store,
                    self._clock,
                    page=options.feed_page,
                    poll_ms=options.feed_poll_ms,
                )
            )
        elif isinstance(binding, TimerBinding) and TIMER in options.roles:
            self._others.append(TimerListener(invoker, binding, self._clock))

    @property
    def port(self) -> int:
        """The bound port, once started."""
        if self._sock is None:
            raise RuntimeError("the host has not been started")
        return self._sock.getsockname()[1]

    @property
    def url(self) -> str:
        """Where the HTTP functions are."""
        return url(self._options.address, self.port)

    async def start(self) -> None:
        """Listen, then serve every trigger of this process's roles. Raises `PortInUse`."""
        serves = HTTP in self._options.roles
        if serves and self._sock is None:
            self._sock = listening_socket(self._options.address, self._options.port)
        # Before any trigger is served: functions with a durable client are given its address.
        if self._durable is not None and self._options.data is not None:
            here = self.url if self._sock is not None else ""
            hub = await self._durable.start(self._options.data, here, self._clock)
            if QUEUE in self._options.roles:
                self._receiving.append(self._loop(hub.run(), "durable-hub"))
        if serves and self._sock is not None:
            await self._http.start(self._sock, self._options.grace_ms / 1000)
        for listener in self._queues:
            self._receiving.append(self._loop(listener.run(), f"queue-{listener.queue}"))
        for listener in self._others:
            self._ticking.append(self._loop(listener.run(), type(listener).__name__))
        if any(isinstance(listener, SingleListener) for listener in self._queues):
            self._renewing = self._loop(self._renew(), "renew-locks")
        logger.info(
            "host started", extra={"action": "host_started", "functions": len(self.functions)}
        )

    async def failed(self) -> None:
        """Wait until a listener has died, which only a fault of ours can do. The process should
        end then: a host that no longer listens looks healthy and does nothing."""
        await self._died.wait()

    async def run_until_idle(self) -> None:
        """Wait until no function runs and no message can be received or is being handled (messages
        that are due later do not count). For tests and benchmarks."""
        seen = -1
        while True:
            if self._provider.ready:
                await (await self._provider.get()).drain()
            quiet = all(queue.idle for queue in self._queues) and all(
                invoker.idle for invoker in self._invokers
            )
            calls = sum(invoker.calls for invoker in self._invokers)
            if self._durable is not None and self._durable.hub is not None:
                quiet = quiet and await self._durable.hub.idle()
            for queue in self._queues:
                counts = await self._broker.counts(queue.queue)
                quiet = quiet and counts.active == counts.locked == 0
            # Twice in a row without a call in between: a function that ended between two looks may
            # have sent a message to a queue that was looked at before.
            if quiet and calls == seen:
                return
            seen = calls if quiet else -1
            await asyncio.sleep(IDLE_LOOK_S)

    async def stop(self) -> None:
        """Take nothing new, let what runs end within the grace, settle, close the engine."""
        grace_ms = self._options.grace_ms
        for loop in self._receiving:
            loop.cancel()
        await asyncio.gather(*self._receiving, return_exceptions=True)
        # All beside each other: HTTP's long polls wait for what the queues still do.
        await asyncio.gather(
            self._http.stop(),
            *(queue.drain(grace_ms) for queue in self._queues),
            *(listener.invoker.wait_idle(grace_ms) for listener in self._others),
        )
        if self._durable is not None:  # after those who call it
            await self._durable.stop(grace_ms)
        for loop in self._ticking:
            loop.cancel()
        await asyncio.gather(*self._ticking, return_exceptions=True)
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        await self._provider.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        logger.info("host stopped", extra={"action": "host_stopped"})

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(RENEW_EVERY_MS)
            for listener in self._queues:
                if isinstance(listener, SingleListener):
                    await listener.renew_due()

    def _loop(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._watch)
        return task

    def _watch(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical(
                "%s died: %s\n%s",
                task.get_name(),
                type(error).__name__,
                stack(error),
                extra={"action": "listener_died"},
            )
            self._died.set()
