"""Service Bus trigger of the `orchestration` queue: batches of messages to the orchestrator.

A batch is settled all or nothing by the host and its locks are never renewed, so the use case
catches per message and keeps a time budget; nothing is raised here for a bad message.
"""

from __future__ import annotations

import typing

import azure.functions as func

from orchestrator.domain.topology import ORCHESTRATION_QUEUE
from orchestrator.engine import orchestrate
from orchestrator.functions.durable_binding import client_bound
from orchestrator.functions.messages import incoming
from orchestrator.functions.provider import EngineProvider


def blueprint(provider: EngineProvider) -> func.Blueprint:
    """The function `orchestration`, bound to `provider`'s engine."""
    bp = func.Blueprint()

    # typing.List, not list: the Functions worker refuses the built-in generic when it indexes.
    @bp.function_name("orchestration")
    @bp.service_bus_queue_trigger(
        arg_name="messages",
        queue_name=ORCHESTRATION_QUEUE,
        connection="ServiceBus",
        data_type=func.DataType.BINARY,
        cardinality=func.Cardinality.MANY,
    )
    @client_bound(bp, provider)
    async def orchestration(messages: typing.List[func.ServiceBusMessage]) -> None:  # noqa: UP006
        engine = await provider.get()
        await orchestrate.handle(engine, [incoming(message) for message in messages])

    return bp
