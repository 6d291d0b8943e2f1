"""Orchestrations of Durable Functions as tasks: start one, and hear of its end.

An attempt of a `durable` task starts an *instance*, under an id that the claim has stored
(`orchestration.next_instance`), so that neither a crash after the start nor a second worker starts
another one. Durable starts one that has ended *anew*, so it is asked first. Afterwards the task
waits without a worker: `instances` looks at it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from orchestrator.domain import jsonvalues, orchestration
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.orchestration_result import MAX_STEP_BYTES, step_too_large
from orchestrator.domain.status import ExecutionStatus
from orchestrator.engine import (
    attempt,
    beginning,
    claimcheck,
    code_catalog,
    handback,
    instances,
    outbox,
)
from orchestrator.engine.aside import faults_of
from orchestrator.engine.attempt import Outcome
from orchestrator.engine.beginning import Later, Refused
from orchestrator.engine.claims import Claim
from orchestrator.engine.core import Engine
from orchestrator.engine.gather import ItemMissing
from orchestrator.engine.instances import Away
from orchestrator.engine.parked import Parked
from orchestrator.ports import NotFound
from orchestrator.ports_durable import InstanceStatus

log = logging.getLogger(__name__)

FIRST_DELAY_MS = 5_000
LAST_DELAY_MS = 60_000
"""How long a start is put off that Durable does not take; it doubles."""
_STOPPED = frozenset({InstanceStatus.TERMINATED, InstanceStatus.CANCELED})


class NotDeployed(Exception):
    """The version of the code workflow is not part of the app as it runs now."""


class _Another(Exception):
    """The instance that the task has is over; another takes its place."""


async def ended(
    engine: Engine,
    tenant: str,
    execution: str,
    task: str,
    item: int | None = None,
    instance: str = "",
) -> None:
    """An instance says, as its last step, that it is about to end: have its task looked at. Only a
    word: the look asks Durable itself, so a wrong, doubled or lost one does no harm. `instance`
    is told for the log alone. Raises `TransportError`."""
    log.debug("word of an end", extra={"action": "durable.word", "instance": instance})
    message = Message(MessageType.RUN_TASK, tenant, execution, task, item)
    word = {handback.WORD: handback.END}
    await engine.transport.send([outbox.out_message(message, engine.ids.new(), extra=word)])


async def begin(engine: Engine, claim: Claim) -> Outcome | None:
    """One attempt to start the instance (`beginning.attempt`)."""
    return await beginning.attempt(engine, claim, _begin, kind="durable", wanted=_wanted)


def _wanted(found: Parked) -> bool:
    """Whether somebody came with a signal, a pause, a cancel: their messages come again, but not
    for ever."""
    state = found.aggregate.state
    return found.over or bool(state.signals) or state.status is ExecutionStatus.PAUSED


async def _begin(engine: Engine, claim: Claim) -> tuple[dict[str, Any], str]:
    noted = claim.doc["instance"]
    try:
        instance = await _started(engine, claim)
    except (Away, NotDeployed, ItemMissing, OSError) as error:
        refused = noted.get("refused", 0)
        delay = min(FIRST_DELAY_MS << min(refused, 10), LAST_DELAY_MS)
        raise Later(error, {**noted, "refused": refused + 1}, delay) from error
    return instance, instance["id"]


async def _started(engine: Engine, claim: Claim) -> dict[str, Any]:
    """The task's instance, running or ended; started now if it was not there. Raises `Later` with
    another one's id for one that was stopped before, or cannot be rewound."""
    noted = claim.doc["instance"]
    instance = {key: value for key, value in noted.items() if key not in ("refused", "rewind")}
    seen = await instances.ask(engine, lambda hub: hub.status(instance["id"]))
    if seen is not None:
        over = seen.status in _STOPPED and "crashes" not in noted
        if seen.status is InstanceStatus.FAILED and "rewind" in noted:
            await beginning.may_begin(engine, claim)
            try:
                await instances.ask(engine, lambda hub: hub.rewind(seen.id, "retried by Weft"))
            except NotFound:
                over = True
            else:
                return {**instance, "failedAt": seen.updated_at}
        if not over:
            return instance
        after = orchestration.following(claim.aggregate.partition, claim.doc, instance)
        ended = _Another(f"the instance {seen.id} is over, another takes its place")
        raise Later(ended, after, 0)
    version = _version(engine, claim)
    text = await _envelope(engine, claim, version)
    try:
        function = engine.code.function(claim.spec.orchestration, version)
    except KeyError:
        raise _not_deployed(engine, claim, version) from None
    await beginning.may_begin(engine, claim)
    try:
        await instances.ask(engine, lambda hub: hub.start(function, instance["id"], text))
    except NotFound:
        raise _not_deployed(engine, claim, version) from None
    return instance


def _version(engine: Engine, claim: Claim) -> int:
    """The version that the task names, or that was the latest when its execution was submitted."""
    spec = claim.spec
    if spec.orchestration_version is not None:
        return spec.orchestration_version
    chosen = claim.aggregate.header.get("pins", {}).get(orchestration.pin(spec.orchestration))
    if chosen is not None:
        return int(chosen)
    versions = engine.code.versions(spec.orchestration)
    if not versions:
        raise NotDeployed(f"no code workflow {spec.orchestration!r} is deployed")
    return versions[-1]


def _not_deployed(engine: Engine, claim: Claim, version: int) -> NotDeployed:
    name = claim.spec.orchestration
    engine.part(code_catalog.Missing).note(name, version, engine.clock.now())
    return NotDeployed(f"version {version} of code workflow {name!r} is not deployed")


async def _envelope(engine: Engine, claim: Claim, version: int) -> str:
    """What the instance is given. Raises `Refused` for an input that does not fit."""
    spec, aggregate = claim.spec, claim.aggregate
    value = await attempt.given(engine, claim)
    field = f"{beginning.place(claim)}.input"
    schema = None
    if version in engine.code.versions(spec.orchestration) and not aggregate.workflow.code:
        schema = engine.code.input_schema(spec.orchestration, version)
    faults: Sequence[Any] = [] if schema is None else await faults_of(schema, value, field)
    if faults:
        told = "; ".join(f"{one.field} {one.message}" for one in faults[:5])
        message = f"the input does not fit the schema of {spec.orchestration!r}: {told}"
        kind = FailureType.INPUT_INVALID
        raise Refused(Failure(type=kind, message=message, retryable=False, field=field))
    name = f"{claim.id}:{claim.attempt}:input"
    data = jsonvalues.dumps(value)
    if len(data) > MAX_STEP_BYTES:
        kind, message = FailureType.PAYLOAD_TOO_LARGE, step_too_large("the input", len(data))
        raise Refused(Failure(type=kind, message=message, retryable=False, field=field))
    payload = await claimcheck.store(engine, aggregate.partition, name, data)
    return orchestration.Envelope(
        tenant=aggregate.partition[0],
        execution=aggregate.execution,
        task=claim.doc["task"],
        item=claim.item,
        workflow=spec.orchestration,
        version=version,
        input=payload.text,
        input_ref=None if payload.ref is None else payload,
        traceparent=aggregate.traceparent,
    ).encode()
