"""`Transport` over Azure Service Bus, with the SDK's asynchronous client.

Sends are grouped per queue and split by size. Links stay open (opening one costs half a second) and
are opened again when the broker detached them. The SDK's own retries are switched off: they wait
for seconds, while the engine has a slow path that never loses a message. See `servicebus_lane`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from azure.core.credentials_async import AsyncTokenCredential
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from orchestrator.adapters import message_rules
from orchestrator.adapters.azure.servicebus_lane import Lane, Limits
from orchestrator.domain.topology import MAX_MESSAGE_BYTES, ORCHESTRATION_QUEUE, QUEUES
from orchestrator.ports import Clock, MessageTooLarge, OutMessage, TransportError

TOPIC: Final = "topic:"
"""Before the name of a topic, where a queue's name is expected."""
_NO_RETRIES: Final[dict[str, Any]] = {"retry_total": 0, "retry_backoff_factor": 0.01}
_OVERHEAD_BYTES: Final = 1024  # more than the AMQP sections of a message need
_PROPERTY_OVERHEAD_BYTES: Final = 16  # more than the type codes and lengths of one property need


class ServiceBusTransport:
    """Use it in one event loop; `close` at the end. Make it with one of the two class methods."""

    def __init__(
        self,
        client: ServiceBusClient,
        *,
        clock: Clock,
        queues: Container[str] = QUEUES,
        limits: Limits | None = None,
    ) -> None:
        """`client` is closed with the transport. `queues`: those that may be sent to;
        a topic is `topic:NAME`."""
        self._client = client
        self._now: Callable[[], int] = clock.now
        self._queues = queues
        self._limits = limits or Limits()
        self._lanes: dict[str, Lane] = {}
        self._closed = False

    @classmethod
    def from_credential(
        cls,
        namespace: str,
        credential: AsyncTokenCredential,
        *,
        clock: Clock,
        queues: Container[str] = QUEUES,
        limits: Limits | None = None,
    ) -> ServiceBusTransport:
        """`namespace`: fully qualified, as in `ServiceBus__fullyQualifiedNamespace`. The credential
        stays the caller's to close. No I/O before the first send."""
        client = ServiceBusClient(namespace, credential, **_NO_RETRIES)
        return cls(client, clock=clock, queues=queues, limits=limits)

    @classmethod
    def from_connection_string(
        cls,
        connection_string: str,
        *,
        clock: Clock,
        queues: Container[str] = QUEUES,
        limits: Limits | None = None,
    ) -> ServiceBusTransport:
        """For the emulator and the tests' broker; raises `ValueError` if it is not one."""
        client = ServiceBusClient.from_connection_string(connection_string, **_NO_RETRIES)
        return cls(client, clock=clock, queues=queues, limits=limits)

    async def send(self, messages: Sequence[OutMessage]) -> None:
        """See `ports.Transport`. An unknown queue, a message that is too large and a bad id are
        found before anything is sent."""
        by_queue: dict[str, list[ServiceBusMessage]] = {}
        now = self._now()
        for message in messages:
            by_queue.setdefault(message.queue, []).append(self._outgoing(message, now))
        if self._closed:
            raise TransportError("the transport is closed")
        results = await asyncio.gather(
            *(self._lane(queue).send(some) for queue, some in by_queue.items()),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def warm_up(self, queues: Sequence[str] = tuple(QUEUES)) -> None:
        """Open the links ahead of the first send, which then keeps to the fast path. Raises
        `TransportError`, which a starting process may ignore."""
        await asyncio.gather(*(self._lane(queue).send(()) for queue in queues))

    async def ping(self) -> None:
        """See `ports_telemetry.Pinging`: the link that all work depends on is open, or opens. One
        that was cut without a word shows with the next send."""
        await self.warm_up([ORCHESTRATION_QUEUE])

    async def close(self) -> None:
        """Finish what is being sent, close links and client. Idempotent."""
        self._closed = True
        lanes, self._lanes = list(self._lanes.values()), {}
        await asyncio.gather(*(lane.close() for lane in lanes))
        await self._client.close()

    def _lane(self, queue: str) -> Lane:
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = Lane(queue, lambda: self._sender(queue), self._limits)
        return lane

    def _sender(self, queue: str) -> ServiceBusSender:
        if queue.startswith(TOPIC):
            return self._client.get_topic_sender(queue.removeprefix(TOPIC))
        return self._client.get_queue_sender(queue)

    def _outgoing(self, message: OutMessage, now: int) -> ServiceBusMessage:
        size = message_rules.check(message, self._queues)
        later = message.due_at is not None and message.due_at > now
        properties: dict[str | bytes, Any] = {**message.properties}
        outgoing = ServiceBusMessage(
            message.body,
            message_id=message.message_id,
            content_type=message.content_type,
            application_properties=properties or None,
            scheduled_enqueue_time_utc=_utc(message.due_at or 0) if later else None,
        )
        overhead = _OVERHEAD_BYTES + _PROPERTY_OVERHEAD_BYTES * len(message.properties)
        if size + overhead > MAX_MESSAGE_BYTES:
            _check_encoded(outgoing)
        return outgoing


def _check_encoded(message: ServiceBusMessage) -> None:
    """Near the limit, what counts is the encoded size; a single send is not checked by the SDK."""
    try:
        ServiceBusMessageBatch(MAX_MESSAGE_BYTES).add_message(message)
    except MessageSizeExceededError as error:
        raise MessageTooLarge(f"a message of over {MAX_MESSAGE_BYTES} bytes, encoded") from error


def _utc(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)
