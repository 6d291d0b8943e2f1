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
from orchestrator.domain.expressions import ExpressionError
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsonvalues import NotJson
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.status import ExecutionStatus
from orchestrator.engine import (
    attempt,
    claimcheck,
    code_catalog,
    handback,
    instances,
    outbox,
    parking,
    waiting,
)
from orchestrator.engine.aside import faults_of
from orchestrator.engine.attempt import LeaseLost, Outcome
from orchestrator.engine.claims import Claim
from orchestrator.engine.core import Engine
from orchestrator.engine.gather import ItemMissing
from orchestrator.engine.instances import Away
from orchestrator.engine.leases import LeaseKeeper
from orchestrator.ports import NotFound, PayloadNotFound, StoreError, TransportError
from orchestrator.ports_durable import InstanceStatus

log = logging.getLogger(__name__)

FIRST_DELAY_MS = 5_000
LAST_DELAY_MS = 60_000
"""How long a start is put off that Durable does not take; it doubles."""
_STOPPED = frozenset({InstanceStatus.TERMINATED, InstanceStatus.CANCELED})


class NotDeployed(Exception):
    """The version of the code workflow is not part of the app as it runs now."""


class _Another(Exception):
    """The instance that the task has is over: `instance` takes its place."""

    def __init__(self, before: str, instance: dict[str, Any]) -> None:
        super().__init__(f"the instance {before} is over, another takes its place")
        self.instance = instance


class _Refused(Exception):
    """The task cannot start it, now or later."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


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
    """One attempt to start the instance. None: it is started and the task waits for it, or the
    start is put off, or nothing could be stored and the lease lapses; else the failure. Raises
    `LeaseLost`."""
    try:
        instance = await _started(engine, claim)
    except LeaseLost:
        raise
    except _Refused as error:
        return Outcome(failure=_final(claim, error.failure))
    except _Another as error:
        await parking.put_off(engine, claim, error, error.instance, 0)
        return None
    except (Away, NotDeployed, ItemMissing, OSError) as error:
        refused = claim.doc["instance"].get("refused", 0)
        delay = min(FIRST_DELAY_MS << min(refused, 10), LAST_DELAY_MS)
        note = {**claim.doc["instance"], "refused": refused + 1}
        await parking.put_off(engine, claim, error, note, delay)
        return None
    except StoreError as error:
        # Whether it was started is not known: the next worker names the same instance.
        log.warning(
            "orchestration not started, another worker will",
            extra={
                "action": "durable.not_started",
                "execution": claim.aggregate.execution,
                "task": claim.doc["task"],
                "error": type(error).__name__,
            },
        )
        return None
    except Exception as error:
        return Outcome(failure=_final(claim, _failure(claim, error)))
    if await parking.wait(engine, claim, instance, instance["id"]):
        await _look(engine, claim)
    return None


async def _started(engine: Engine, claim: Claim) -> dict[str, Any]:
    """The task's instance, running or ended; started now if it was not there. Raises `_Another`
    for one that was stopped before, or cannot be rewound."""
    noted = claim.doc["instance"]
    instance = {key: value for key, value in noted.items() if key not in ("refused", "rewind")}
    seen = await instances.ask(engine, lambda hub: hub.status(instance["id"]))
    if seen is not None:
        over = seen.status in _STOPPED and "crashes" not in noted
        if seen.status is InstanceStatus.FAILED and "rewind" in noted:
            if not await engine.part(LeaseKeeper).may_begin(claim):
                raise LeaseLost
            try:
                await instances.ask(engine, lambda hub: hub.rewind(seen.id, "retried by Weft"))
            except NotFound:
                over = True
            else:
                return {**instance, "failedAt": seen.updated_at}
        if not over:
            return instance
        after = orchestration.following(claim.aggregate.partition, claim.doc, instance)
        raise _Another(seen.id, after)
    version = _version(engine, claim)
    text = await _envelope(engine, claim, version)
    try:
        function = engine.code.function(claim.spec.orchestration, version)
    except KeyError:
        raise _not_deployed(engine, claim, version) from None
    if not await engine.part(LeaseKeeper).may_begin(claim):
        raise LeaseLost
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
    """What the instance is given. Raises `_Refused` for an input that does not fit."""
    spec, aggregate = claim.spec, claim.aggregate
    value = await attempt.given(engine, claim)
    field = f"$.tasks.{claim.doc['task']}" + ("" if claim.item is None else ".do") + ".input"
    schema = None
    if version in engine.code.versions(spec.orchestration) and not aggregate.workflow.code:
        schema = engine.code.input_schema(spec.orchestration, version)
    faults: Sequence[Any] = [] if schema is None else await faults_of(schema, value, field)
    if faults:
        told = "; ".join(f"{one.field} {one.message}" for one in faults[:5])
        message = f"the input does not fit the schema of {spec.orchestration!r}: {told}"
        kind = FailureType.INPUT_INVALID
        raise _Refused(Failure(type=kind, message=message, retryable=False, field=field))
    name = f"{claim.id}:{claim.attempt}:input"
    try:
        payload = await claimcheck.store(engine, aggregate.partition, name, jsonvalues.dumps(value))
    except claimcheck.PayloadTooLarge as error:
        kind, message = FailureType.PAYLOAD_TOO_LARGE, f"the input has {error}"
        failure = Failure(type=kind, message=message, retryable=False, field=field)
        raise _Refused(failure) from None
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


async def _look(engine: Engine, claim: Claim) -> None:
    """Whoever came meanwhile met our lease: with a signal, a pause, a cancel. Their messages come
    again, but not for ever."""
    try:
        found = await parking.found_again(engine, claim)
        if found is None:
            return
        state = found.aggregate.state
        if found.over or state.signals or state.status is ExecutionStatus.PAUSED:
            await waiting.look(engine, parking.message_of(claim), (), found)
    except (StoreError, TransportError) as error:
        log.warning(
            "orchestration's task not looked at again, the sweeper will",
            extra={"action": "durable.not_looked_at", "error": type(error).__name__},
        )


def _final(claim: Claim, failure: Failure) -> Failure:
    """`failure`; and the instance will never exist, unless an earlier worker may have started
    it."""
    noted = claim.doc["instance"]
    if not noted.keys() & {"crashes", "refused"}:
        claim.doc["instance"] = {**noted, "settled": True}
    return failure


def _failure(claim: Claim, error: Exception) -> Failure:
    """Why the instance could not be started. What is refused now is refused again."""
    field = f"$.tasks.{claim.doc['task']}" + ("" if claim.item is None else ".do") + ".input"
    match error:
        case ExpressionError():
            separator = "" if not error.path or error.path.startswith((".", "[")) else "."
            return Failure(
                type=FailureType.EXPRESSION,
                message=error.reason,
                retryable=False,
                field=f"{field}{separator}{error.path}",
                expression=error.source,
            )
        case NotJson():
            message = f"the input is not JSON at {error.path}: {error.reason}"
            kind = FailureType.INPUT_INVALID
            return Failure(type=kind, message=message, retryable=False, field=field)
        case PayloadNotFound():
            return Failure(type=type(error).__name__, message=f"the input: {error}")
        case _:
            log.error(
                "orchestration could not be started: %s",
                type(error).__name__,
                extra={"action": "durable.fault", "execution": claim.aggregate.execution},
            )
            return Failure(type=type(error).__name__, message="the platform could not start it")
