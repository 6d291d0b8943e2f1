"""Events that come as messages: from the `events` queue, from Event Grid's trigger.

Unlike every other message, these are the only copy of what they say. So what cannot be read is kept
as a dead letter, and what cannot be taken in just now is sent again, later, as a new message: the
broker would deliver it ten times within seconds and give up.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from orchestrator.domain import cloudevents, cloudevents_binary, jsonvalues
from orchestrator.domain.cloudevents import CloudEvent
from orchestrator.domain.errors import (
    ErrorDetail,
    LimitError,
    ThrottledError,
    UnavailableError,
    WeftError,
)
from orchestrator.domain.failure import Failure
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.parsing import parse_json_items
from orchestrator.domain.topology import DEAD_LETTER_SUFFIX, EVENTS_QUEUE
from orchestrator.engine import deadletters, event_letters, events, handback
from orchestrator.engine.core import Engine
from orchestrator.engine.incoming import Incoming
from orchestrator.ports import OutMessage, Throttled, Unavailable

log = logging.getLogger(__name__)

TRACEPARENT = "traceparent"
NOT_NOW = (Throttled, Unavailable, ThrottledError, UnavailableError)


async def handle(engine: Engine, tenant: str, incoming: Incoming) -> None:
    """Take in the events of one message: one, or a batch. Raises only if it can neither be taken in
    nor sent again: the host then abandons the message."""
    found, bad = await _read(engine, tenant, incoming)
    for error in bad:
        await _unreadable(engine, tenant, incoming.body, error, incoming.message_id)
    if not found:
        return
    trace = incoming.properties.get(TRACEPARENT, "")
    try:
        await events.receive(engine, tenant, found, traceparent=trace)
    except NOT_NOW as error:
        await _later(engine, found, incoming, error)


async def take(engine: Engine, tenant: str, value: Json) -> None:
    """Take in an event that Event Grid hands over by itself. What is none becomes a dead letter:
    Event Grid would send it again for a day. Raises what `events.receive` does, so that Event Grid
    sends it again."""
    try:
        event = cloudevents.either(jsonvalues.check_json(value))
    except jsonvalues.NotJson as error:
        fault = cloudevents.invalid([ErrorDetail(error.path, error.reason, "NOT_JSON")])
        await _unreadable(engine, tenant, repr(value).encode(errors="replace"), fault)
        return
    except WeftError as error:
        await _unreadable(engine, tenant, jsonvalues.dumps(value), error)
        return
    await events.receive(engine, tenant, [event])


async def capture_dead(engine: Engine, tenant: str, incoming: Incoming) -> None:
    """Keep a message of the events queue's dead-letter queue: each of its events by itself, to be
    taken in again by an operator. Raises what the store raises."""
    reason = deadletters.said(incoming)
    found, bad = await _read(engine, tenant, incoming)
    for event in found:
        await event_letters.keep(engine, tenant, event, None, f"{reason} ({DEAD_QUEUE})")
    for error in bad:
        await _unreadable(engine, tenant, incoming.body, error, incoming.message_id)


DEAD_QUEUE = EVENTS_QUEUE + DEAD_LETTER_SUFFIX


async def _read(
    engine: Engine, tenant: str, incoming: Incoming
) -> tuple[list[CloudEvent], list[WeftError]]:
    """The events of a message, and what is wrong with the others."""
    try:
        bound = cloudevents_binary.from_amqp(
            incoming.properties.items(), incoming.content_type, incoming.body
        )
        if bound is not None:
            return [bound], []
        value = parse_json_items(incoming.body)
        if not isinstance(value, list):
            return [cloudevents.either(value)], []
        each = cloudevents.batch(value)
    except WeftError as error:
        return [], [error]
    good = [one for one in each if isinstance(one, CloudEvent)]
    return good, [one for one in each if not isinstance(one, CloudEvent)]


async def _unreadable(
    engine: Engine, tenant: str, body: bytes, error: WeftError, key: str = ""
) -> None:
    engine.metrics.count("weft_events_total", "invalid")
    causes = tuple(
        Failure(type=detail.code or error.code, message=detail.message, field=detail.field)
        for detail in error.details
    )
    failure = Failure(
        type=cloudevents.CODE, message=error.message, retryable=False, causes=causes
    ).bounded()
    # One letter per fault of a batch: its place is in the message.
    await event_letters.keep_unreadable(
        engine, tenant, body, failure, key=f"{key}\0{error.message}"
    )


async def _later(
    engine: Engine, found: Sequence[CloudEvent], incoming: Incoming, error: Exception
) -> None:
    """All of them again: those that were taken in will be found to be."""
    hops = 1 + handback.hops(incoming)
    delay = handback.growing(hops)
    if isinstance(error, LimitError):
        # A limit of the tenant: however long that lasts, the events are not to be lost.
        hops, delay = min(hops, handback.MAX_HOPS), max(delay, error.retry_after_ms)
    if hops > handback.MAX_HOPS:
        raise error
    engine.metrics.count("weft_events_total", "postponed")
    log.warning(
        "events not taken in, they are sent again later",
        extra={"action": "event.postponed", "error": type(error).__name__, "hops": hops},
    )
    properties = {handback.HOPS: str(hops)}
    if trace := incoming.properties.get(TRACEPARENT):
        properties[TRACEPARENT] = trace
    body = jsonvalues.dumps([dict(event.body) for event in found])
    message = OutMessage(
        queue=EVENTS_QUEUE,
        body=body,
        message_id=engine.ids.new(),
        due_at=engine.clock.now() + delay,
        properties=properties,
    )
    await engine.transport.send([message])
