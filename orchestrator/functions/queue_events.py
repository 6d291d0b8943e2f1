"""Service Bus trigger of the `events` queue: other systems put events there, one or a batch in a
message."""

from __future__ import annotations

import azure.functions as func

from orchestrator.domain.topology import EVENTS_QUEUE
from orchestrator.engine import event_queue
from orchestrator.functions.messages import incoming
from orchestrator.functions.provider import EngineProvider


def blueprint(provider: EngineProvider) -> func.Blueprint:
    """The function `events`, bound to `provider`'s engine."""
    bp = func.Blueprint()

    @bp.function_name("events")
    @bp.service_bus_queue_trigger(
        arg_name="message",
        queue_name=EVENTS_QUEUE,
        connection="ServiceBus",
        data_type=func.DataType.BINARY,
        cardinality=func.Cardinality.ONE,
    )
    async def events(message: func.ServiceBusMessage) -> None:
        engine = await provider.get()
        await event_queue.handle(engine, engine.events_tenant, incoming(message))

    return bp
