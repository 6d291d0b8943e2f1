"""Service Bus triggers of the dead-letter queues: what the broker gave up becomes our record.

Without them a message that crashed its process too often, or expired, would lie where nobody looks.
The record is stored first; only then does the host settle the broker's copy. If that fails the
message comes again, and finds its record.
"""

from __future__ import annotations

import azure.functions as func

from orchestrator.domain.topology import (
    DEAD_LETTER_SUFFIX,
    EVENTS_QUEUE,
    ORCHESTRATION_QUEUE,
    TASKS_STANDARD_QUEUE,
)
from orchestrator.engine import deadletters, event_queue
from orchestrator.functions.messages import incoming
from orchestrator.functions.provider import EngineProvider


def blueprint(provider: EngineProvider) -> func.Blueprint:
    """The functions `orchestration_dead`, `tasks_standard_dead` and `events_dead`, bound to
    `provider`'s engine."""
    bp = func.Blueprint()

    @bp.function_name("orchestration_dead")
    @bp.service_bus_queue_trigger(
        arg_name="message",
        queue_name=ORCHESTRATION_QUEUE + DEAD_LETTER_SUFFIX,
        connection="ServiceBus",
        data_type=func.DataType.BINARY,
        cardinality=func.Cardinality.ONE,
    )
    async def orchestration_dead(message: func.ServiceBusMessage) -> None:
        engine = await provider.get()
        await deadletters.capture_dead(engine, incoming(message), queue=ORCHESTRATION_QUEUE)

    @bp.function_name("tasks_standard_dead")
    @bp.service_bus_queue_trigger(
        arg_name="message",
        queue_name=TASKS_STANDARD_QUEUE + DEAD_LETTER_SUFFIX,
        connection="ServiceBus",
        data_type=func.DataType.BINARY,
        cardinality=func.Cardinality.ONE,
    )
    async def tasks_standard_dead(message: func.ServiceBusMessage) -> None:
        engine = await provider.get()
        await deadletters.capture_dead(engine, incoming(message), queue=TASKS_STANDARD_QUEUE)

    @bp.function_name("events_dead")
    @bp.service_bus_queue_trigger(
        arg_name="message",
        queue_name=EVENTS_QUEUE + DEAD_LETTER_SUFFIX,
        connection="ServiceBus",
        data_type=func.DataType.BINARY,
        cardinality=func.Cardinality.ONE,
    )
    async def events_dead(message: func.ServiceBusMessage) -> None:
        engine = await provider.get()
        await event_queue.capture_dead(engine, engine.events_tenant, incoming(message))

    return bp
