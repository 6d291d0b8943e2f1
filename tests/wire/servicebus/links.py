"""The AMQP side of the broker: what happens on connections and links. Runs in proton's thread.

Follows AMQP 1.0 and the Service Bus protocol guide: addresses, credit and drain, settlement by
disposition where the receiver waits for the broker's answer, lock tokens as 16-byte delivery tags,
`amqp:link:detach-forced` for idle links, `amqp:not-found` for entities that do not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from proton import Delivery, Endpoint, Link, Message
from proton.handlers import MessagingHandler

from tests.wire.servicebus.dispositions import condition, reject, settle, store
from tests.wire.servicebus.faults import CONNECTION_FORCED, DETACH_FORCED, Counters, Faults
from tests.wire.servicebus.management import manage, put_token
from tests.wire.servicebus.queues import Queue
from tests.wire.servicebus.wireformat import delivery_of

MAX_MESSAGE_BYTES = 262_144  # Standard tier
CREDIT = 1_000
CBS = "$cbs"
MANAGEMENT = "/$management"
NOT_FOUND_DELAY_S = 0.02
"""A link that is opened and closed in one go makes proton send no detach at all."""


@dataclass(slots=True)
class Attached:
    """A link as the broker sees it. `queue`: its own, or the one that it manages."""

    link: Link
    address: str
    queue: Queue | None
    used_at: int

    @property
    def entity(self) -> bool:
        """Whether it is a link to a queue: those detach when idle."""
        return self.address != CBS and not self.address.endswith(MANAGEMENT)


class Links(MessagingHandler):
    """proton's event handler."""

    def __init__(
        self, queues: dict[str, Queue], faults: Faults, counters: Counters, now: Callable[[], int]
    ) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self.queues = queues
        self.faults = faults
        self.counters = counters
        self.now = now
        self.attached: dict[Link, Attached] = {}
        self.connections: list[Any] = []

    # --- connections and links --------------------------------------------------------------------

    def on_connection_opening(self, event: Any) -> None:
        connection = event.connection
        self.counters.operations["connections"] += 1
        self.connections.append(connection)
        if self.faults.refuse_connections:
            event.container.schedule(0, _Later(lambda: self._drop(connection, abrupt=False)))

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        link.max_message_size = MAX_MESSAGE_BYTES
        remote = link.remote_source if link.is_sender else link.remote_target
        address = _entity(remote.address or "")
        self.counters.operations["links"] += 1
        queue = self.queues.get(address.removesuffix(MANAGEMENT))
        info = self.attached[link] = Attached(link, address, queue, self.now())
        if address != CBS and queue is None:
            link.condition = condition("amqp:not-found", f"no messaging entity {address}")
            event.container.schedule(NOT_FOUND_DELAY_S, _Later(lambda: _close(link)))
        elif link.is_receiver and not (info.entity and queue is not None and queue.dead is None):
            link.flow(CREDIT)  # nobody sends to a dead-letter queue

    def on_link_closing(self, event: Any) -> None:
        self.attached.pop(event.link, None)

    def on_transport_closed(self, event: Any) -> None:
        connection = event.connection
        self.connections = [known for known in self.connections if known != connection]
        for link in [link for link in self.attached if link.connection == connection]:
            del self.attached[link]

    def drop(self, abrupt: bool, publishers_only: bool = False) -> int:
        """Close all connections; how many."""
        publishing = [
            info.link.connection
            for info in self.attached.values()
            if info.entity and info.link.is_receiver
        ]
        dropped = [one for one in self.connections if not publishers_only or one in publishing]
        self.connections = [one for one in self.connections if one not in dropped]
        for connection in dropped:
            self._drop(connection, abrupt)
        return len(dropped)

    def _drop(self, connection: Any, abrupt: bool) -> None:
        for link in [link for link in self.attached if link.connection == connection]:
            del self.attached[link]
        transport = connection.transport
        selectable = getattr(transport, "_selectable", None)
        if not abrupt:
            connection.condition = condition(CONNECTION_FORCED, "closed on demand")
            connection.close()
        elif selectable is not None:  # what proton itself does when the peer has gone
            transport.close_head()
            transport.close_tail()
            selectable.terminate()
            selectable._transport = None
            transport._selectable = None
            selectable.update()

    def detach(self, idle_ms: int, publishers_only: bool = False) -> int:
        """Detach links to queues that have been idle for so long (0: all); how many."""
        idle = [
            info
            for info in self.attached.values()
            if info.entity
            and (info.link.is_receiver or not publishers_only)
            and (idle_ms <= 0 or self.now() - info.used_at >= idle_ms)
        ]
        for info in idle:
            role = "publisher" if info.link.is_receiver else "consumer"
            info.link.condition = condition(
                DETACH_FORCED,
                f"The link is force detached. Code: {role}. Details: IdleTimerExpired: "
                "Idle timeout: 00:10:00.",
            )
            info.link.close()
            del self.attached[info.link]
            self.counters.operations["detached"] += 1
        return len(idle)

    # --- deliveries -------------------------------------------------------------------------------

    def on_link_flow(self, event: Any) -> None:
        info = self.attached.get(event.link)
        if info is not None and event.link.is_sender and info.entity:
            info.used_at = self.now()
            self.pump()
            if event.link.drain_mode:
                event.link.drained()

    def pump(self) -> None:
        """Let time have its effect, then deliver what is receivable to links with credit."""
        now = self.now()
        for queue in self.queues.values():
            queue.advance(now)
        for info in list(self.attached.values()):
            link, queue = info.link, info.queue
            if not (link.is_sender and info.entity and queue is not None):
                continue
            while link.credit > 0 and link.state & Endpoint.LOCAL_ACTIVE:
                taken = queue.take(now)
                if taken is None:
                    break
                token, lock = taken
                raw = delivery_of(lock)
                delivery = link.delivery(token)
                link.stream(raw)
                link.advance()
                info.used_at = now
                self.counters.operations["delivered"] += 1
                self.counters.bytes_out += len(raw)
                if link.snd_settle_mode == Link.SND_SETTLED:  # receive and delete
                    queue.complete(token, now)
                    delivery.settle()

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        info = self.attached.get(link)
        if info is None:
            return
        if link.is_sender:
            if info.queue is not None and info.entity and delivery.updated:
                settle(delivery, info.queue, self.now(), self.counters)
                info.used_at = self.now()
            elif delivery.settled or delivery.updated:
                delivery.settle()
        elif delivery.readable and not delivery.partial:
            raw = bytes(link.recv(delivery.pending))
            link.advance()
            if info.entity:
                self._sent(delivery, info, raw)
            else:
                self._requested(delivery, info, raw)
            if link.state & Endpoint.LOCAL_ACTIVE and link.credit < CREDIT // 2:
                link.flow(CREDIT - link.credit)
        self.pump()

    def _sent(self, delivery: Delivery, info: Attached, raw: bytes) -> None:
        faults, counters, now = self.faults, self.counters, self.now()
        info.used_at = now
        counters.operations["transfers"] += 1
        counters.bytes_in += len(raw)
        disconnect, faults.disconnect_on_send = faults.disconnect_on_send, ""
        if disconnect == "before":
            self._drop(delivery.connection, abrupt=True)
            return
        if len(raw) > MAX_MESSAGE_BYTES:
            text = f"size:{len(raw)} bytes exceeds the limit ({MAX_MESSAGE_BYTES} bytes)"
            reject(delivery, "amqp:link:message-size-exceeded", text)
            return
        if faults.reject_sends > 0:
            faults.reject_sends -= 1
            reject(delivery, faults.condition, "rejected on demand")
            return
        assert info.queue is not None
        store(raw, info.queue, now, counters)
        if disconnect == "after":
            self._drop(delivery.connection, abrupt=True)
        elif faults.ignore_sends > 0:
            faults.ignore_sends -= 1
        else:
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()

    def _requested(self, delivery: Delivery, info: Attached, raw: bytes) -> None:
        request = Message()
        request.decode(raw)
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        if info.address == CBS:
            self.counters.operations["tokens"] += 1
            audience = _entity(str((request.properties or {}).get("name", "")))
            queue = self.queues.get(audience.removesuffix(MANAGEMENT))
            answer = put_token(request, queue, self.faults)
        else:
            assert info.queue is not None
            for queue in self.queues.values():
                queue.advance(self.now())
            answer = manage(request, info.queue, self.now(), self.counters)
        for other in self.attached.values():
            link = other.link
            if (
                link.is_sender
                and other.address == info.address
                and link.connection == info.link.connection
            ):  # the client has one pair of such links per connection
                link.send(answer)
                return


class _Later:
    """Runs `work` when its timer fires."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def on_timer_task(self, event: Any) -> None:
        self._work()


def _close(link: Link) -> None:
    if link.state & Endpoint.LOCAL_ACTIVE:
        link.close()


def _entity(address: str) -> str:
    """`amqps://host:port/QUEUE` and `sb://host:port/QUEUE` name QUEUE."""
    return urlsplit(address).path.lstrip("/") if "://" in address else address
