"""Orchestrations of Durable Functions as tasks: what an instance tells Weft, and Weft it."""

from __future__ import annotations

from orchestrator.domain.messages import Message, MessageType
from orchestrator.engine import outbox
from orchestrator.engine.core import Engine


async def ended(
    engine: Engine,
    tenant: str,
    execution: str,
    task: str,
    item: int | None = None,
    instance: str = "",
) -> None:
    """An instance says, as its last step, that it is about to end: have its task looked at. Only a
    word: the look asks Durable itself, so a wrong, doubled or lost one does no harm. `instance`
    is told for the log alone. Raises `TransportError`."""
    message = Message(MessageType.RUN_TASK, tenant, execution, task, item)
    await engine.transport.send([outbox.out_message(message, engine.ids.new())])
