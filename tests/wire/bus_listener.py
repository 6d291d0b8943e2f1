"""Fires the app's Service Bus functions from a broker through the real SDK, as their host does.

The SDK's receiver must not be used by two coroutines at once: settling while another one waits for
messages loses the broker's answer, and the link with it. The real host's client is another one, in
.NET; here a listener receives, calls, settles, and only then receives again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from azure.functions.servicebus import ServiceBusMessage
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError

from orchestrator.local.host.indexing import QueueBinding
from orchestrator.local.host.invoke import Invoker

WAIT_S: Final = 0.5
"""How long one empty receive waits: a stop is noticed after that."""

log = logging.getLogger(__name__)


class BusListener:
    """One queue function. `run` until `stopping` is set."""

    def __init__(
        self, invoker: Invoker, binding: QueueBinding, client: ServiceBusClient, limit: int
    ) -> None:
        """`limit`: messages in one call of a batch function, or calls of another at once."""
        self._invoke = invoker
        self._queue = binding.queue
        self._many = binding.many
        self._client = client
        self._limit = limit

    async def run(self, stopping: asyncio.Event) -> None:
        """Messages whose lock or link is lost come again; the functions must bear that."""
        while not stopping.is_set():
            try:
                async with self._client.get_queue_receiver(self._queue) as receiver:
                    while not stopping.is_set():
                        await self._round(receiver)
            except ServiceBusError as error:
                log.warning("queue %s: %s, once more", self._queue, type(error).__name__)

    async def _round(self, receiver: ServiceBusReceiver) -> None:
        got = await receiver.receive_messages(self._limit, WAIT_S)
        if not got:
            return
        if self._many:
            good = [await self._call([_decoded(message) for message in got])] * len(got)
        else:
            good = await asyncio.gather(*(self._call(_decoded(message)) for message in got))
        for message, complete in zip(got, good, strict=True):
            if complete:
                await receiver.complete_message(message)
            else:
                await receiver.abandon_message(message)

    async def _call(self, value: Any) -> bool:
        try:
            await self._invoke(value)
        except Exception:
            log.exception("function of queue %s failed", self._queue)
            return False
        return True


def _decoded(message: ServiceBusReceivedMessage) -> ServiceBusMessage:
    """The object that the worker's decoder makes of a delivery."""
    properties: dict[str, Any] = {
        _text(name): _text(value) for name, value in (message.application_properties or {}).items()
    }
    return ServiceBusMessage(
        body=b"".join(message.body),
        message_id=message.message_id,
        application_properties=properties,
        user_properties=properties,
        delivery_count=(message.delivery_count or 0) + 1,
        lock_token=str(message.lock_token),
        sequence_number=message.sequence_number,
        enqueued_time_utc=message.enqueued_time_utc,
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
