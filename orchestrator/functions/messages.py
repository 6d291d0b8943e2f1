"""A Functions message as the engine's `Incoming`, in one place for all queue triggers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import azure.functions as func

from orchestrator.engine.incoming import Incoming


def incoming(message: func.ServiceBusMessage) -> Incoming:
    """Translate. Whatever metadata the host left out becomes its neutral value: the worker library
    hands over None for each field that the trigger's metadata did not have."""
    metadata: Any = message  # the class that hosts pass knows more than the declared one
    return Incoming(
        body=message.get_body(),
        message_id=metadata.message_id or "",
        delivery_count=metadata.delivery_count or 1,
        content_type=metadata.content_type or "",
        enqueued_at=_epoch_ms(metadata.enqueued_time_utc),
        properties=_properties(metadata.application_properties or metadata.user_properties),
    )


def _epoch_ms(time: datetime | None) -> int:
    if time is None:
        return 0
    if time.tzinfo is None:  # its text had no zone; the broker's times are UTC
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)


def _properties(raw: Mapping[Any, Any] | None) -> Mapping[str, str]:
    if not raw:
        return {}
    return {str(key): value if isinstance(value, str) else str(value) for key, value in raw.items()}
