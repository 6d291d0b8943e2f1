"""Run a `publish` task: make the event, hand it to its target. Notifications of an execution's
end to a target take the same way (`deliver`).

The task is its own outbox entry: it is stored as dispatched before the event is sent, and its
result only afterwards. A worker that dies in between leaves a task that is run again and sends the
same event under the same id. So an event whose task is COMPLETED was handed over, and one that
could not be is retried and dead-lettered like any other work.

The target `events` is the platform's own queue, which triggers listen to. Others are named in the
settings; without a sink for them (the embedded mode has none) they end in that queue too, with
their name in the extension attribute `wefttarget`.
"""

from __future__ import annotations

from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.nearest import Nearest
from orchestrator.domain.published import (
    EVENT_REFUSED,
    OWN_TARGET,
    PUBLISH_FAILED,
    STRUCTURED,
    BadEvent,
    cloud_event,
    message_id,
)
from orchestrator.domain.topology import EVENTS_QUEUE, MAX_MESSAGE_BYTES
from orchestrator.engine.core import Engine
from orchestrator.ports import (
    ActivityCall,
    ActivityFailed,
    MessageTooLarge,
    OutMessage,
    TransportError,
)
from orchestrator.ports_events import EventRefused

TARGET_ATTRIBUTE = "wefttarget"


def targets(engine: Engine) -> frozenset[str]:
    """The names that `to` may have."""
    named = engine.event_targets
    return (
        frozenset({OWN_TARGET, *named})
        if engine.sink is None
        else engine.sink.targets() | {OWN_TARGET}
    )


async def run(
    engine: Engine, call: ActivityCall, target: str, workflow: str, hops: int = 0
) -> Json:
    """One attempt: publish `call.input`, the evaluated event, to `target`; the output is
    `{"id", "source", "type", "to"}`. `hops`: see `CloudEvent.hops`. Raises `ActivityFailed`."""
    event = await deliver(
        engine,
        target,
        call.input,
        tenant=call.tenant,
        id=call.idempotency_key,
        source=f"/weft/{call.tenant}/{workflow}",
        time=engine.clock.now(),
        traceparent=call.traceparent,
        hops=hops,
    )
    return {"id": event["id"], "source": event["source"], "type": event["type"], "to": target}


async def deliver(
    engine: Engine,
    target: str,
    value: Json,
    *,
    tenant: str,
    id: str,
    source: str,
    time: int,
    traceparent: str,
    hops: int,
) -> dict[str, Any]:
    """Make the CloudEvent of `value` (see `published.cloud_event`, also for the other parts) and
    hand it to `target`, durably; the event. Raises `ActivityFailed`."""
    known = targets(engine)
    if target not in known:
        hint = Nearest().hint(target, known)
        raise _failed("UNKNOWN_TARGET", f"no target {target!r} is configured; {hint}".rstrip("; "))
    try:
        event = cloud_event(
            value, id=id, source=source, time=time, traceparent=traceparent, hops=hops
        )
    except BadEvent as bad:
        raise ActivityFailed(bad.failure) from None
    try:
        if target == OWN_TARGET or engine.sink is None:
            await _to_own_queue(engine, tenant, target, event)
        else:
            await engine.sink.publish(target, jsonvalues.dumps(event), event["id"])
    except EventRefused as error:
        raise _failed(EVENT_REFUSED, f"target {target} refused the event: {error}") from None
    except MessageTooLarge:
        size = len(jsonvalues.dumps(event))
        raise _failed(
            FailureType.PAYLOAD_TOO_LARGE,
            f"the event has {size} bytes, a message at most {MAX_MESSAGE_BYTES}; publish a "
            "reference to the data instead",
        ) from None
    except TransportError as error:
        message = f"target {target} could not be reached: {type(error).__name__}"
        raise ActivityFailed(Failure(type=PUBLISH_FAILED, message=message)) from error
    engine.metrics.count("weft_events_published_total", target)
    return event


async def _to_own_queue(engine: Engine, tenant: str, target: str, event: dict[str, Any]) -> None:
    if target != OWN_TARGET:
        event = {**event, TARGET_ATTRIBUTE: target}
    message = OutMessage(
        queue=EVENTS_QUEUE,
        body=jsonvalues.dumps(event),
        message_id=message_id(event["id"]),
        properties={"tenant": tenant, "type": "event"},
        content_type=STRUCTURED,
    )
    await engine.transport.send([message])


def _failed(type: str, message: str) -> ActivityFailed:
    return ActivityFailed(Failure(type=type, message=message, retryable=False))
