"""Give messages back as new ones: fresh ids, real delay, no rise of the delivery count.

For work that cannot be done just now (time budget used up, store throttled, a replica lagging).
Abandoning instead would burn through the broker's ten deliveries in seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from orchestrator.domain.messages import Message, MessageType
from orchestrator.engine import outbox, telemetry
from orchestrator.engine.core import Engine
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.lanes import LANE, OVERFLOW

STALE_READ_MS = 500
CLOCK_SKEW_MS = 5_000
"""A scheduled message that comes at most this much before its time, by our clock, comes by the
broker's clock: it is given back until then. Settled, its work would wait for the sweeper."""
BASE_DELAY_MS = 250
MAX_DELAY_MS = 30_000
HOPS = "hops"
"""Property that counts how often a message was handed back."""
WORD = "word"
"""Property of a message that is word of something (`END`); it stays when it is handed back."""
END = "end"
MAX_HOPS = 50
"""After this many, a message is dropped: state says what is due, and the sweeper sends it again."""
MAX_STALE_HOPS = 5
"""What no replica shows after this many looks is not there."""

log = logging.getLogger(__name__)


async def send(
    engine: Engine,
    messages: Sequence[Message],
    incoming: Sequence[Incoming] = (),
    *,
    delay_ms: int | None = None,
    max_hops: int = MAX_HOPS,
) -> None:
    """Send `messages` again, later: after `delay_ms`, or a delay that doubles with every hop.
    `incoming`: what they came as. Raises `TransportError`."""
    done = 1 + max((hops(item) for item in incoming), default=0)
    if done > max_hops:
        engine.metrics.count("weft_messages_dropped_total", "hops")
        log.warning(
            "message handed back too often, dropped",
            extra={"action": "handback.dropped", "execution": messages[0].execution},
        )
        return
    due_at = engine.clock.now() + (growing(done) if delay_ms is None else delay_ms)
    end = {WORD: END} if is_end(incoming) else {}
    extra = {HOPS: str(done), **lane(incoming), **end}
    trace = telemetry.parent_of(incoming)
    outgoing = [
        outbox.out_message(message, engine.ids.new(), due_at, trace, extra) for message in messages
    ]
    await engine.transport.send(outgoing)


def lane(incoming: Sequence[Incoming]) -> dict[str, str]:
    """The property of what was moved to the low queue: it stays there."""
    return {LANE: OVERFLOW} if any(LANE in one.properties for one in incoming) else {}


async def move(engine: Engine, moved: Sequence[tuple[Message, Incoming]]) -> None:
    """Send messages to the low queue instead, as they are. Raises `TransportError`."""
    outgoing = [
        outbox.out_message(message, engine.ids.new(), extra={**incoming.properties, LANE: OVERFLOW})
        for message, incoming in moved
    ]
    await engine.transport.send(outgoing)
    for message, _ in moved:
        what = "task" if message.type is MessageType.RUN_TASK else "decision"
        engine.metrics.count("weft_messages_moved_total", what)


def is_end(incoming: Sequence[Incoming]) -> bool:
    """Whether one of these is word of an end."""
    return any(one.properties.get(WORD) == END for one in incoming)


def growing(hops: int) -> int:
    """The delay before a message is tried again, in ms; it doubles with every hop."""
    return min(BASE_DELAY_MS << hops, MAX_DELAY_MS)


def hops(incoming: Incoming) -> int:
    """How often it was handed back."""
    text = incoming.properties.get(HOPS, "0")
    return int(text) if text.isdecimal() and len(text) < 6 else 0
