"""The orchestrator: messages in, decisions committed, messages out. Stateless and competing.

Messages of a batch are grouped by execution, so that 32 finished tasks of one execution are one
decision and one commit. Groups run side by side under a time budget below the lock; what cannot be
begun in time is handed back as new messages. The function never raises for one bad message or
execution: a batch is settled all or nothing, and neighbours must not pay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.domain.decide import Decision, decide
from orchestrator.domain.effects import next_wake
from orchestrator.domain.inputs import Input
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.messages import BadMessage, Message, MessageType, decode
from orchestrator.domain.status import TERMINAL_EXECUTION, ExecutionStatus
from orchestrator.domain.topology import ORCHESTRATION_QUEUE
from orchestrator.engine import (
    admission,
    competing,
    deadletters,
    facts,
    handback,
    levels,
    places,
    relay,
    repairs,
    shapes,
    signal_docs,
    telemetry,
)
from orchestrator.engine import aggregate as aggregates
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.commit import Outdated, commit, postpone_check
from orchestrator.engine.core import Engine
from orchestrator.engine.documents import NewerSchema
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.lanes import Lanes
from orchestrator.engine.signalled_items import ItemsEnded
from orchestrator.ports import Throttled, TransportError, Unavailable
from orchestrator.ports_telemetry import Span

log = logging.getLogger(__name__)

GROUPS_AT_ONCE = 16

_Partition = tuple[str, str]


class _Group:
    """The messages of one execution in a batch, with what they came as."""

    __slots__ = ("incoming", "messages")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.incoming: list[Incoming] = []


async def handle(engine: Engine, batch: Sequence[Incoming]) -> None:
    """Take a batch of the orchestration queue. Returns when everything in it is committed, handed
    back or kept as a dead letter; raises only if none of that was possible (store and broker both
    gone), so that the host abandons the batch."""
    groups: dict[_Partition, _Group] = {}
    levels.heard(engine, ORCHESTRATION_QUEUE, batch)
    for incoming in batch:
        try:
            message = decode(incoming.body)
            if message.queue != ORCHESTRATION_QUEUE:
                raise BadMessage(f"{message.type.value} does not belong to the orchestration queue")
        except BadMessage as error:
            await deadletters.capture(
                engine, incoming, queue=ORCHESTRATION_QUEUE, reason=error.reason
            )
            continue
        group = groups.setdefault((message.tenant, message.execution), _Group())
        group.messages.append(message)
        group.incoming.append(incoming)
    engine.part(Lanes).note({tenant for tenant, _ in groups})
    if len(groups) == 1:  # the common case needs no tasks
        [(partition, group)] = groups.items()
        await _safely(engine, partition, group)
        return
    until = engine.clock.now() + engine.tunables.batch_budget_ms
    queue = iter(groups.items())

    async def work() -> None:
        for partition, group in queue:
            if engine.clock.now() >= until:
                engine.metrics.count("weft_handed_back_total", "budget")
                await handback.send(engine, group.messages, group.incoming)
            else:
                await _safely(engine, partition, group)

    workers = [work() for _ in range(min(GROUPS_AT_ONCE, len(groups)))]
    for result in await asyncio.gather(*workers, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


async def _safely(engine: Engine, partition: _Partition, group: _Group) -> None:
    """One group under its span; its troubles stay its own."""
    with telemetry.span(
        engine.tracer,
        "orchestrate",
        parent=telemetry.parent_of(group.incoming) or _remembered_trace(engine, partition),
        kind="consumer",
        links=telemetry.links_of(group.incoming),
        about={"tenant": partition[0], "execution": partition[1]},
    ) as span:
        span.note({"messaging.batch.message_count": len(group.messages)})
        await _advance_or_give_back(engine, partition, group, span)


def _remembered_trace(engine: Engine, partition: _Partition) -> str:
    """For messages that other executions sent, or the sweeper: they do not know this one's."""
    known: Aggregate | None = engine.aggregates.get(partition)
    return "" if known is None else known.traceparent


async def _advance_or_give_back(
    engine: Engine, partition: _Partition, group: _Group, span: Span
) -> None:
    try:
        await advance(engine, partition, group.messages, group.incoming)
    except (Throttled, Unavailable, Outdated, TransportError, NewerSchema, OSError) as error:
        span.fail(type(error).__name__)
        log.warning(
            "execution not advanced, its messages are handed back",
            extra={
                "action": "orchestrate.handed_back",
                "tenant": partition[0],
                "execution": partition[1],
                "error": type(error).__name__,
            },
        )
        engine.metrics.count("weft_handed_back_total", type(error).__name__)
        await handback.send(engine, group.messages, group.incoming)
    except Exception as error:
        span.fail(type(error).__name__)
        log.exception(
            "execution cannot be advanced, its messages become dead letters",
            extra={
                "action": "orchestrate.poisoned",
                "tenant": partition[0],
                "execution": partition[1],
            },
        )
        for incoming in group.incoming:
            await deadletters.capture(
                engine,
                incoming,
                queue=ORCHESTRATION_QUEUE,
                reason=f"execution {partition[1]}: {type(error).__name__}: {error}",
            )


async def advance(
    engine: Engine,
    partition: _Partition,
    messages: Sequence[Message],
    incoming: Sequence[Incoming] = (),
) -> None:
    """Load, decide, commit; again after a conflict. Raises `Outdated` after too many conflicts,
    and what the store raises once `patiently` gave up."""

    heard: list[Message] = []  # what a conflict told: results of items that were to take signals

    async def once(fresh: bool) -> None:
        aggregate = await aggregates.load(engine, partition, fresh=fresh)
        if aggregate is None:
            engine.metrics.count("weft_unknown_executions_total")
            # A replica may lag behind the start; an execution that was removed stays unknown.
            await handback.send(
                engine,
                messages,
                incoming,
                delay_ms=handback.STALE_READ_MS,
                max_hops=handback.MAX_STALE_HOPS,
            )
            return
        if aggregate.state.status in TERMINAL_EXECUTION:
            if aggregate.state.status is ExecutionStatus.FAILED and not aggregate.fresh:
                await once(True)  # an operator may have reopened it since
                return
            await signal_docs.put_away(engine, partition, messages)
            await places.left(engine, aggregate, messages)
            engine.metrics.count("weft_messages_dropped_total", "ended")
            return
        now = engine.clock.now()
        decision = await _decide(engine, aggregate, [*messages, *heard], now)
        if not decision.events:
            if not aggregate.fresh:
                await once(True)  # a remembered state may be old: believe only what is stored
                return
            await _nothing_to_do(engine, aggregate, messages, incoming, now)
            return
        try:
            done, sends = await commit(engine, aggregate, decision, now=now)
        except Outdated as error:
            if isinstance(error.__cause__, ItemsEnded):
                heard.extend(error.__cause__.messages)
            raise
        _count(engine, aggregate, decision, messages)
        await relay.send_now(engine, sends)
        await _hand_back_unseen(engine, done, messages, incoming)
        if not aggregate.state.waits.keys() - done.state.waits.keys():
            await _early_timer(engine, done, messages, incoming, now)

    await competing.compete(engine, partition, once)


async def _decide(
    engine: Engine, aggregate: Aggregate, messages: Sequence[Message], now: int
) -> Decision:
    """Turn the messages into inputs and decide."""
    return await decide_with_facts(
        engine, aggregate, await facts.inputs_of(engine, aggregate, messages), now
    )


async def decide_with_facts(
    engine: Engine,
    aggregate: Aggregate,
    inputs: Sequence[Input],
    now: int,
    outputs: Mapping[str, Json] | None = None,
) -> Decision:
    """Decide, loading what the expressions turn out to need. `outputs`: task id -> an output that
    the decision is about to store, so that it cannot be loaded."""
    known = facts.empty(aggregate, outputs)
    # Every round loads the input or the result of a task that was not loaded before, or learns of
    # the limit: more rounds than that are a fault of ours, and must not spin for ever.
    for _ in range(len(aggregate.workflow.tasks) + 3):
        decision = decide(aggregate.workflow, aggregate.state, inputs, known, now)
        if not decision.needs:
            size = 0 if decision.output is None else decision.output.size
            most = await admission.most_output(engine, aggregate.partition[0], size)
            if most is None:
                return decision
            known = replace(known, max_output=most)
            continue
        known = await facts.supply(engine, aggregate, known, decision.needs)
    raise RuntimeError("a decision kept asking for facts")


async def _nothing_to_do(
    engine: Engine,
    aggregate: Aggregate,
    messages: Sequence[Message],
    incoming: Sequence[Incoming],
    now: int,
) -> None:
    if any(message.type is MessageType.CHECK for message in messages):
        await postpone_check(engine, aggregate, now=now)
    else:
        aggregates.remember(engine, aggregate)
    await _early_timer(engine, aggregate, messages, incoming, now)
    await _hand_back_unseen(engine, aggregate, messages, incoming)
    keys = [key for key in signal_docs.named(messages) if signal_docs.knows(aggregate.state, key)]
    if keys:
        engine.spawn(signal_docs.settle(engine, aggregate.partition, keys), "weft-signals")
    late = facts.pending_results(aggregate, messages)
    if late:
        await handback.send(engine, late, incoming, delay_ms=handback.STALE_READ_MS)
    else:
        engine.metrics.count("weft_duplicates_suppressed_total", "orchestration")


async def _hand_back_unseen(
    engine: Engine,
    aggregate: Aggregate,
    messages: Sequence[Message],
    incoming: Sequence[Incoming],
) -> None:
    unseen = signal_docs.unseen(aggregate.state, messages)
    if unseen and aggregate.workflow.takes_signals:
        unseen = await signal_docs.still_unseen(engine, aggregate.partition, unseen)
    if unseen and not shapes.waiting_for(aggregate):
        await handback.send(
            engine,
            unseen,
            incoming,
            delay_ms=handback.STALE_READ_MS,
            max_hops=handback.MAX_STALE_HOPS,
        )


async def _early_timer(
    engine: Engine,
    aggregate: Aggregate,
    messages: Sequence[Message],
    incoming: Sequence[Incoming],
    now: int,
) -> None:
    """Give a timer's message back that fired nothing because it came a little before its time, by
    our clock. One is enough for all of a batch."""
    timers = [message for message in messages if message.type is MessageType.TIMER_DUE]
    wake = next_wake(aggregate.state) if timers else None
    if wake is not None and 0 < wake - now <= handback.CLOCK_SKEW_MS:
        await handback.send(engine, timers[:1], incoming, delay_ms=wake - now)


def _count(
    engine: Engine, aggregate: Aggregate, decision: Decision, messages: Sequence[Message]
) -> None:
    repairs.count_decided(engine, aggregate, decision, messages)
    status = decision.state.status
    if (span := telemetry.current()) is not None and span.recorded:
        span.note({"weft.events": len(decision.events), "weft.status": status.value})
    if status in TERMINAL_EXECUTION:
        engine.metrics.count("weft_executions_total", status.value)
        took = engine.clock.now() - aggregate.header["createdAt"]
        engine.metrics.observe("weft_execution_duration_seconds", status.value, max(0, took) / 1000)
