"""A Service Bus namespace on a local port, for the real SDK to talk to.

It proves our use of the SDK, not the service: what it answers is our reading of the documentation
and of what was measured. Each module's docstring says which documented behaviour it follows. Plain
TCP, as the official emulator has it (`UseDevelopmentEmulator=true`).
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

from orchestrator.domain.topology import DEAD_LETTER_SUFFIX, QUEUES, QueueSpec
from orchestrator.ports import QueueCounts
from tests.wire.servicebus.faults import Counters, Faults
from tests.wire.servicebus.links import Links
from tests.wire.servicebus.queues import Queue, Stored, build

IDLE_MS = 10 * 60_000  # documented: the service detaches links that nobody used for ten minutes
TICK_S = 0.02  # how soon the passing of time is noticed
START_S = 10.0

logging.getLogger("proton").setLevel(logging.CRITICAL)  # it reports connections cut on demand


def wall_clock() -> int:
    """Epoch ms."""
    return time.time_ns() // 1_000_000


class ServiceBusBroker:
    """The broker in a thread of its own. `start` before use, `stop` after; other methods are safe
    to call from any other thread and wait for the broker's."""

    def __init__(
        self,
        queues: dict[str, QueueSpec] | None = None,
        *,
        port: int = 0,
        now: Callable[[], int] = wall_clock,
        idle_ms: int | None = IDLE_MS,
    ) -> None:
        """`now` may be a manual clock; `idle_ms`: when idle links are detached, None: never."""
        self.port = port
        self.now = now
        self.idle_ms = idle_ms
        self.counters = Counters()
        self.faults = Faults(self)
        self._queues: dict[str, Queue] = build(QUEUES if queues is None else queues)
        self._links = Links(self._queues, self.faults, self.counters, lambda: self.now())
        self._calls = EventInjector()
        self._started: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, name="servicebus", daemon=True)

    def start(self) -> ServiceBusBroker:
        """Listen. Raises `OSError` if the port cannot be had."""
        self._thread.start()
        self.port = self._started.result(START_S)
        return self

    def stop(self) -> None:
        """Drop everything and end the thread."""
        if self._thread.is_alive():
            self.call(self._main.stop)
            self._thread.join(START_S)

    @property
    def connection_string(self) -> str:
        """For the SDK; the key is not checked."""
        return (
            f"Endpoint=sb://127.0.0.1:{self.port};SharedAccessKeyName=any;SharedAccessKey=a2V5;"
            "UseDevelopmentEmulator=true;"
        )

    # --- for tests --------------------------------------------------------------------------------

    def reset(self) -> None:
        """Empty queues, no memory of ids, no faults, counters at zero; links stay."""

        def work() -> None:
            for queue in self._queues.values():
                queue.clear()
            self.faults.clear()
            self.counters.operations.clear()
            self.counters.bytes_in = self.counters.bytes_out = 0

        self.call(work)

    def ready(self, queue: str) -> int:
        """How many messages can be received now."""
        return self.counts(queue).active

    def counts(self, queue: str) -> QueueCounts:
        """Messages by what they wait for. Raises `KeyError` for an unknown queue."""

        def work() -> QueueCounts:
            for each in self._queues.values():
                each.advance(self.now())
            active, locked, scheduled = self._queues[queue].sizes()
            dead = self._queues.get(queue + DEAD_LETTER_SUFFIX)
            buried = sum(dead.sizes()) if dead is not None else 0
            return QueueCounts(active=active, locked=locked, scheduled=scheduled, dead=buried)

        return self.call(work)

    def messages(self, queue: str) -> list[Stored]:
        """Copies of the messages in a queue, by sequence number, whatever their state."""
        return self.call(lambda: [copy.copy(one) for one in self._queues[queue].messages()])

    def tick(self) -> int:
        """Notice now what time has done; how many links to queues are open afterwards."""

        def work() -> int:
            self.look()
            return sum(info.entity for info in self._links.attached.values())

        return self.call(work)

    def operations(self) -> dict[str, int]:
        """A copy of the counters of operations."""
        return self.call(lambda: dict(self.counters.operations))

    def call(self, work: Callable[[], Any]) -> Any:
        """Run `work` in the broker's thread; its result."""
        if threading.current_thread() is self._thread:
            return work()
        done: Future[Any] = Future()
        self._calls.trigger(ApplicationEvent("call", subject=(work, done)))
        return done.result(START_S)

    # --- orders from `Faults` (in the broker's thread) --------------------------------------------

    def detach_links(self, publishers_only: bool) -> int:
        """See `Faults.detach`."""
        return self._links.detach(0, publishers_only)

    def drop_connections(self, abrupt: bool, publishers_only: bool) -> int:
        """See `Faults.disconnect`."""
        return self._links.drop(abrupt, publishers_only)

    def lose_locks(self, queue: str) -> int:
        """See `Faults.lose_locks`."""
        return self._queues[queue].lose_locks(self.now())

    def deliver_again(self, queue: str) -> int:
        """See `Faults.deliver_again`."""
        messages = self._queues[queue].messages()
        for message in messages:
            again = copy.copy(message)
            again.deliveries = 0
            self._queues[queue].put(again, self.now())
        return len(messages)

    def look(self) -> None:
        """What every tick does, in the broker's thread."""
        if self.idle_ms is not None:
            self._links.detach(self.idle_ms)
        self._links.pump()

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        self._main = _Main(self, self._links, self._calls, self._started)
        try:
            self._main.container.run()
        except Exception as error:
            if not self._started.done():
                self._started.set_exception(error)
            raise


class _Main(MessagingHandler):
    """Starts listening, runs calls from other threads, ticks."""

    def __init__(
        self, broker: ServiceBusBroker, links: Links, calls: EventInjector, started: Future[int]
    ) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self._broker = broker
        self._links = links
        self._calls = calls
        self._started = started
        self._stopped = False
        self.container = Container(self)

    def on_start(self, event: Any) -> None:
        container = event.container
        self._acceptor = container.listen(f"127.0.0.1:{self._broker.port}")
        self._acceptor._handler = self._links
        container.selectable(self._calls)
        self._started.set_result(self._acceptor._selectable._delegate.getsockname()[1])
        container.schedule(TICK_S, self)

    def on_call(self, event: Any) -> None:
        work, done = event.subject
        try:
            result = work()
            self._links.pump()
            done.set_result(result)
        except Exception as error:
            done.set_exception(error)

    def on_timer_task(self, event: Any) -> None:
        if self._stopped:
            return
        self._broker.look()
        event.container.schedule(TICK_S, self)

    def stop(self) -> None:
        """Close the port and all connections; the thread ends when they are gone."""
        self._stopped = True
        self._acceptor.close()
        self._links.drop(abrupt=True)
        self._calls.close()
        self.container.stop()
