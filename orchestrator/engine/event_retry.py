"""What an operator can do about a dead letter of an event: have it taken in again, or put it away.

Every event is fired first, then the letters are marked. A process that dies in between has started
executions under derived ids, so the same action again finds those, and marks the letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.domain.cloudevents import CloudEvent
from orchestrator.domain.errors import ConflictError
from orchestrator.domain.payload import Payload
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.domain.triggers import TriggerFailed
from orchestrator.engine import claimcheck, events, letters_wish
from orchestrator.engine.commit import Outdated
from orchestrator.engine.core import Engine
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.trigger_book import TriggerBook
from orchestrator.ports import Document, NotFound, Operation, PreconditionFailed, Replace


async def resolve(
    engine: Engine, tenant: str, found: Sequence[Document], wish: Wish, now: int
) -> list[Document]:
    """Do it to OPEN letters of one tenant's events; those that it was done to. Raises
    `ConflictError` if it makes no sense for any of them, `Outdated`."""
    if wish.action not in (Action.RETRY, Action.DISCARD):
        raise ConflictError(
            "an event can be retried or discarded", code=f"CANNOT_{wish.action.value.upper()}"
        )
    if wish.edited:
        raise ConflictError(
            "an event is retried as it is: mend the trigger, or send a corrected event",
            code="CANNOT_EDIT",
        )
    marks: list[Operation] = []
    for letter in found:
        marked = letters_wish.marked(letter, wish, now)
        assert isinstance(marked, Replace)
        if wish.action is Action.RETRY:
            executions = await _again(engine, tenant, letter.body)
            marked = Replace({**marked.body, "executions": executions}, marked.if_match)
        marks.append(marked)
    try:
        await patiently(engine, engine.store.batch, EXECUTIONS, _partition(found[0]), marks)
    except (PreconditionFailed, NotFound, Unclear) as error:
        raise Outdated from error
    return list(found)


async def _again(engine: Engine, tenant: str, letter: dict[str, Any]) -> list[str]:
    """The executions that the letter's event has started now, or had started."""
    if "event" not in letter:
        raise _cannot("this was no event and never will be; send a corrected one")
    body: Any = await claimcheck.load(engine, Payload.from_doc(letter["event"]))
    event, name = CloudEvent(body), letter.get("trigger")
    trace = letter.get("traceparent", "")
    if name is None:
        (receipt,) = await events.receive(engine, tenant, [event], traceparent=trace)
        return receipt.executions  # what fails has a letter of its own
    book = await engine.part(TriggerBook).of(tenant)
    trigger = next((one for one in book if one.name == name), None)
    if trigger is None:
        raise _cannot(f"there is no trigger {name!r} any more")
    if trigger.paused:
        raise _cannot(f"the trigger {name!r} is paused; resume it first")
    try:
        fired = None
        if trigger.meets(event):
            fired = await events.fire(engine, tenant, trigger, event, traceparent=trace)
    except TriggerFailed as failed:
        where = f"{failed.failure.field}: " if failed.failure.field else ""
        raise _cannot(f"it fails again, {where}{failed.failure.message}") from failed
    if fired is None:
        raise _cannot(f"the trigger {name!r} does not match this event any more")
    return [fired.execution]


def _partition(letter: Document) -> tuple[str, str]:
    return letter.body["tenantId"], letter.body["executionId"]


def _cannot(why: str) -> ConflictError:
    return ConflictError(f"{why}; or discard the dead letter", code="CANNOT_RETRY")
