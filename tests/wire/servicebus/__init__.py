"""A Service Bus endpoint for tests, on AMQP 1.0: `ServiceBusBroker`."""

from tests.wire.servicebus.broker import ServiceBusBroker
from tests.wire.servicebus.faults import Faults

__all__ = ["Faults", "ServiceBusBroker"]
