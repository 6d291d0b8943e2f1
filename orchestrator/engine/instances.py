"""Look at a task that waits for an orchestration: has it ended, is its time over, is it paused?

    the instance has ended            -> its result is the attempt's
    `timeout` has passed              -> it is terminated; TIMEOUT once it has ended
    the execution is undone           -> likewise; CANCELLED
    the execution is paused, or is not any more -> it is suspended, or resumed
    signals for it are buffered       -> they are raised (`signals_raised`)
    the task has ended (`stop`)       -> it is terminated, until it was seen to have ended

All of it goes by what Durable says now (`status`), never by what was asked of it before, so that a
lost answer, a second worker or a crash in between only means asking once more. While Durable does
not answer, the task is looked at once a silence: nothing is charged to it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsonvalues import NotJson, dumps, loads
from orchestrator.domain.orchestration_result import decode_output, failure_from
from orchestrator.domain.status import ExecutionStatus
from orchestrator.engine import claimcheck, handback, repairs, results, signals_raised
from orchestrator.engine.attempt import Outcome
from orchestrator.engine.core import Engine
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.parked import MISSING_LOOKS, Parked, rewrite
from orchestrator.ports import NotFound, Throttled, Unavailable
from orchestrator.ports_durable import ENDED, Instance, InstanceStatus, Orchestrations

log = logging.getLogger(__name__)

T = TypeVar("T")
Close = Callable[[Engine, Parked], Awaitable[None]]
MAX_LOOKS = handback.MAX_STALE_HOPS
"""Looks in a row, each after twice the time, that follow the word of an end which is not there
yet: the instance gives it before it ends."""


class Away(Exception):
    """Durable does not answer, or this process has none."""


async def ask(engine: Engine, call: Callable[[Orchestrations], Awaitable[T]]) -> T:
    """The answer of Durable. Raises `Away`, `NotFound`."""
    hub = engine.orchestrations
    if hub is None:
        raise Away("this process has no task hub of Durable Functions")
    try:
        return await call(hub)
    except (Unavailable, Throttled) as error:
        engine.metrics.count("weft_durable_unavailable_total")
        raise Away(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Came:
    """How the message came: how often it was handed back, and whether it is word of an end."""

    hops: int
    ends: bool

    def again(self) -> int | None:
        """Milliseconds after which it is to come again, if it may."""
        return handback.growing(self.hops + 1) if self.hops < MAX_LOOKS else None


async def look(
    engine: Engine, found: Parked, incoming: Sequence[Incoming], close: Close
) -> int | None:
    """Do what the task needs now. Milliseconds after which the message is to come again, None:
    never. `close`: ends the task's document as CANCELLED."""
    hops = max((handback.hops(one) for one in incoming), default=0)
    came = _Came(hops, handback.is_end(incoming))
    try:
        return await _look(engine, found, close, came)
    except Away as error:
        log.warning(
            "orchestration not looked at",
            extra={
                "action": "durable.away",
                "execution": found.aggregate.execution,
                "task": found.doc["task"],
                "error": str(error),
            },
        )
        return await _again(engine, found, came)


async def _look(engine: Engine, found: Parked, close: Close, came: _Came) -> int | None:
    now, instance = engine.clock.now(), found.doc["instance"]
    late = instance.get("deadlineAt", now + 1) <= now
    undone = found.aggregate.state.status is ExecutionStatus.COMPENSATING
    seen = await status(engine, instance)
    if seen is None:
        return await _missing(engine, found, late=late, came=came)
    if seen.status not in ENDED and not (late or undone):
        return await _tend(engine, found, seen, came)
    if late or undone:
        reason = "its execution is undone" if undone else "the time limit of its task has passed"
        seen = await _stopped(engine, instance, seen, reason)
        if seen is None or seen.status not in ENDED:
            return await _again(engine, found, came)
    stopped = seen.status is not InstanceStatus.COMPLETED
    if undone and stopped:
        await close(engine, found)
        return None
    if not late:
        repairs.count_look(engine, found.doc, "orchestration")
    outcome = await _outcome(engine, found, seen, late=late)
    note: dict[str, Any] = {"settled": True}
    if seen.status is InstanceStatus.FAILED:
        note["failed"] = True
    await results.record_parked(engine, found, outcome, note)
    return None


async def status(engine: Engine, instance: dict[str, Any]) -> Instance | None:
    """What Durable knows of it; None if it does not exist. One that was rewound and still shows its
    old end counts as running. Raises `Away`."""
    seen = await ask(engine, lambda hub: hub.status(instance["id"]))
    stale = seen is not None and seen.updated_at == instance.get("failedAt")
    if seen is not None and stale and seen.status is InstanceStatus.FAILED:
        return replace(seen, status=InstanceStatus.PENDING, output=None)
    return seen


async def _tend(engine: Engine, found: Parked, seen: Instance, came: _Came) -> int | None:
    """It goes on: as its execution does, and with the signals that came for it."""
    paused = found.aggregate.state.status is ExecutionStatus.PAUSED
    suspended = seen.status is InstanceStatus.SUSPENDED
    if paused != suspended:
        verb = "suspend" if paused else "resume"
        reason = f"execution {found.aggregate.execution}"
        try:
            await ask(engine, lambda hub: getattr(hub, verb)(seen.id, reason))
        except NotFound:
            log.info("instance ended meanwhile", extra={"action": f"durable.{verb}"})
        return await _again(engine, found, came)  # until it was seen
    if await signals_raised.hand_over(engine, found, seen.id, ask):
        return came.again()
    return await _later(engine, found, came)


async def _later(engine: Engine, found: Parked, came: _Came) -> int | None:
    """Nothing has happened. Before the sweeper's time the message may be word of an end that is
    about to come; at its time the next look is noted, twice as far ahead."""
    now = engine.clock.now()
    if found.doc["sweepAt"] > now:
        return came.again() if came.ends else None
    instance = {key: value for key, value in found.doc["instance"].items() if key != "missing"}
    instance["lookMs"] = min(2 * instance["lookMs"], engine.tunables.max_silence_ms)
    await _note(engine, found, instance, now + instance["lookMs"])
    return None


async def _again(engine: Engine, found: Parked, came: _Came) -> int | None:
    """Something is to be seen, or to be asked once more: soon, and then once a silence."""
    now = engine.clock.now()
    soon = now + engine.tunables.silence_ms
    if not now < found.doc["sweepAt"] <= soon:
        await _note(engine, found, {**found.doc["instance"]}, soon)
    return came.again()


async def _missing(engine: Engine, found: Parked, *, late: bool, came: _Came) -> int | None:
    now, instance = engine.clock.now(), found.doc["instance"]
    looks = instance.get("missing", 0) + 1
    if late or looks >= MISSING_LOOKS:
        kind = FailureType.TIMEOUT if late else FailureType.ORCHESTRATION_NOT_FOUND
        failure = Failure(type=kind, message=f"the instance {instance['id']} is not there")
        await results.record_parked(engine, found, Outcome(failure=failure), {"settled": True})
        return None
    if found.doc["sweepAt"] > now:
        return came.again()
    due_at = now + engine.tunables.silence_ms
    await _note(engine, found, {**instance, "missing": looks}, due_at)
    return None


async def _note(engine: Engine, found: Parked, instance: dict[str, Any], due_at: int) -> None:
    if "deadlineAt" in instance:
        late = max(engine.clock.now(), instance["deadlineAt"]) + engine.tunables.retry_grace_ms
        due_at = min(due_at, late)
    await rewrite(engine, found, {**found.doc, "instance": instance, "sweepAt": due_at})


async def stop(engine: Engine, found: Parked) -> int | None:
    """Terminate the instance of an ended task, until it was seen to have ended. A task that is
    dispatched again is looked at again."""
    now, instance = engine.clock.now(), dict(found.doc["instance"])
    body = {key: value for key, value in found.doc.items() if key != "sweepAt"}
    try:
        seen = await status(engine, instance)
        if seen is not None:
            if seen.status not in ENDED:
                engine.metrics.count("weft_children_cancelled_total")
            seen = await _stopped(engine, instance, seen, "its task does not need it any more")
        missing = instance.get("missing", 0) + 1 if seen is None else 0
    except Away:
        seen, missing = None, 0
    gone = missing >= MISSING_LOOKS
    if gone or (seen is not None and seen.status in ENDED):
        await rewrite(engine, found, {**body, "instance": {**instance, "settled": True}})
        return None if found.over else handback.STALE_READ_MS
    if found.doc["sweepAt"] <= now:
        if missing:
            instance["missing"] = missing
        sweep_at = now + engine.tunables.silence_ms
        await rewrite(engine, found, {**body, "instance": instance, "sweepAt": sweep_at})
    return None


async def purge(engine: Engine, doc: dict[str, Any]) -> None:
    """Delete what Durable keeps of every instance that a task document names; nothing of another
    document. For erasing, and for retention. Raises `Away`."""
    attempts: list[dict[str, Any]] = doc.get("attempts") or []
    ids = [doc.get("instance", {}).get("id"), *(one.get("instance") for one in attempts)]
    for id in dict.fromkeys(ids):
        if id is not None:
            await ask(engine, _purging(id))


def _purging(id: str) -> Callable[[Orchestrations], Awaitable[None]]:
    return lambda hub: hub.purge(id)


async def _stopped(
    engine: Engine, instance: dict[str, Any], seen: Instance, reason: str
) -> Instance | None:
    """What Durable says after it was told to end it. One that was terminated earlier is told once
    more, for those below it: until it knew, it may have started others. What has come to its own
    end is left alone, as is what it left behind."""
    if seen.status in (InstanceStatus.COMPLETED, InstanceStatus.FAILED):
        return seen
    try:
        await ask(engine, lambda hub: hub.terminate(seen.id, reason))
    except NotFound:
        log.info("instance is not there any more", extra={"action": "durable.terminate"})
    return await status(engine, instance) if seen.status not in ENDED else seen


async def _outcome(engine: Engine, found: Parked, seen: Instance, *, late: bool) -> Outcome:
    """What the instance's end means for the task."""
    name = f"orchestration {seen.name!r} ({seen.id})"
    if seen.status is InstanceStatus.COMPLETED:
        return await _output(engine, found, seen, name)
    if late:
        message = f"{name} did not end within {found.spec.timeout_ms / 1000:g} s"
        return Outcome(failure=Failure(type=FailureType.TIMEOUT, message=message))
    if seen.status is InstanceStatus.FAILED:
        cause = cause_of(seen.output)
        message = f"{name} failed" + (f": {cause.message}" if cause else "")
        causes = () if cause is None else (cause,)
        kind = FailureType.ORCHESTRATION_FAILED
        again = cause is None or cause.retryable
        return Outcome(failure=Failure(type=kind, message=message, retryable=again, causes=causes))
    message = f"{name} was terminated"
    kind = FailureType.ORCHESTRATION_TERMINATED
    return Outcome(failure=Failure(type=kind, message=message, retryable=False))


async def _output(engine: Engine, found: Parked, seen: Instance, name: str) -> Outcome:
    label = f"{found.doc['id']}:{found.doc['attempt']}"
    try:
        text, ref = decode_output(seen.output)
        if ref is not None:
            return Outcome(output=ref)  # a code workflow's, stored by an activity of its own
        data = dumps(loads(text or "null"))
        partition = found.aggregate.partition
        return Outcome(output=await claimcheck.store(engine, partition, label, data))
    except NotJson as error:
        kind, message = FailureType.OUTPUT_NOT_JSON, f"{error.path}: {error.reason}"
    except claimcheck.PayloadTooLarge as error:
        kind, message = FailureType.PAYLOAD_TOO_LARGE, f"it has {error}"
    except ValueError as error:
        kind, message = FailureType.OUTPUT_NOT_JSON, str(error)
    except OSError as error:  # a full disk is not the orchestration's fault
        raise Unavailable(str(error)) from error
    message = f"the output of {name} cannot be kept: {message}"
    return Outcome(failure=Failure(type=kind, message=message, retryable=False))


def cause_of(output: str | None) -> Failure | None:
    """Why an instance failed, of what Durable keeps: a message, or `{"type", "message"}`; of a
    code workflow the failure itself."""
    if not output:
        return None
    if (known := failure_from(output)) is not None:
        return known
    try:
        told = loads(output)
    except ValueError:
        told = output
    if isinstance(told, dict) and isinstance(text := told.get("message"), str):
        kind = told.get("type")
        return Failure(type=kind if isinstance(kind, str) and kind else "Error", message=text)
    if isinstance(told, str) and told:
        return Failure(type="Error", message=told)
    return None
