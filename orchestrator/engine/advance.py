"""Advance one execution by its messages: load, decide, commit; send what the commit caused.

Stateless and competing: whoever finds that somebody else committed first loads and decides again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from orchestrator.domain.decide import Decision, decide
from orchestrator.domain.effects import next_wake
from orchestrator.domain.inputs import Input
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.status import TERMINAL_EXECUTION, ExecutionStatus
from orchestrator.engine import (
    admission,
    competing,
    facts,
    handback,
    places,
    relay,
    repairs,
    shapes,
    signal_docs,
    telemetry,
)
from orchestrator.engine import aggregate as aggregates
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.aside import LARGE_BYTES, aside
from orchestrator.engine.commit import Outdated, commit, postpone_check
from orchestrator.engine.core import Engine
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.signalled_items import ItemsEnded


async def advance(
    engine: Engine,
    partition: tuple[str, str],
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
        if not aggregate.fresh and places.waits(aggregate):
            await once(True)  # one that has ended since must not take another's place for a moment
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
        work = partial(decide, aggregate.workflow, aggregate.state, inputs, known, now)
        heavy = aggregate.workflow.heavy or aggregate.input.size > LARGE_BYTES
        decision = await aside(work, heavy=heavy)
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
