"""The receiving half for tests: `ports.Receiver` over the real SDK.

In the app the Functions host receives. Here the contract suite and the wire tests do, through the
same links that the host would use: one receiver per queue, opened when first needed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusError,
)

from orchestrator.domain.topology import DEAD_LETTER_SUFFIX, QUEUES
from orchestrator.ports import (
    MessageLockLost,
    QueueCounts,
    QueueNotFound,
    Received,
    TransportError,
)

POLL_S = 0.005
LONG_S = 20.0  # messages that the broker has ready arrive long before
UNKNOWN_S = 1.0  # how long to wait for a broker that cannot be asked what it has ready


@dataclass(slots=True)
class _Held:
    message: ServiceBusReceivedMessage
    receiver: ServiceBusReceiver


class ServiceBusReceiverAdapter:
    """`Receiver` on one namespace. Use it in one event loop; `close` at the end.

    `counts` asks the broker what it holds, which AMQP does not tell: with it, a receive takes
    exactly what is ready and needs no waiting time to find out that there is nothing. None for a
    broker that cannot be asked.
    """

    def __init__(
        self, connection_string: str, counts: Callable[[str], QueueCounts] | None = None
    ) -> None:
        self._client = ServiceBusClient.from_connection_string(
            connection_string, retry_total=2, retry_backoff_factor=0.01
        )
        self._counts = counts
        self._receivers: dict[str, ServiceBusReceiver] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._held: dict[str, _Held] = {}
        self._left: dict[str, list[Received]] = {}  # taken for a receive that was cancelled

    async def receive(self, queue: str, max_messages: int, wait_ms: int) -> list[Received]:
        """See `ports.Receiver`."""
        _known(queue)
        if max_messages < 1:
            raise ValueError(f"max_messages {max_messages}: at least 1")
        end = asyncio.get_running_loop().time() + wait_ms / 1000
        while True:
            async with self._locks.setdefault(queue, asyncio.Lock()):
                if found := self._left.pop(queue, []):
                    return found
                ready = max_messages if self._counts is None else self._counts(queue).active
                if ready:
                    taking = asyncio.ensure_future(self._take(queue, min(ready, max_messages)))
                    try:
                        if messages := await asyncio.shield(taking):
                            return messages
                    except asyncio.CancelledError:
                        # The SDK is not cancelled in the middle of a frame; what it gets is for
                        # whoever receives next.
                        self._left[queue] = await taking
                        raise
            if asyncio.get_running_loop().time() >= end:
                return []
            await asyncio.sleep(POLL_S)

    async def _take(self, queue: str, count: int) -> list[Received]:
        receiver = self._receiver(queue)
        wait = UNKNOWN_S if self._counts is None else LONG_S
        messages = await _mapped(receiver.receive_messages(count, wait), queue)
        result: list[Received] = []
        for message in messages:
            received = _received(message, queue, peeked=False)
            self._held[received.lock_token] = _Held(message, receiver)
            result.append(received)
        return result

    async def complete(self, message: Received) -> None:
        """See `ports.Receiver`."""
        async with self._settling(message) as held:
            await held.receiver.complete_message(held.message)

    async def complete_many(self, messages: Sequence[Received]) -> None:
        """One disposition each: the SDK has no other way."""
        lost: list[str] = []
        for message in messages:
            try:
                await self.complete(message)
            except MessageLockLost as error:
                lost += error.lost
        if lost:
            raise MessageLockLost(f"{len(lost)} locks lost", lost=lost)

    async def abandon(self, message: Received) -> None:
        """See `ports.Receiver`."""
        async with self._settling(message) as held:
            await held.receiver.abandon_message(held.message)

    async def dead_letter(self, message: Received, reason: str, description: str) -> None:
        """See `ports.Receiver`."""
        async with self._settling(message) as held:
            await held.receiver.dead_letter_message(
                held.message, reason=reason, error_description=description
            )

    async def renew(self, message: Received) -> int:
        """See `ports.Receiver`."""
        async with self._settling(message, ends=False) as held:
            until = await held.receiver.renew_message_lock(held.message)
        return _ms(until)

    async def peek(self, queue: str, limit: int) -> list[Received]:
        """See `ports.Receiver`."""
        _known(queue)
        receiver = self._receiver(queue)
        peeked = await _mapped(receiver.peek_messages(limit, sequence_number=1), queue)
        return [_received(message, queue, peeked=True) for message in peeked]

    async def counts(self, queue: str) -> QueueCounts:
        """Only with a broker that can be asked."""
        _known(queue)
        assert self._counts is not None, "this broker cannot be asked"
        return self._counts(queue)

    def forget(self) -> None:
        """Hold no deliveries any more (the broker was reset)."""
        self._held.clear()
        self._left.clear()

    async def close(self) -> None:
        """Close all links."""
        with contextlib.suppress(ServiceBusError):
            await asyncio.gather(*(receiver.close() for receiver in self._receivers.values()))
        await self._client.close()

    def _receiver(self, queue: str) -> ServiceBusReceiver:
        found = self._receivers.get(queue)
        if found is None:
            name = queue.removesuffix(DEAD_LETTER_SUFFIX)
            sub_queue = ServiceBusSubQueue.DEAD_LETTER if name != queue else None
            found = self._client.get_queue_receiver(name, sub_queue=sub_queue)
            self._receivers[queue] = found
        return found

    @contextlib.asynccontextmanager
    async def _settling(self, message: Received, *, ends: bool = True) -> AsyncIterator[_Held]:
        held = self._held.get(message.lock_token)
        lost = MessageLockLost(
            f"the lock of {message.message_id!r} is lost", lost=(message.message_id,)
        )
        if held is None:
            raise lost
        try:
            yield held
        except (MessageLockLostError, MessageAlreadySettled) as error:
            # The broker answers once per delivery: asking about it again would wait for a minute.
            self._held.pop(message.lock_token, None)
            raise lost from error
        except ServiceBusError as error:
            raise TransportError(f"queue {message.queue}: {type(error).__name__}") from error
        if ends:
            self._held.pop(message.lock_token, None)


async def _mapped(work: Awaitable[Any], queue: str) -> Any:
    try:
        return await work
    except (MessagingEntityNotFoundError, ServiceBusAuthenticationError) as error:
        raise QueueNotFound(f"no queue {queue!r}") from error
    except ServiceBusError as error:
        raise TransportError(f"queue {queue}: {type(error).__name__}") from error


def _known(queue: str) -> None:
    if queue.removesuffix(DEAD_LETTER_SUFFIX) not in QUEUES:
        raise QueueNotFound(f"no queue {queue!r}")


def _received(message: ServiceBusReceivedMessage, queue: str, *, peeked: bool) -> Received:
    """Keys and values of properties arrive as bytes. The delivery count on the wire is that of
    earlier deliveries for a received message, of all for a peeked one, and absent if 0."""
    properties = {
        _text(name): _text(value) for name, value in (message.application_properties or {}).items()
    }
    until = message.locked_until_utc
    return Received(
        queue=queue,
        message_id=message.message_id or "",
        body=b"".join(message.body),
        properties=properties,
        lock_token="" if peeked else str(message.lock_token),
        locked_until=_ms(until) if until is not None and not peeked else 0,
        delivery_count=(message.delivery_count or 0) + (0 if peeked else 1),
        sequence_number=message.sequence_number or 0,
        enqueued_at=_ms(message.enqueued_time_utc),
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _ms(when: datetime | None) -> int:
    return 0 if when is None else round(when.timestamp() * 1000)
