"""Event Grid trigger: one event per call, in Event Grid's own schema or as a CloudEvent.

The worker library decodes both, whatever the annotation says, into objects of two classes; here
they become JSON again, as the event was sent.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import azure.functions as func

from orchestrator.engine import event_queue
from orchestrator.functions.provider import EngineProvider


def blueprint(provider: EngineProvider) -> func.Blueprint:
    """The function `event_grid`, bound to `provider`'s engine."""
    bp = func.Blueprint()

    @bp.function_name("event_grid")
    @bp.event_grid_trigger(arg_name="event")
    async def event_grid(event: func.EventGridEvent) -> None:
        engine = await provider.get()
        await event_queue.take(engine, engine.events_tenant, as_json(event))

    return bp


def as_json(event: Any) -> dict[str, Any]:
    """The event as it was sent."""
    if hasattr(event, "specversion"):
        names = ("id", "source", "type", "specversion", "subject", "datacontenttype", "dataschema")
        body = {**event.extension_attrs, **{name: getattr(event, name) for name in names}}
        return {**body, "time": _time(event.time), "data": event.get_json()}
    return {
        "id": event.id,
        "topic": event.topic,
        "subject": event.subject,
        "eventType": event.event_type,
        "eventTime": _time(event.event_time),
        "dataVersion": event.data_version,
        "data": event.get_json(),
    }


def _time(moment: datetime | None) -> str | None:
    # The library drops offsets other than Z, and a wrong time is worse than none.
    return moment.isoformat() if moment is not None and moment.tzinfo is not None else None
