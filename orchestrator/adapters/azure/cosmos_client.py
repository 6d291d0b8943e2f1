"""The one client of a process: opened once, closed once, every call counted and retried alike.

A client per call leaks sessions and meets cold routing maps. The SDK's own retries are off for
writes (`cosmos_transport` says why) and for 429; here 429 and 449 are waited for within a budget
per request, then `Throttled`. Work is a function because every try builds its request anew:
`execute_item_batch` empties the option dicts it is given, and a second try with the same list would
go out without its preconditions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from azure.core.credentials_async import AsyncTokenCredential
from azure.cosmos.aio import ContainerProxy, CosmosClient

from orchestrator.adapters.azure.cosmos_errors import SDK_ERRORS, RangeGone, translate
from orchestrator.adapters.azure.cosmos_transport import (
    Meter,
    MeteredTransport,
    connection_policy,
    operation,
)
from orchestrator.domain.topology import ContainerSpec
from orchestrator.ports import Throttled, Unavailable

T = TypeVar("T")
log = logging.getLogger(__name__)

GONE_TRIES: Final = 3
MAX_BACKOFF_MS: Final = 1_000  # of our own waits; the service may wish for longer ones

Work = Callable[[ContainerProxy], Awaitable[T]]
Sleep = Callable[[float], Awaitable[None]]


class Connection:
    """A client of one database. Call `open` before, and `close` after, in one event loop."""

    def __init__(
        self,
        endpoint: str,
        database: str,
        credential: str | AsyncTokenCredential,
        *,
        meter: Meter,
        throttle_budget_ms: int,
        request_timeout_s: float,
        sleep: Sleep,
    ) -> None:
        """`throttle_budget_ms`: waits of one request together; `sleep` takes seconds."""
        self._endpoint, self._database = endpoint, database
        self._credential = credential
        self._budget_ms = throttle_budget_ms
        self._timeout_s = request_timeout_s
        self._sleep = sleep
        self.meter = meter
        self._containers: dict[str, ContainerProxy] = {}
        self._running = 0
        self._idle = asyncio.Event()
        self._closed = True

    async def open(self) -> None:
        """Connect. Raises `Unavailable`, or `StoreError` if the identity is refused."""
        self._client = CosmosClient(
            self._endpoint,
            self._credential,
            transport=MeteredTransport(self.meter),
            connection_policy=connection_policy(),
            read_timeout=self._timeout_s,
            retry_total=0,
            retry_connect=0,
            retry_read=0,
            no_response_on_write=True,
            enable_compact_utf8_item_writes=True,
            user_agent_suffix="weft",
        )
        try:
            await self._client.__aenter__()
        except SDK_ERRORS as error:
            await self._client.close()
            raise translate(error, "open") from error
        except BaseException:
            await self._client.close()
            raise
        self._closed = False

    async def close(self) -> None:
        """Wait for what runs, then close the client. Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        while self._running:
            self._idle.clear()
            await self._idle.wait()
        await self._client.close()

    async def call(self, name: str, spec: ContainerSpec, work: Work[T]) -> T:
        """Run `work`, metered as `name`, again after 429 and 449 within the budget. Raises port
        errors."""
        if self._closed:
            raise Unavailable("the store is closed")
        self.meter.calls[name] += 1
        self._running += 1
        token = operation.set(name)
        try:
            return await self._patiently(name, spec, work)
        finally:
            operation.reset(token)
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _patiently(self, name: str, spec: ContainerSpec, work: Work[T]) -> T:
        proxy = self._proxy(spec)
        waited = tries = gone = 0
        while True:
            try:
                return await work(proxy)
            except SDK_ERRORS as error:
                failure = translate(error, f"{name} {spec.name}")
            if isinstance(failure, RangeGone):
                gone += 1
                if gone < GONE_TRIES:
                    continue
                raise Unavailable(str(failure)) from failure
            if not isinstance(failure, Throttled):
                raise failure
            self.meter.throttled[name] += 1
            # Doubling beside the service's wish: many callers told the same wait come back at once.
            wait = max(failure.retry_after_ms, min(1 << min(tries, 10), MAX_BACKOFF_MS))
            tries += 1
            if waited + wait > self._budget_ms:
                log.warning(
                    "store throttled beyond the budget",
                    extra={"action": "store.throttled", "operation": name, "waitedMs": waited},
                )
                raise failure
            await self._sleep(wait / 1000)
            waited += wait

    def _proxy(self, spec: ContainerSpec) -> ContainerProxy:
        proxy = self._containers.get(spec.name)
        if proxy is None:
            database = self._client.get_database_client(self._database)
            proxy = self._containers[spec.name] = database.get_container_client(spec.name)
        return proxy
