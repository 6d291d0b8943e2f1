"""Concurrency groups: how many executions of a workflow (or of one key of it) run at the same time.

Container `control`, one document per group, each a partition of its own:

    place:{hash}    place    who has a place, who waits, who has to make room (`domain/places`)

Which group an execution belongs to is evaluated when it is submitted, and stands in its header. It
asks for a place before its first task starts; until then it is PENDING. The commit that ends it
also sends it a `place` message, which frees its place and calls the next one. A commit that reopens
it sends one too, and then it is counted again.

Group and execution are two documents, which cannot change together. So each step may be lost or
doubled, and is mended: asking and leaving are idempotent; an execution that waits asks again when
the sweeper looks at it; and one that finds the group full checks whether its holders still exist.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from orchestrator.domain import jsonvalues, places
from orchestrator.domain.errors import ErrorDetail, InvalidError
from orchestrator.domain.expressions import ExpressionError, Scope
from orchestrator.domain.inputs import Cancel, Input, SignalArrived, Start
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.places import Group, Holder, Verdict
from orchestrator.domain.status import TERMINAL_EXECUTION
from orchestrator.domain.topology import CONTROL, EXECUTIONS
from orchestrator.domain.workflow import ConcurrencyPolicy, Workflow
from orchestrator.engine import outbox, place_docs
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.aside import aside
from orchestrator.engine.core import Engine
from orchestrator.engine.lru import Lru
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import (
    Conflict,
    Document,
    NotFound,
    PreconditionFailed,
    TransportError,
    Unavailable,
)

log = logging.getLogger(__name__)

TRIES: Final = 50
PATIENT_CONFLICTS: Final = 2  # as in `competing`
CONFLICT_WAIT_MS: Final = 2
LOOK_MS: Final = 30_000
"""A process looks after the holders of a full group at most this often."""
YOUNG_MS: Final = 24 * 3600 * 1000
"""A holder whose document is not found counts this long: a replica may lag."""
TELL_AGAIN_MS: Final = 120_000
_ASKING: Final = frozenset({MessageType.PLACE, MessageType.EXECUTION_STARTED, MessageType.CHECK})
"""What lets an execution ask for a place. One that had ended by then, and was remembered as it was
before, has to give it back at once."""
BY: Final = "concurrency"


class _Looked:
    """When this process looked after the holders of a group last."""

    def __init__(self, engine: Engine) -> None:
        self.at: Lru[int] = Lru(5_000)


async def header(
    workflow: Workflow, tenant: str, execution: str, input: Json, tags: Mapping[str, str]
) -> dict[str, Any]:
    """The field of an execution's header that says which group it belongs to; none if its
    workflow has no `concurrency`. Raises `InvalidError`: the key cannot be evaluated."""
    spec = workflow.concurrency
    if spec is None:
        return {}
    key: Json = None
    if spec.key is not None:
        facts: dict[str, Json] = {"id": execution, "startedAt": None, "tags": dict(tags)}
        try:
            scope, template = Scope(input=input, execution=facts), spec.key
            key = await aside(lambda: template.evaluate(scope), heavy=template.heavy)
        except ExpressionError as error:
            detail = ErrorDetail(
                "$.concurrency.key",
                f"cannot be evaluated for this input: {error}",
                "CONCURRENCY_KEY",
                "give the input that the key reads, or make the key cover its absence",
            )
            raise InvalidError(
                f"the concurrency key of workflow {workflow.name!r} cannot be evaluated",
                code="CONCURRENCY_KEY",
                details=[detail],
            ) from None
    name = "\n".join((tenant, workflow.name, jsonvalues.body_hash(key)))
    group = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
    return {"place": {"group": group, "limit": spec.limit, "policy": spec.policy.value}}


async def admitted(
    engine: Engine, aggregate: Aggregate, messages: Sequence[Message], inputs: Sequence[Input]
) -> list[Input]:
    """`inputs`, without the start of an execution that has no place yet; with its cancellation if
    it is to be skipped, or has to make room. Raises what the store and the broker raise."""
    place = aggregate.header.get("place")
    state = aggregate.state
    if place is None or state.status in TERMINAL_EXECUTION:
        return list(inputs)
    asked = any(message.type is MessageType.PLACE for message in messages)
    if state.started_at is not None:
        if not asked:
            return list(inputs)
        group = await _stay(engine, aggregate, place)
        by = group.displacer(aggregate.execution)
        return list(inputs) if by is None else [_displaced(by), *inputs]
    # A signal begins it, too: it may be faster than the message that does.
    if not asked and not any(isinstance(given, Start | SignalArrived) for given in inputs):
        return list(inputs)
    others: list[Input] = [
        given for given in inputs if not isinstance(given, Start | SignalArrived)
    ]
    verdict, group = await _arrive(engine, aggregate, place)
    match verdict:
        case Verdict.HOLDS:
            return [Start(), *inputs]
        case Verdict.SKIPPED:
            reason = (
                f"skipped: {group.limit or place['limit']} of its concurrency group run already"
            )
            return [Cancel(by=BY, reason=reason), *others]
        case Verdict.DISPLACED:
            return [_displaced(group.displacer(aggregate.execution) or ""), *others]
        case Verdict.WAITS:
            return others


def waits(aggregate: Aggregate) -> bool:
    """Whether it has not begun, as far as is known, and needs a place for that."""
    return "place" in aggregate.header and aggregate.state.started_at is None


async def left(engine: Engine, aggregate: Aggregate, messages: Sequence[Message]) -> None:
    """The execution has ended: its place goes to who waits longest. Raises what the store and the
    broker raise; doing it again is harmless."""
    place = aggregate.header.get("place")
    if place is None or not any(message.type in _ASKING for message in messages):
        return
    await _leave(engine, aggregate.partition[0], place, {aggregate.execution})


def _displaced(by: str) -> Cancel:
    return Cancel(by=f"execution:{by}", reason="a later execution of its concurrency group")


async def _arrive(
    engine: Engine, aggregate: Aggregate, place: dict[str, Any]
) -> tuple[Verdict, Group]:
    tenant, me = aggregate.partition
    policy, limit = ConcurrencyPolicy(place["policy"]), place["limit"]
    version: int = aggregate.header["version"]
    await _look(engine, tenant, place)
    verdict = Verdict.WAITS

    def step(group: Group) -> Group:
        nonlocal verdict
        group = places.ruled(group, version, limit)
        after, verdict = places.arrive(group, me, limit, policy, engine.clock.now())
        return after

    before, group = await _change(engine, tenant, place, step)
    # `step` has set it, which the checker does not see.
    if before != group or verdict is Verdict.SKIPPED:  # pyright: ignore[reportUnnecessaryComparison]
        engine.metrics.count("weft_concurrency_total", verdict.value)
    await _call(engine, tenant, _newly_called(before, group))
    victims = [victim for victim, by in group.displaced if by == me]
    if verdict is Verdict.WAITS and victims:
        await _send(engine, tenant, victims, MessageType.PLACE)
    return verdict, group


async def _stay(engine: Engine, aggregate: Aggregate, place: dict[str, Any]) -> Group:
    """It runs: it has a place, even if it had given it back before it was reopened."""
    tenant, me = aggregate.partition
    _, group = await _change(
        engine, tenant, place, lambda group: places.reenter(group, me, engine.clock.now())
    )
    return group


async def _leave(engine: Engine, tenant: str, place: dict[str, Any], gone: Collection[str]) -> None:
    before, group = await _change(
        engine,
        tenant,
        place,
        lambda group: places.leave(group, gone, place["limit"], engine.clock.now()),
    )
    called = _newly_called(before, group)
    if before == group:
        # The same message again: whoever wrote the change may have died before it told anybody.
        since = engine.clock.now() - TELL_AGAIN_MS
        called = [one for one in group.holders if one.called and one.at >= since]
    await _call(engine, tenant, called)


def _newly_called(before: Group, after: Group) -> list[Holder]:
    known = {holder.execution for holder in before.holders}
    return [one for one in after.holders if one.called and one.execution not in known]


async def _look(engine: Engine, tenant: str, place: dict[str, Any]) -> None:
    """Take the places of those back that have ended and whose message was lost."""
    looked = engine.part(_Looked).at
    now, key = engine.clock.now(), (tenant, place["group"])
    last = looked.get(key)
    if last is not None and 0 <= now - last < LOOK_MS:
        return
    found = await _find(engine, place)
    group = place_docs.group(engine, found)
    looked.put(key, now)
    if len(group.holders) < (group.limit or place["limit"]):
        return
    gone: set[str] = set()
    for holder in group.holders:
        id = holder.execution
        docs = await patiently(engine, engine.store.read_many, EXECUTIONS, (tenant, id), [id])
        if id in docs:
            if docs[id].body["status"] in TERMINAL_EXECUTION:
                gone.add(id)
        elif now - holder.at > YOUNG_MS:
            gone.add(id)
    if gone:
        engine.metrics.count("weft_concurrency_total", "recovered", by=len(gone))
        await _leave(engine, tenant, place, gone)


async def _change(
    engine: Engine, tenant: str, place: dict[str, Any], step: Callable[[Group], Group]
) -> tuple[Group, Group]:
    """The group before and after `step`, stored under its ETag."""
    for conflicts in range(TRIES):
        found = await _find(engine, place)
        before = place_docs.group(engine, found)
        after = step(before)
        if after == before:
            return before, after
        body = place_docs.body(tenant, place, after)
        partition = (body["id"],)
        try:
            if found is None:
                await patiently(engine, engine.store.create, CONTROL, partition, body)
            else:
                await patiently(
                    engine, engine.store.replace, CONTROL, partition, body, if_match=found.etag
                )
        except (Conflict, PreconditionFailed, NotFound, Unclear):
            # Somebody else, or our own write with its answer lost: each step may be repeated.
            if conflicts > PATIENT_CONFLICTS:
                await engine.clock.sleep(CONFLICT_WAIT_MS * conflicts)
            continue
        return before, after
    raise Unavailable(f"concurrency group {place['group']}: {TRIES} conflicts in a row")


async def _find(engine: Engine, place: dict[str, Any]) -> Document | None:
    id = place_docs.id_of(place)
    found = await patiently(engine, engine.store.read_many, CONTROL, (id,), [id])
    return found.get(id)


async def _call(engine: Engine, tenant: str, holders: Sequence[Holder]) -> None:
    """As a check: it also asks for signals that came while it waited."""
    await _send(engine, tenant, [one.execution for one in holders], MessageType.CHECK)


async def _send(engine: Engine, tenant: str, executions: Sequence[str], kind: MessageType) -> None:
    """Raises `TransportError`: the message that led here is then handed back, and does it again."""
    if not executions:
        return
    messages = [
        outbox.out_message(Message(kind, tenant, one), engine.ids.new()) for one in executions
    ]
    try:
        await engine.transport.send(messages)
    except TransportError:
        log.warning(
            "executions of a concurrency group not called yet",
            extra={"action": "places.not_called", "tenant": tenant},
        )
        raise
