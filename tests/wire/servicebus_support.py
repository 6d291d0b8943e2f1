"""A broker and both halves of it, through the real SDK, as the wire and contract tests use them.

`WEFT_TEST_SERVICEBUS_CONNECTION` names another broker for the tests in `tests/wire`: the official
emulator or a namespace, with the queues of `topology.QUEUES`, empty. Tests that need faults or a
clock that can be moved are skipped there, and so is the contract suite (it moves the clock and uses
the same message ids again and again).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from orchestrator.adapters.azure.servicebus_lane import Limits
from orchestrator.adapters.azure.servicebus_transport import ServiceBusTransport
from orchestrator.adapters.local.system import SystemClock
from orchestrator.ports import Clock, OutMessage
from tests.wire.servicebus import ServiceBusBroker
from tests.wire.servicebus_receiver import ServiceBusReceiverAdapter

CONNECTION_VARIABLE = "WEFT_TEST_SERVICEBUS_CONNECTION"


class SwitchClock:
    """A clock that can be exchanged for another one: tests share links, not clocks."""

    def __init__(self) -> None:
        self.current: Clock = SystemClock()

    def now(self) -> int:
        """Of the current clock."""
        return self.current.now()

    async def sleep(self, ms: int) -> None:
        """Of the current clock."""
        await self.current.sleep(ms)


class ServiceBusPair(ServiceBusReceiverAdapter):
    """`Transport` and `Receiver`. `broker` is None for one that is not ours."""

    def __init__(
        self,
        connection_string: str,
        broker: ServiceBusBroker | None,
        *,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(connection_string, broker.counts if broker is not None else None)
        self.clock = SwitchClock()
        self.broker = broker
        self.transport = ServiceBusTransport.from_connection_string(
            connection_string, clock=self.clock, limits=limits
        )

    @classmethod
    def start(cls, *, idle_ms: int | None = None) -> ServiceBusPair:
        """On a new broker, which ends with `close`."""
        broker = ServiceBusBroker(idle_ms=idle_ms).start()
        pair = cls(broker.connection_string, broker)
        broker.now = pair.clock.now
        return pair

    @classmethod
    def named(cls) -> ServiceBusPair | None:
        """On the broker that the environment names, if it does."""
        connection_string = os.environ.get(CONNECTION_VARIABLE)
        return cls(connection_string, None) if connection_string else None

    def reset(self, clock: Clock | None = None) -> None:
        """Empty queues and a clock; links stay open."""
        assert self.broker is not None
        self.clock.current = clock or SystemClock()
        self.broker.reset()
        self.forget()

    async def send(self, messages: Sequence[OutMessage]) -> None:
        """See `ports.Transport`."""
        await self.transport.send(messages)

    async def close(self) -> None:
        """Both halves, and the broker if it is ours."""
        await asyncio.gather(self.transport.close(), super().close())
        if self.broker is not None:
            self.broker.stop()
