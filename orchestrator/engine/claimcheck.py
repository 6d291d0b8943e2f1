"""Claim check: a JSON text up to 64 KiB is kept inline, a larger one in the payload store.

Limits are judged in bytes of UTF-8. References are content-addressed, so storing again after a
crash is harmless, and a value once read may be cached. A payload store that throttles or does not
answer is asked again, like the document store: a hiccup must not cost a task an attempt.
"""

from __future__ import annotations

from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.payload import Payload
from orchestrator.domain.topology import INLINE_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently

CACHED_BYTES = 4 * 1024 * 1024
"""Larger values are read again every time rather than kept in memory."""


BYTES_PER_JSON_BYTE = 6
"""What a parsed value takes in memory, per byte of its text (measured: a list of small objects)."""


class PayloadTooLarge(Exception):
    """Over `limit`; `size` in bytes."""

    def __init__(self, size: int, limit: int = MAX_PAYLOAD_BYTES) -> None:
        super().__init__(
            f"{size} bytes of JSON, the limit is {limit}; store the data elsewhere and "
            "pass a reference"
        )
        self.size = size


async def store(engine: Engine, partition: tuple[str, ...], name: str, data: bytes) -> Payload:
    """Keep the JSON text `data`. Raises `PayloadTooLarge`, and what the payload store raises once
    `patiently` gave up."""
    size = len(data)
    if size <= INLINE_PAYLOAD_BYTES:
        return Payload(text=data.decode(), size=size)
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(size)
    ref = await patiently(engine, engine.payloads.put, partition[0], partition[1], name, data)
    return Payload(ref=ref, size=size)


async def read_text(engine: Engine, payload: Payload) -> bytes:
    """The JSON text. Raises `PayloadNotFound`."""
    if payload.ref is None:
        return (payload.text or "null").encode()
    return await patiently(engine, engine.payloads.get, payload.ref)


async def load(engine: Engine, payload: Payload | None) -> Json:
    """The value; None for no payload. Treat it as frozen: it may be shared."""
    if payload is None:
        return None
    if payload.ref is None:
        return jsonvalues.loads(payload.text or "null")
    cached: Any = engine.values.get(payload.ref)
    if cached is not None:
        return cached[0]
    value = jsonvalues.loads(await read_text(engine, payload))
    if payload.size <= CACHED_BYTES:
        engine.values.put(payload.ref, (value,), weight(payload))
    return value


def weight(payload: Payload) -> int:
    """About how many bytes of memory the parsed value takes."""
    return payload.size * BYTES_PER_JSON_BYTE
