"""What `decide` needs from the store: messages turned into inputs, and the data of expressions.

A message only says where to look. What happened is read from the task document, which the worker
wrote in the same transaction as the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from orchestrator.domain.codec import iso
from orchestrator.domain.compensating import gives_back
from orchestrator.domain.deadlines import overdue as past_deadline
from orchestrator.domain.effects import in_flight
from orchestrator.domain.failure import Failure
from orchestrator.domain.inputs import Facts, Input, Lost, Needs, Start, TaskResult, TimerDue
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.payload import Payload
from orchestrator.domain.status import STATUS_OF_CODE, Code, TaskStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import claimcheck, documents, kinship, overdue, places, signal_docs
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.parked import is_overdue
from orchestrator.engine.resilience import patiently
from orchestrator.engine.silence import without_postponed

READ_AT_ONCE = 500
Place: TypeAlias = tuple[int, int | None]
"""A task's position, and the item if it is one of a map."""
_OUTCOME = {
    TaskStatus.COMPLETED.value: "completed",
    TaskStatus.DEAD_LETTERED.value: "failed",
    TaskStatus.CANCELLED.value: "cancelled",
}
"""Final states of a task document -> outcome for `decide`."""
_NO_RESULT = frozenset(
    {Code.PENDING, Code.SKIPPED_UPSTREAM, Code.SKIPPED_CONDITION, Code.CANCELLED}
)


@dataclass(slots=True)
class _Said:
    """What messages say: inputs by themselves, and which task documents are to be looked at."""

    inputs: list[Input] = field(default_factory=list[Input])
    looks: dict[str, Place] = field(default_factory=dict[str, Place])
    check: bool = False
    timer: bool = False


def _said(aggregate: Aggregate, messages: Sequence[Message]) -> _Said:
    said = _Said()
    for message in messages:
        match message.type:
            case MessageType.EXECUTION_STARTED:
                said.inputs.append(Start())
            case MessageType.TIMER_DUE:
                said.timer = True
                said.inputs.append(TimerDue())
            case MessageType.TASK_FINISHED:
                position = aggregate.workflow.index.get(message.task)
                if position is not None:
                    id = documents.task_id(message.task, message.item)
                    said.looks[id] = (position, message.item)
            case MessageType.CHECK:
                said.check = True
            case MessageType.SIGNAL_RECEIVED:
                pass  # `signal_docs` reads them, all at once
            case MessageType.PLACE:
                pass  # `places` looks
            case MessageType.RUN_TASK | MessageType.NOTIFY:
                pass  # not ours: it came to the wrong queue
    if said.check:
        said.inputs += [Start(), TimerDue()]
        for task, item in in_flight(aggregate.state):
            id = documents.task_id(aggregate.workflow.tasks[task].id, item)
            said.looks[id] = (task, item)
    return said


async def inputs_of(
    engine: Engine,
    aggregate: Aggregate,
    messages: Sequence[Message],
    *,
    resuming: bool = False,
) -> list[Input]:
    """The inputs that `messages` stand for. A CHECK looks at everything in flight and reports what
    ended unheard and what nobody works on. It and a timer look at deadlines, too. What a circuit
    breaker postpones is left alone, unless `resuming`: a pause drops its messages, too, and those
    of signals whose time was over."""
    said = _said(aggregate, messages)
    inputs = [*said.inputs, *await signal_docs.arrivals(engine, aggregate, messages)]
    late: dict[int, dict[str, Any] | None] = {}
    over: frozenset[int] = frozenset()
    if said.check or said.timer:
        every = past_deadline(aggregate.state, engine.clock.now())
        some, over = every[: overdue.READ_AT_ONCE], frozenset(every)
        late = dict.fromkeys(some)
        for task in some:
            if aggregate.state.tasks[task] == Code.QUEUED:
                said.looks[documents.task_id(aggregate.workflow.tasks[task].id)] = (task, None)
    found = await read_tasks(engine, aggregate.partition, said.looks)
    lost: list[Place] = []
    for id, (task, item) in said.looks.items():
        doc = found.get(id)
        if doc is not None and has_ended(aggregate, task, doc):
            inputs.append(_result(task, item, doc))
            if item is None:
                late.pop(task, None)
        elif item is None and task in over:
            if task in late:  # the others have their turn with the next decision
                late[task] = doc
        elif said.check and (
            nobody_works(engine, doc) or (resuming and is_overdue(doc, engine.clock.now()))
        ):
            lost.append((task, item))
    inputs += overdue.inputs(aggregate.workflow, list(late.items()))
    if lost and not resuming:
        patient = aggregate.silence_ms < engine.tunables.max_silence_ms
        lost = await without_postponed(engine, aggregate, lost, found, patient=patient)
    if lost:
        inputs.append(
            Lost(
                tasks=tuple(task for task, item in lost if item is None),
                items=tuple((task, item) for task, item in lost if item is not None),
            )
        )
    inputs = await kinship.admitted(engine, aggregate, inputs)
    return await places.admitted(engine, aggregate, messages, inputs)


def has_ended(aggregate: Aggregate, task: int, doc: dict[str, Any]) -> bool:
    """Whether the document holds a result. Given back counts only while the execution fails: once
    an operator has taken it up again, what was given back is to be run."""
    if doc["status"] == TaskStatus.CANCELLED.value:
        return gives_back(aggregate.workflow, aggregate.state, task)
    return doc["status"] in _OUTCOME


def _result(task: int, item: int | None, doc: dict[str, Any]) -> TaskResult:
    failure = doc.get("failure")
    return TaskResult(
        task=task,
        item=item,
        outcome=_OUTCOME[doc["status"]],  # pyright: ignore[reportArgumentType]
        failure=Failure.from_doc(failure) if failure else None,
        attempt=doc["attempt"],
        started_at=doc.get("startedAt"),
    )


def nobody_works(engine: Engine, doc: dict[str, Any] | None) -> bool:
    """Whether work in flight has neither a message nor a valid lease: never claimed, lease
    expired, or its retry overdue (`sweepAt` says both). A waiting task needs nobody: the sweeper
    alone has it looked at, or each look at a long child would be an entry in the history."""
    if doc is not None and doc["status"] == TaskStatus.WAITING.value:
        return False
    return doc is None or doc.get("sweepAt", 0) <= engine.clock.now()


async def read_tasks(
    engine: Engine, partition: tuple[str, str], ids: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """Bodies of those task documents that exist. Raises `NewerSchema`."""
    wanted = list(ids)
    result: dict[str, dict[str, Any]] = {}
    for at in range(0, len(wanted), READ_AT_ONCE):
        some = wanted[at : at + READ_AT_ONCE]
        found = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, some)
        result |= {id: doc.body for id, doc in documents.checked(found).items()}
    return result


def execution_facts(aggregate: Aggregate) -> dict[str, Json]:
    """`execution` as expressions see it."""
    started = aggregate.state.started_at
    return {
        "id": aggregate.execution,
        "startedAt": iso(started) if started is not None else None,
        "tags": aggregate.header["tags"],
    }


def empty(aggregate: Aggregate, outputs: Mapping[str, Json] | None = None) -> Facts:
    """Facts before anything was loaded. `outputs`: of tasks that complete in this decision."""
    status = TaskStatus.COMPLETED.value
    return Facts(
        input_loaded=False,
        execution=execution_facts(aggregate),
        tasks={
            task: {"output": output, "status": status, "error": None}
            for task, output in (outputs or {}).items()
        },
    )


async def supply(engine: Engine, aggregate: Aggregate, known: Facts, needs: Needs) -> Facts:
    """`known` and what `needs` asks for."""
    return Facts(
        input=await claimcheck.load(engine, aggregate.input) if needs.input else known.input,
        input_loaded=known.input_loaded or needs.input,
        tasks={**known.tasks, **await outcomes(engine, aggregate, needs.outputs)},
        execution=known.execution,
        signals={
            **known.signals,
            **await signal_docs.payloads(engine, aggregate.partition, needs.signals),
        },
    )


async def outcomes(
    engine: Engine, aggregate: Aggregate, tasks: Iterable[str]
) -> dict[str, dict[str, Json]]:
    """`{"output", "status", "error"}` of these tasks, as expressions see them. Only tasks that
    were dispatched have a document to read; that of a cancelled one may come from a decision that
    lost its race, or from a worker that ended too late to count."""
    result: dict[str, dict[str, Json]] = {}
    wanted: list[str] = []
    for task in tasks:
        code = aggregate.state.tasks[aggregate.workflow.index[task]]
        result[task] = {"output": None, "status": STATUS_OF_CODE[code].value, "error": None}
        if code not in _NO_RESULT:
            wanted.append(task)
    found = await read_tasks(engine, aggregate.partition, map(documents.task_id, wanted))
    for task in wanted:
        doc = found.get(documents.task_id(task))
        if doc is None or doc["status"] not in _OUTCOME:
            continue  # a wait leaves no document
        # The result may be news to this state: the message about it is what is being decided.
        result[task]["status"] = doc["status"]
        if doc.get("output") is not None:
            payload = Payload.from_doc(doc["output"])
            result[task]["output"] = await claimcheck.load(engine, payload)
        if doc.get("failure") is not None:
            result[task]["error"] = doc["failure"]
    return result


def pending_results(aggregate: Aggregate, messages: Sequence[Message]) -> list[Message]:
    """Messages about tasks that this state does not show as dispatched yet, though it has not
    settled them either: a replica may lag behind the commit that dispatched them."""
    late: list[Message] = []
    for message in messages:
        position = aggregate.workflow.index.get(message.task)
        if (
            message.type is MessageType.TASK_FINISHED
            and position is not None
            and aggregate.state.tasks[position] in (Code.PENDING, Code.HIDDEN)
        ):
            late.append(message)
    return late
