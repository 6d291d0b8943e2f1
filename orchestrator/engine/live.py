"""What Durable Functions says of an orchestration right now, to be shown to people.

Bounded in time, and never an error, because the rest of the answer does not depend on Durable.
"""

from __future__ import annotations

import asyncio
from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.orchestration import MAIN
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import documents, instances
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently
from orchestrator.engine.views import OrchestrationView
from orchestrator.ports_durable import Instance

LIMIT_S = 1.0


async def of_execution(engine: Engine, found: Aggregate) -> OrchestrationView | None:
    """Of a code workflow's execution; None if nothing was started yet."""
    id = documents.task_id(MAIN)
    docs = await patiently(engine, engine.store.read_many, EXECUTIONS, found.partition, [id])
    return await of_task(engine, docs[id].body if id in docs else None)


async def of_task(engine: Engine, doc: dict[str, Any] | None) -> OrchestrationView | None:
    """Of a task's document; None if it has no orchestration."""
    if doc is None or "instance" not in doc or not doc["attempt"]:
        return None
    id: str = doc["instance"]["id"]
    seen, note = await seen_now(engine, id)
    if seen is None:
        return OrchestrationView(instance=id, note=note)
    return OrchestrationView(
        instance=id,
        name=seen.name,
        status=seen.status.value,
        custom_status=_value(seen.custom_status),
        updated_at=seen.updated_at,
    )


async def seen_now(
    engine: Engine, id: str, *, history: bool = False
) -> tuple[Instance | None, str]:
    """The instance, or None and why."""
    try:
        async with asyncio.timeout(LIMIT_S):
            seen = await instances.ask(engine, lambda hub: hub.status(id, history=history))
    except TimeoutError:
        return None, f"Durable Functions did not answer within {LIMIT_S:g} s"
    except instances.Away:
        return None, "Durable Functions does not answer"
    return seen, "" if seen is not None else "there is no such instance"


def _value(text: str | None) -> Json:
    try:
        return None if not text else jsonvalues.loads(text)
    except ValueError:
        return text
