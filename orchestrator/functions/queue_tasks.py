"""Service Bus triggers of the task queues, one for each class: one message, one attempt of a task.

Each is a function of its own, so that the platform scales them apart and no class waits for
another's tasks to end. Single-message functions get their locks renewed by the host for as long as
`host.json` says, which is longer than the longest attempt. Failures of an activity are recorded,
never raised: an exception here would make the broker's delivery count mean "failed" instead of
"crashed".
"""

from __future__ import annotations

import azure.functions as func

from orchestrator.domain.topology import TASK_QUEUES
from orchestrator.engine import execute
from orchestrator.functions.durable_binding import client_bound
from orchestrator.functions.messages import incoming
from orchestrator.functions.provider import EngineProvider


def blueprint(provider: EngineProvider) -> func.Blueprint:
    """The functions `tasks_high`, `tasks_standard`, `tasks_low`, bound to `provider`'s engine."""
    bp = func.Blueprint()
    for queue in TASK_QUEUES:
        _add(bp, provider, queue)
    return bp


def _add(bp: func.Blueprint, provider: EngineProvider, queue: str) -> None:
    @bp.function_name(queue.replace("-", "_"))
    @bp.service_bus_queue_trigger(
        arg_name="message",
        queue_name=queue,
        connection="ServiceBus",
        data_type=func.DataType.BINARY,
        cardinality=func.Cardinality.ONE,
    )
    @client_bound(bp, provider)
    async def tasks(message: func.ServiceBusMessage) -> None:
        engine = await provider.get()
        await execute.handle(engine, incoming(message), queue=queue)
