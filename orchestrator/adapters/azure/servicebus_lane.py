"""One queue's way out: one sender link for the whole process, used by one task at a time.

Callers never touch the link. They leave their messages and wait; a short-lived task sends all that
wait as one batch. So a caller that gives up (the fast path does, after two seconds) cannot be
cancelled into the middle of an AMQP frame, which would ruin the link for everybody, and many small
sends at once cost one operation.

Service Bus detaches a link that nobody used for ten minutes, and connections get lost: then the
messages are sent once more, on a fresh link and under the same ids, within the same call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from orchestrator.adapters.azure.servicebus_errors import (
    link_is_sound,
    translate,
    worth_a_fresh_link,
)
from orchestrator.domain.topology import MAX_MESSAGE_BYTES
from orchestrator.ports import TransportError

log = logging.getLogger(__name__)

BATCH_BYTES: Final = MAX_MESSAGE_BYTES - 1024
"""The SDK (7.15.0) leaves the batch's own envelope, with a copy of the first message's id, out of
its count: filled to the brim, a batch is over the broker's limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long things may take, in seconds."""

    open: float = 10.0
    """Connection, TLS, token, link. About 0.5 s in the SDK itself; a first token may take more."""
    first: float = 1.0
    """One transfer on the link at hand. Short: a dead link must be found out, and the messages be
    sent on a fresh one, within the two seconds of the fast path."""
    again: float = 5.0
    """One transfer of the second try."""
    idle: float = 9 * 60.0
    """A link unused for this long is not trusted any more: the broker detaches after ten minutes,
    and a process that was frozen has not heard of it."""
    close: float = 3.0


@dataclass(slots=True)
class _Parcel:
    messages: Sequence[ServiceBusMessage]
    done: asyncio.Future[None]


@dataclass(slots=True)
class Lane:
    """`open_sender` makes a sender of the queue; it does no I/O."""

    queue: str
    open_sender: Callable[[], ServiceBusSender]
    limits: Limits
    _waiting: list[_Parcel] = field(default_factory=list[_Parcel])
    _worker: asyncio.Task[None] | None = None
    _sender: ServiceBusSender | None = None
    _socket: asyncio.StreamWriter | None = None  # the sender's
    _used_at: float = 0.0  # monotonic seconds
    _closing: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _closed: bool = False

    async def send(self, messages: Sequence[ServiceBusMessage]) -> None:
        """Returns when the broker has all of them; none: when the link is open. Raises
        `TransportError`; some may have arrived then. Cancelling it leaves the link alone."""
        if self._closed:
            raise TransportError(f"queue {self.queue}: the transport is closed")
        parcel = _Parcel(messages, asyncio.get_running_loop().create_future())
        self._waiting.append(parcel)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work(), name=f"weft-send-{self.queue}")
        await parcel.done

    async def close(self) -> None:
        """Let what is being sent finish, within the limit; then close the link."""
        self._closed = True
        if self._worker is not None:
            await asyncio.wait([self._worker], timeout=self.limits.close)
            if self._worker is not None:
                self._worker.cancel()
                await asyncio.wait([self._worker])
        self._discard()
        if self._closing:
            await asyncio.wait(self._closing)

    # --- the sending task -------------------------------------------------------------------------

    async def _work(self) -> None:
        parcels: list[_Parcel] = []
        try:
            while self._waiting:
                # Who gave up meanwhile has left the sending to somebody else.
                parcels = [parcel for parcel in self._waiting if not parcel.done.done()]
                self._waiting.clear()
                failure: TransportError | None = None
                try:
                    await self._deliver([m for parcel in parcels for m in parcel.messages])
                except TransportError as error:
                    failure = error
                _settle(parcels, failure)
        finally:
            self._worker = None
            _settle([*parcels, *self._waiting], TransportError(f"queue {self.queue}: closed"))
            self._waiting.clear()

    async def _deliver(self, messages: list[ServiceBusMessage]) -> None:
        """Two tries at most. Raises `TransportError`."""
        left: list[ServiceBusMessage | ServiceBusMessageBatch] | None = None
        for last in (False, True):
            try:
                sender = await self._link()
                if left is None:
                    left = await _pack(sender, messages)
                while left:
                    async with asyncio.timeout(self.limits.again if last else self.limits.first):
                        await sender.send_messages(left[0])
                    self._used_at = time.monotonic()
                    del left[0]
                return
            except Exception as error:
                if not link_is_sound(error):
                    self._discard()
                if last or not worth_a_fresh_link(error):
                    raise translate(error, self.queue) from error
                log.info(
                    "link to the broker lost, sending again on a fresh one",
                    extra={
                        "action": "servicebus.reopen",
                        "queue": self.queue,
                        "error": type(error).__name__,
                    },
                )

    async def _link(self) -> ServiceBusSender:
        if self._sender is not None and time.monotonic() - self._used_at > self.limits.idle:
            self._discard()
        if self._sender is None:
            self._sender = self.open_sender()
            await self._open(self._sender)
            self._used_at = time.monotonic()
        return self._sender

    async def _open(self, sender: ServiceBusSender) -> None:
        opening = asyncio.ensure_future(sender.create_message_batch())
        try:
            await asyncio.wait([opening], timeout=self.limits.open)
        finally:
            # Before the SDK is cancelled: its cleaning up forgets the socket without closing it.
            self._socket = _socket_of(sender)
            if not opening.done():
                opening.cancel()
                await asyncio.wait([opening])
        if opening.cancelled():
            raise TimeoutError
        await opening

    def _discard(self) -> None:
        """Close the link beside the work: on a dead connection that can take its time."""
        if self._sender is not None:
            sender, socket = self._sender, self._socket or _socket_of(self._sender)
            self._sender = self._socket = None
            task = asyncio.create_task(_close(sender, socket, self.limits.close))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _settle(parcels: Sequence[_Parcel], failure: TransportError | None) -> None:
    for parcel in parcels:
        if not parcel.done.done():
            if failure is None:
                parcel.done.set_result(None)
            else:
                parcel.done.set_exception(failure)
                parcel.done.exception()  # seen: its caller may be giving up this very moment


async def _pack(
    sender: ServiceBusSender, messages: Sequence[ServiceBusMessage]
) -> list[ServiceBusMessage | ServiceBusMessageBatch]:
    """As few transfers as the size limit allows, in order. A message that travels alone is sent
    plain: it needs no envelope, so it may be larger than a batch."""
    if len(messages) <= 1:
        return list(messages)
    packed: list[ServiceBusMessage | ServiceBusMessageBatch] = []
    batch = await sender.create_message_batch(BATCH_BYTES)
    for message in messages:
        if _added(batch, message):
            continue
        if len(batch):
            packed.append(batch)
            batch = await sender.create_message_batch(BATCH_BYTES)
            if _added(batch, message):
                continue
        packed.append(message)
    if len(batch):
        packed.append(batch)
    return packed


def _added(batch: ServiceBusMessageBatch, message: ServiceBusMessage) -> bool:
    try:
        batch.add_message(message)
    except MessageSizeExceededError:
        return False
    return True


async def _close(
    sender: ServiceBusSender, socket: asyncio.StreamWriter | None, limit: float
) -> None:
    # Whatever the SDK raises: the link is given up, and a new one is opened.
    with contextlib.suppress(Exception):
        async with asyncio.timeout(limit):
            await sender.close()
    if socket is not None:
        socket.close()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(limit):
                await socket.wait_closed()


def _socket_of(sender: ServiceBusSender) -> asyncio.StreamWriter | None:
    """The SDK (7.15.0) gives up a connection that was cut without closing its socket, and shows
    the socket nowhere in public. None if a later version keeps it elsewhere."""
    found: Any = sender
    for name in ("_handler", "_connection", "_transport", "writer"):
        found = getattr(found, name, None)
    return found if isinstance(found, asyncio.StreamWriter) else None
