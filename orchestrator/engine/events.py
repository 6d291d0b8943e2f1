"""Take in events: every trigger that matches starts one execution.

The execution's id is derived from tenant, trigger, and the event's source and id, so that the
database itself refuses the second one: an event that is delivered again, to whichever instance, is
answered with the executions that it has started. Nothing is remembered in between, so a process may
die anywhere.

What a trigger cannot do (its filter or mapping fails, the start is refused) is kept as a dead
letter with the event; the other triggers of the event are not affected. A dead letter has a derived
id, too, so a redelivery adds none.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain.cloudevents import CloudEvent
from orchestrator.domain.errors import (
    ConflictError,
    InvalidError,
    NotFoundError,
    TooLargeError,
    UnavailableError,
    WeftError,
)
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.topology import EXECUTIONS, MAX_BODY_BYTES, MAX_EVENT_HOPS
from orchestrator.domain.triggers import Trigger, TriggerFailed
from orchestrator.engine import admission, event_letters, submit
from orchestrator.engine.aside import aside
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently
from orchestrator.engine.tenant_limits import LimitBook
from orchestrator.engine.trigger_book import TriggerBook
from orchestrator.engine.views_events import EventReceipt

AT_ONCE = 8
"""Events of a batch that are worked on side by side."""
SHOWN_CHARS = 1_024
"""Of an event's id and source, as the execution shows them."""
ID_REUSED = "EVENT_ID_REUSED"
EVENT_LOOP = "EVENT_LOOP"


@dataclass(frozen=True, slots=True)
class Fired:
    """What a trigger made of an event: an execution, perhaps one that was there."""

    execution: str
    created: bool


async def receive(
    engine: Engine, tenant: str, events: Sequence[CloudEvent], *, traceparent: str = ""
) -> list[EventReceipt]:
    """Hold each event against all triggers; what became of each, in the same order. Durable when it
    returns. `traceparent`: the caller's, for events that carry none.

    Raises `Throttled`, `Unavailable` or a `WeftError` of those kinds if the store cannot be
    reached: some of the events may have been taken in then, and the same call again does the rest
    and nothing twice."""
    book = await engine.part(TriggerBook).of(tenant)
    receipts: list[EventReceipt] = []
    for at in range(0, len(events), AT_ONCE):
        results = await asyncio.gather(
            *(
                _take(engine, tenant, book, event, traceparent)
                for event in events[at : at + AT_ONCE]
            ),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
            receipts.append(result)
    return receipts


async def check_sizes(engine: Engine, tenant: str, found: Sequence[CloudEvent]) -> None:
    """Raises `TooLargeError` if the data of one of them is above the tenant's limit; nothing of
    the request should be taken in then."""
    limits = await engine.part(LimitBook).of(tenant)
    if limits.max_payload >= MAX_BODY_BYTES:
        return  # no request is that large
    for event in found:
        size = len(jsonvalues.dumps(event.body.get("data", event.body.get("data_base64"))))
        await admission.payload(engine, tenant, size, f"the event {event.id[:SHOWN_CHARS]!r}")


async def _take(
    engine: Engine, tenant: str, book: Sequence[Trigger], event: CloudEvent, traceparent: str
) -> EventReceipt:
    executions: list[str] = []
    letters: list[str] = []
    for trigger in book:
        if trigger.paused or not trigger.meets(event):
            continue
        try:
            fired = await fire(engine, tenant, trigger, event, traceparent=traceparent)
        except TriggerFailed as failed:
            letters.append(
                await event_letters.keep(
                    engine, tenant, event, trigger, failed.reason, failed.failure
                )
            )
            _count(engine, "deadLettered")
            continue
        if fired is not None:
            executions.append(fired.execution)
            _count(engine, "started" if fired.created else "duplicate")
    unmatched = not executions and not letters
    if unmatched:
        _count(engine, "unmatched")
    return EventReceipt(
        id=event.id,
        source=event.source,
        executions=executions,
        dead_letters=letters,
        unmatched=unmatched,
    )


async def fire(
    engine: Engine, tenant: str, trigger: Trigger, event: CloudEvent, *, traceparent: str = ""
) -> Fired | None:
    """Start the execution of one trigger for one event that `meets` it, unless it exists; None if
    the filter says no. Raises `TriggerFailed`, and as `receive` does."""
    execution = execution_id(tenant, trigger.name, event)
    failed: TriggerFailed | None = None
    try:
        if not await aside(lambda: trigger.passes(event), heavy=trigger.heavy):
            return None
    except TriggerFailed as error:
        failed = error
    if await _exists(engine, tenant, execution, event):
        # Also where the filter fails: it may have been changed since the first delivery.
        return Fired(execution, created=False)
    if failed is not None:
        raise failed
    check_hops(event)
    input, tags = await aside(lambda: trigger.mapped(event), heavy=trigger.heavy)
    try:
        result = await submit.start(
            engine,
            tenant,
            trigger.workflow,
            input,
            tags=tags,
            traceparent=event.traceparent or traceparent,
            started_by=f"trigger:{trigger.name}",
            id=execution,
            more={"event": _origin(trigger, event), "hops": event.hops + 1},
        )
    except ConflictError as error:
        if error.code not in ("IDEMPOTENCY_KEY_REUSED", "ID_TAKEN"):
            raise _refused(error) from error
        # Another delivery was faster, perhaps with another version of the trigger.
        if await _exists(engine, tenant, execution, event):
            return Fired(execution, created=False)
        raise UnavailableError("the event is being taken in elsewhere; send it again") from error
    except (NotFoundError, InvalidError, TooLargeError) as error:
        raise _refused(error) from error
    if not result.created:
        await _exists(engine, tenant, execution, event)  # raises for another event of this id
    return Fired(execution, result.created)


def execution_id(tenant: str, trigger: str, event: CloudEvent) -> str:
    """An id of the same alphabet as fresh ones. NUL separates: no part can contain it."""
    key = f"{tenant}\0{trigger}\0{event.source}\0{event.id}"
    return "e" + hashlib.sha256(key.encode()).hexdigest()[:31]


async def _exists(engine: Engine, tenant: str, execution: str, event: CloudEvent) -> bool:
    """Whether the event has started its execution. Raises `TriggerFailed` if another event of the
    same source and id has."""
    found = await patiently(
        engine, engine.store.read_many, EXECUTIONS, (tenant, execution), [execution]
    )
    doc = found.get(execution)
    if doc is None:
        return False
    if doc.body.get("event", {}).get("content") != event.content:
        text = (
            f"an event of this source and id, with other content, has started execution "
            f"{execution}; ids of events must be unique within their source"
        )
        raise TriggerFailed("idReused", Failure(type=ID_REUSED, message=text, retryable=False))
    return True


def _origin(trigger: Trigger, event: CloudEvent) -> dict[str, Any]:
    return {
        "trigger": trigger.name,
        "id": event.id[:SHOWN_CHARS],
        "source": event.source[:SHOWN_CHARS],
        "type": event.type[:SHOWN_CHARS],
        "content": event.content,
    }


def check_hops(event: CloudEvent) -> None:
    """Raises `TriggerFailed` if too many executions lie behind the event: it may go in a circle."""
    if event.hops < MAX_EVENT_HOPS:
        return
    text = (
        f"{event.hops} executions in a row were each started by an event of the one before, at "
        f"most {MAX_EVENT_HOPS} may be: does a workflow publish what starts it again?"
    )
    raise TriggerFailed("tooManyHops", Failure(type=EVENT_LOOP, message=text, retryable=False))


def _refused(error: WeftError) -> TriggerFailed:
    """The start was refused; nothing of the input is quoted beyond what the error says."""
    causes = tuple(
        Failure(type=detail.code or error.code, message=detail.message, field=detail.field)
        for detail in error.details
    )
    kind = error.code if error.code != "INVALID" else FailureType.INPUT_INVALID
    failure = Failure(type=kind, message=error.message, retryable=False, causes=causes)
    return TriggerFailed("startRefused", failure.bounded())


def _count(engine: Engine, outcome: str) -> None:
    engine.metrics.count("weft_events_total", outcome)
