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
    TASK_QUEUES,
)
from orchestrator.engine import deadletters, event_queue
from orchestrator.functions.messages import incoming
from orchestrator.functions.provider import EngineProvider


def blueprint(provider: EngineProvider) -> func.Blueprint:
    """The functions `orchestration_dead`, `events_dead` and one for each class of tasks
    (`tasks_standard_dead`, …), bound to `provider`'s engine."""
    bp = func.Blueprint()
    for queue in (ORCHESTRATION_QUEUE, *TASK_QUEUES, EVENTS_QUEUE):
        _add(bp, provider, queue)
    return bp


def _add(bp: func.Blueprint, provider: EngineProvider, queue: str) -> None:
    @bp.function_name(f"{queue.replace('-', '_')}_dead")
    @bp.service_bus_queue_trigger(
        arg_name="message",
        queue_name=queue + DEAD_LETTER_SUFFIX,
        connection="ServiceBus",
        data_type=func.DataType.BINARY,
        cardinality=func.Cardinality.ONE,
    )
    async def dead(message: func.ServiceBusMessage) -> None:
        engine = await provider.get()
        if queue == EVENTS_QUEUE:
            await event_queue.capture_dead(engine, engine.events_tenant, incoming(message))
        else:
            await deadletters.capture_dead(engine, incoming(message), queue=queue)
