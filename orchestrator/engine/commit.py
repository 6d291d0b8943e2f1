"""Write a decision: one transactional batch, whatever its width.

    replace execution (ETag) + create events + a few outbox documents + item statuses of maps

Side documents (evaluated map items, results of tasks that never reached a worker) go with it, so a
decision that loses the race leaves nothing behind. If they do not fit into one batch, they are
written before it, and count only once the commit is there. That is allowed only from a state that
was read just now: a remembered one may lag behind, and would overwrite what others have committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any

from orchestrator.domain import codec, jsonvalues, kin
from orchestrator.domain.decide import Decision
from orchestrator.domain.effects import messages_for, next_wake
from orchestrator.domain.events import Event, SignalReceived, TaskFailed, TasksRequeued
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.payload import Payload
from orchestrator.domain.state import ExecutionState
from orchestrator.domain.status import TERMINAL_EXECUTION, Code, ExecutionStatus, TaskStatus
from orchestrator.domain.topology import (
    EXECUTIONS,
    INLINE_PAYLOAD_BYTES,
    MAP_CHUNK_ITEMS,
    MAX_BATCH_OPERATIONS,
    MAX_ERROR_BYTES,
)
from orchestrator.engine import aggregate as aggregates
from orchestrator.engine import (
    claimcheck,
    documents,
    letters,
    notify_docs,
    outbox,
    signal_docs,
    signalled_items,
)
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.takeover import Changed, take_over
from orchestrator.ports import (
    Conflict,
    Create,
    NotFound,
    Operation,
    PreconditionFailed,
    Replace,
    Upsert,
)

FAILURE_TEXT_BYTES = 256 * 1024
SIDE_BYTES_IN_COMMIT = 512 * 1024
"""What side documents may weigh in a batch of 2 MB, beside state, history and outbox."""
SEE_TASK = "see the task"
MAX_BESIDE = 24
"""Operations that an operator's decision may add to a batch."""


class Outdated(Exception):
    """Somebody else committed first: load and decide again."""


async def commit(
    engine: Engine,
    aggregate: Aggregate,
    decision: Decision,
    *,
    now: int,
    beside: Sequence[Operation] = (),
) -> tuple[Aggregate, list[dict[str, Any]]]:
    """Store `decision`; the new aggregate, and the outbox documents to send. `beside`: what an
    operator's decision changes besides, in the same batch (at most `MAX_BESIDE`).

    Raises `Outdated`, and what the store raises once `patiently` gave up."""
    try:
        taken = await take_over(engine, aggregate, decision, now=now)
        taken.operations += await signalled_items.complete(engine, aggregate, decision, now=now)
    except Changed as changed:
        raise Outdated from changed
    side = await _side_documents(engine, aggregate, decision, taken.tasks)
    side += _dead_letters(aggregate, decision, taken.tasks, now)
    decision = await _offload_output(engine, aggregate, decision)
    events = decision.events
    state = replace(decision.state, seq=aggregate.state.seq + 1)
    partition = aggregate.partition
    # Sending again is not progress: behind a long backlog nothing was lost, and each round would
    # only make it longer.
    progress = not all(isinstance(event, TasksRequeued) for event in events)
    silence = engine.tunables.silence_ms if progress else _longer(engine, aggregate)
    body = execution_body(engine, aggregate, state, now=now, silence=silence)
    commit_id = engine.ids.new()
    record = {
        **documents.base(partition, documents.events_id(state.seq), "events"),
        "seq": state.seq,
        "commit": commit_id,
        "events": _event_docs(events),
    }
    outgoing = messages_for(aggregate.workflow, *partition, events, state)
    outgoing += kin.messages(
        aggregate.workflow, partition, aggregate.header, aggregate.state, state
    )
    sends = outbox.build(engine, partition, outgoing, now=now, header=aggregate.header)
    operations: list[Operation] = [Replace(body, aggregate.etag), Create(record)]
    operations += [Create(doc) for doc in sends]
    operations += [Upsert(doc) for doc in _map_documents(aggregate, state)]
    operations += taken.operations
    operations += [Create(doc) for doc in notify_docs.of_commit(aggregate, events, state, now)]
    operations += beside
    room = MAX_BATCH_OPERATIONS - len(operations)
    if len(side) <= room and sum(map(_weight, side)) <= SIDE_BYTES_IN_COMMIT:
        operations += [Upsert(doc) for doc in side]
    elif aggregate.fresh:
        await _write_before(engine, aggregate, side)
    else:
        raise Outdated
    etag = await _write(engine, partition, operations, state.seq, commit_id)
    engine.metrics.count("weft_commits_total")
    done = replace(aggregate, state=state, etag=etag, silence_ms=body["silence"], fresh=False)
    aggregates.remember(engine, done)
    if taken := [event.id for event in events if isinstance(event, SignalReceived)]:
        engine.spawn(signal_docs.settle(engine, partition, taken), "weft-signals")
    return done, sends


async def postpone_check(engine: Engine, aggregate: Aggregate, *, now: int) -> None:
    """Nothing was wrong: look again after twice the silence. No event, so no new `seq`."""
    silence = _longer(engine, aggregate)
    body = execution_body(engine, aggregate, aggregate.state, now=now, silence=silence)
    try:
        etag = await patiently(
            engine,
            engine.store.replace,
            EXECUTIONS,
            aggregate.partition,
            body,
            if_match=aggregate.etag,
        )
    except (PreconditionFailed, NotFound, Unclear):
        engine.aggregates.drop(aggregate.partition)
        return  # somebody made progress, which is better
    aggregates.remember(engine, replace(aggregate, etag=etag, silence_ms=silence))


def _event_docs(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Events as stored. Of very many failures in one commit only the first keep their texts: a
    document holds 2 MB, and each task's document has its failure whole."""
    docs: list[dict[str, Any]] = []
    left = FAILURE_TEXT_BYTES
    for event in events:
        if isinstance(event, TaskFailed):
            left -= len(event.failure.failure.message) + 64
            if left < 0:
                bare = Failure(type=event.failure.failure.type, message=SEE_TASK)
                event = replace(event, failure=replace(event.failure, failure=bare))
        docs.append(codec.event_to_doc(event))
    return docs


def _longer(engine: Engine, aggregate: Aggregate) -> int:
    return min(aggregate.silence_ms * 2, engine.tunables.max_silence_ms)


def execution_body(
    engine: Engine, aggregate: Aggregate, state: ExecutionState, *, now: int, silence: int
) -> dict[str, Any]:
    """The execution document for `state`."""
    body = {
        **aggregate.header,
        "status": state.status.value,
        "silence": silence,
        "state": codec.state_to_doc(state),
    }
    if state.status not in TERMINAL_EXECUTION:
        sweep_at = _sweep_at(engine, state, now, silence)
        if sweep_at is not None:
            body["sweepAt"] = sweep_at
    return body


def _sweep_at(engine: Engine, state: ExecutionState, now: int, silence: int) -> int | None:
    """When the sweeper must look: after a silence while anything is in flight, and at the latest
    a little after the next wait or deadline, whose message may be lost (or was never sent, being
    too far ahead)."""
    wake = next_wake(state)
    # While paused nothing has to move, and resuming looks after everything itself.
    in_flight = state.status is not ExecutionStatus.PAUSED and (
        Code.QUEUED in state.tasks
        or any(progress.queued for progress in state.maps.values())
        or wake is None
    )
    due = now + silence if in_flight else None
    if wake is not None:
        late = max(wake, now) + engine.tunables.retry_grace_ms
        due = late if due is None else min(due, late)
    return due


async def _write(
    engine: Engine,
    partition: tuple[str, str],
    operations: list[Operation],
    seq: int,
    commit_id: str,
) -> str:
    """The batch; the execution's new ETag. Raises `Outdated`."""
    try:
        etags = await patiently(engine, engine.store.batch, EXECUTIONS, partition, list(operations))
        return etags[0]
    except (PreconditionFailed, Conflict, NotFound) as error:
        raise Outdated from error
    except Unclear as unclear:
        return await _mine_after_all(engine, partition, seq, commit_id, unclear)


async def _mine_after_all(
    engine: Engine, partition: tuple[str, str], seq: int, commit_id: str, unclear: Unclear
) -> str:
    """A write whose first answer was lost conflicts with itself when repeated: ask the events
    document whose commit it was."""
    wanted = [documents.events_id(seq), partition[1]]
    found = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, wanted)
    record, execution = found.get(wanted[0]), found.get(wanted[1])
    if record is None or record.body["commit"] != commit_id or execution is None:
        raise Outdated from unclear
    # A later commit may already stand on ours; its ETag would be a lie with our state.
    return execution.etag if execution.body["state"]["seq"] == seq else "superseded"


async def _offload_output(engine: Engine, aggregate: Aggregate, decision: Decision) -> Decision:
    """Move a large workflow output to the payload store."""
    output = decision.output
    if output is None or output.text is None or output.size <= INLINE_PAYLOAD_BYTES:
        return decision
    data = output.text.encode()
    return decision.with_output(await claimcheck.store(engine, aggregate.partition, "output", data))


def _dead_letters(
    aggregate: Aggregate, decision: Decision, taken: Set[int], now: int
) -> list[dict[str, Any]]:
    """Of tasks that failed without a worker, `taken` ones have theirs already. A map that failed
    with its items has none of its own: its items have."""
    seq = aggregate.state.seq + 1
    return [
        letters.of_decision(aggregate, aggregate.workflow.tasks[task].id, failure, seq, now)
        for task, failure in decision.failures.items()
        if failure.type != FailureType.MAP_ITEM_FAILED and task not in taken
    ]


async def _side_documents(
    engine: Engine, aggregate: Aggregate, decision: Decision, taken: Set[int]
) -> list[dict[str, Any]]:
    """Items of the maps that start, and the tasks that end in this decision without a worker."""
    partition, tasks = aggregate.partition, aggregate.workflow.tasks
    docs: list[dict[str, Any]] = []
    now = engine.clock.now()
    for position, items in decision.items.items():
        docs += await _item_documents(engine, partition, tasks[position].id, items)
    for position, output in decision.outputs.items():
        if output is not None:
            data = jsonvalues.dumps(output)
            payload = await claimcheck.store(engine, partition, tasks[position].id, data)
            doc = documents.unworked(partition, tasks[position].id, TaskStatus.COMPLETED, now)
            docs.append({**doc, "output": payload.to_doc()})
    signals = decision.signalled
    stored = await signal_docs.stored_payloads(engine, partition, set(signals.values()))
    for position, signal in signals.items():
        doc = documents.unworked(partition, tasks[position].id, TaskStatus.COMPLETED, now)
        docs.append({**doc, "output": stored[signal], "signal": signal})
    for position, failure in decision.failures.items():
        if position not in taken:
            doc = documents.unworked(partition, tasks[position].id, TaskStatus.DEAD_LETTERED, now)
            docs.append({**doc, "failure": failure.to_doc()})
    return docs


def _weight(doc: dict[str, Any]) -> int:
    """About how many bytes a side document has, never less."""
    payload = doc.get("items") or doc.get("output")
    inline = MAX_ERROR_BYTES if payload is None else len(payload.get("json") or "")
    return 2 * inline + 1024  # escaping as JSON text within JSON at most doubles plain text


async def _write_before(engine: Engine, aggregate: Aggregate, docs: list[dict[str, Any]]) -> None:
    partition, upsert = aggregate.partition, engine.store.upsert
    await asyncio.gather(*(patiently(engine, upsert, EXECUTIONS, partition, doc) for doc in docs))


async def _item_documents(
    engine: Engine, partition: tuple[str, str], task: str, items: list[Json]
) -> list[dict[str, Any]]:
    docs: list[dict[str, Any]] = []
    for chunk, start in enumerate(range(0, len(items), MAP_CHUNK_ITEMS)):
        id = documents.items_id(task, chunk)
        data = jsonvalues.dumps(items[start : start + MAP_CHUNK_ITEMS])
        payload: Payload = await claimcheck.store(engine, partition, id, data)
        docs.append({**documents.base(partition, id, "items"), "items": payload.to_doc()})
    return docs


def _map_documents(aggregate: Aggregate, state: ExecutionState) -> list[dict[str, Any]]:
    """Item statuses that changed. A map whose counts say all needs no documents; the first time
    that they do not, all of its chunks are written."""
    size = documents.chunk_items(aggregate.workflow)
    if not state.maps:
        return []
    stored = codec.open_maps(codec.state_to_doc(aggregate.state), size)
    needed = codec.open_maps(codec.state_to_doc(state), size)
    docs: list[dict[str, Any]] = []
    for task in needed:
        before = codec.chunks_of(aggregate.state.maps[task], size) if task in stored else []
        id = aggregate.workflow.tasks[task].id
        for chunk, items in enumerate(codec.chunks_of(state.maps[task], size)):
            if chunk >= len(before) or before[chunk] != items:
                base = documents.base(aggregate.partition, documents.map_id(id, chunk), "map")
                docs.append({**base, "items": items})
    return docs
