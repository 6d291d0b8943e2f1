"""A received message, as the triggers hand it over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """Body and the broker's metadata. `delivery_count` starts at 1. `enqueued_at`: epoch ms, when
    it became receivable; 0 if the host does not say."""

    body: bytes
    message_id: str = ""
    delivery_count: int = 1
    content_type: str = ""
    enqueued_at: int = 0
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
