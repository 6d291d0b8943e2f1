"""Fires Service Bus functions from the embedded broker, under the real host's rules.

Single messages: up to `maxConcurrentCalls` at once, locks renewed for them, each completed when its
function returns and abandoned when it raises. Batches: settled all or nothing, locks never renewed.
Locks, delivery counts and dead letters are the broker's.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any, Final

from azure.functions.servicebus import ServiceBusMessage

from orchestrator.functions.http_errors import stack
from orchestrator.local.host.invoke import Invoker
from orchestrator.local.host.settling import Settler
from orchestrator.ports import Clock, MessageLockLost, Received, Receiver, TransportError

logger = logging.getLogger("orchestrator.local.host")

RECEIVE_WAIT_MS: Final = 30_000
"""How long one empty receive waits. A message ends the wait at once, so does stopping."""
RECEIVE_RETRY_MS: Final = 1_000
"""Wait after the broker failed."""


def to_message(delivery: Received) -> ServiceBusMessage:
    """The object that the real worker's decoder makes of a delivery."""
    properties: dict[str, Any] = dict(delivery.properties)
    return ServiceBusMessage(
        body=delivery.body,
        message_id=delivery.message_id,
        application_properties=properties,
        user_properties=properties,
        delivery_count=delivery.delivery_count,
        lock_token=delivery.lock_token,
        sequence_number=delivery.sequence_number,
        enqueued_time_utc=datetime.fromtimestamp(delivery.enqueued_at / 1000, UTC),
        locked_until=datetime.fromtimestamp(delivery.locked_until / 1000, UTC),
    )


class QueueListener:
    """What both kinds share: receiving, firing, draining."""

    def __init__(self, invoker: Invoker, queue: str, broker: Receiver, clock: Clock) -> None:
        self.queue = queue
        self.settler = Settler(broker, queue)
        self._invoke = invoker
        self._broker = broker
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        """No function runs and nothing waits to be settled."""
        return not self._tasks and self.settler.idle

    async def run(self) -> None:
        """Receive and fire until cancelled. A receive that is cut off gives its messages back; the
        functions that run go on, see `drain`."""
        raise NotImplementedError

    async def drain(self, grace_ms: int) -> None:
        """Wait for running functions, cancel those that outlast `grace_ms`, settle everything."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace_ms / 1000)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self.settler.flush()

    async def _receive(self, limit: int) -> list[Received]:
        try:
            return await self._broker.receive(self.queue, limit, RECEIVE_WAIT_MS)
        except TransportError as error:
            logger.warning(
                "queue not read, trying again",
                extra={
                    "action": "receive_failed",
                    "queue": self.queue,
                    "error": type(error).__name__,
                },
            )
            await self._clock.sleep(RECEIVE_RETRY_MS)
            return []

    def _start(self, deliveries: list[Received], value: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(self._fire(deliveries, value))
        self._tasks.add(task)
        return task

    async def _fire(self, deliveries: list[Received], value: Any) -> None:
        try:
            await self._invoke(value)
        except (Exception, asyncio.CancelledError) as error:
            logger.error(
                "queue function failed; its messages are abandoned: %s\n%s",
                type(error).__name__,
                stack(error),
                extra={
                    "action": "queue_function_failed",
                    "function": self._invoke.function.name,
                    "messages": len(deliveries),
                    "deliveryCount": max(d.delivery_count for d in deliveries),
                },
            )
            self.settler.abandon(deliveries)
        else:
            self.settler.complete(deliveries)


class BatchListener(QueueListener):
    """A function of cardinality many: up to `size` messages a call, `parallel` calls at once."""

    def __init__(
        self,
        invoker: Invoker,
        queue: str,
        broker: Receiver,
        clock: Clock,
        *,
        size: int,
        parallel: int,
    ) -> None:
        super().__init__(invoker, queue, broker, clock)
        self._size = size
        self._parallel = parallel

    async def run(self) -> None:
        """Receive and fire until cancelled."""
        await asyncio.gather(*(self._loop() for _ in range(self._parallel)))

    async def _loop(self) -> None:
        while True:
            got = await self._receive(self._size)
            if got:
                task = self._start(got, [to_message(delivery) for delivery in got])
                task.add_done_callback(self._tasks.discard)
                await asyncio.wait((task,))


class SingleListener(QueueListener):
    """A function of cardinality one: up to `concurrency` calls at once, locks renewed."""

    def __init__(
        self,
        invoker: Invoker,
        queue: str,
        broker: Receiver,
        clock: Clock,
        *,
        concurrency: int,
        renewal_ms: int,
    ) -> None:
        """`renewal_ms`: `maxAutoLockRenewalDuration`, after which a lock is left to expire."""
        super().__init__(invoker, queue, broker, clock)
        self._concurrency = concurrency
        self._renewal_ms = renewal_ms
        self._running: dict[asyncio.Task[None], _Held] = {}
        self._freed = asyncio.Event()

    async def run(self) -> None:
        """Receive up to the free slots and fire, until cancelled."""
        while True:
            free = self._concurrency - len(self._running)
            if free <= 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            got = await self._receive(free)
            now = self._clock.now()
            for delivery in got:
                task = self._start([delivery], to_message(delivery))
                self._running[task] = _Held(delivery, now)
                task.add_done_callback(self._ended)

    async def renew_due(self) -> None:
        """Renew the locks that are past the middle of their time. The host calls this regularly,
        for all running messages at once."""
        now = self._clock.now()
        for held in list(self._running.values()):
            if now - held.since >= self._renewal_ms or held.lost:
                continue
            if now - held.renewed_at < (held.until - held.renewed_at) / 2:
                continue
            try:
                held.until = await self._broker.renew(held.delivery)
                held.renewed_at = now
            except TransportError as error:
                held.lost = isinstance(error, MessageLockLost)
                logger.warning(
                    "lock not renewed",
                    extra={
                        "action": "renew_failed",
                        "queue": self.queue,
                        "error": type(error).__name__,
                    },
                )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        del self._running[task]
        self._freed.set()


class _Held:
    """A running message's lock."""

    __slots__ = ("delivery", "lost", "renewed_at", "since", "until")

    def __init__(self, delivery: Received, now: int) -> None:
        self.delivery = delivery
        self.since = now
        self.renewed_at = now
        self.until = delivery.locked_until
        self.lost = False
