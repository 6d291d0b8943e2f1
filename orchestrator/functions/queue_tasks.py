"""Service Bus trigger of the `tasks-standard` queue: one message, one attempt of one task.

Single-message functions get their locks renewed by the host for as long as `host.json` says, which
is longer than the longest attempt. Failures of an activity are recorded, never raised: an exception
here would make the broker's delivery count mean "failed" instead of "crashed".
"""

from __future__ import annotations

import azure.functions as func

from orchestrator.domain.topology import TASKS_STANDARD_QUEUE
from orchestrator.engine import execute
from orchestrator.functions.durable_binding import client_bound
from orchestrator.functions.messages import incoming
from orchestrator.functions.provider import EngineProvider


def blueprint(provider: EngineProvider) -> func.Blueprint:
    """The function `tasks_standard`, bound to `provider`'s engine."""
    bp = func.Blueprint()

    @bp.function_name("tasks_standard")
    @bp.service_bus_queue_trigger(
        arg_name="message",
        queue_name=TASKS_STANDARD_QUEUE,
        connection="ServiceBus",
        data_type=func.DataType.BINARY,
        cardinality=func.Cardinality.ONE,
    )
    @client_bound(bp, provider)
    async def tasks_standard(message: func.ServiceBusMessage) -> None:
        engine = await provider.get()
        await execute.handle(engine, incoming(message))

    return bp
