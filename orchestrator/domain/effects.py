"""Which messages the events of a commit cause: the outbox is computed, never written by hand.

Pure, and from events alone where possible, so that the same commit always sends the same. Messages
carry ids only; losing one loses nothing, because state says what is due (`next_wake`, recovery).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.domain import events as ev
from orchestrator.domain import itemsignals, notifying
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.state import ExecutionState
from orchestrator.domain.status import TERMINAL_EXECUTION, Code, ExecutionStatus
from orchestrator.domain.topology import MAX_SCHEDULE_AHEAD_MS
from orchestrator.domain.workflow import HANDLERS, OnFailure, TaskType, Workflow


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message and when it is due (epoch ms; None: at once)."""

    message: Message
    due_at: int | None = None


def messages_for(
    workflow: Workflow,
    tenant: str,
    execution: str,
    events: Sequence[ev.Event],
    state: ExecutionState,
) -> list[Outgoing]:
    """The messages that a commit of `events` must send. `state` is the state after them. When the
    execution begins to fail fast, or is cancelled with compensation, every task in flight that may
    be stopped is called again, so that one waiting for its retry is given back now, not at its next
    attempt (a worker drops the call of a running one)."""
    out: list[Outgoing] = []
    called: set[tuple[int, int | None]] = set()
    failing = draining = False
    for event in events:
        for task, item in _dispatched(event):
            called.add((task, item))
            out.append(Outgoing(_run(workflow, tenant, execution, task, item)))
        for due_at in sorted(set(_due(event))):
            if due_at - event.at <= MAX_SCHEDULE_AHEAD_MS:
                out.append(Outgoing(Message(MessageType.TIMER_DUE, tenant, execution), due_at))
        out += [
            Outgoing(_run(workflow, tenant, execution, *place))
            for place in _told(workflow, state, event)
        ]
        failing = failing or isinstance(event, ev.FailureNoted)
        draining = draining or isinstance(event, ev.CompensationStarted)
    if events and (_still_overdue(state, events[-1].at) or itemsignals.left(workflow, state)):
        out.append(Outgoing(Message(MessageType.TIMER_DUE, tenant, execution)))
    out += [
        Outgoing(
            Message(MessageType.NOTIFY, tenant, execution, notifying.key_of(state.seq, number))
        )
        for number in notifying.due(workflow, events, state)
    ]
    if workflow.concurrency is not None and any(map(_moves_place, events)):
        out.append(Outgoing(Message(MessageType.PLACE, tenant, execution)))
    if draining or (failing and workflow.on_failure is OnFailure.FAIL_FAST):
        out += [
            Outgoing(_run(workflow, tenant, execution, task, item))
            for task, item in in_flight(state)
            if (task, item) not in called
            and (draining or workflow.tasks[task].run_when not in HANDLERS)
        ]
    return out


def in_flight(state: ExecutionState) -> Iterator[tuple[int, int | None]]:
    """Every dispatched and unsettled (task, item): what recovery looks for messages and leases of.
    Tasks by position, each map's items by index."""
    yield from ((task, None) for task in _positions(state.tasks, Code.QUEUED))
    for task, items in state.maps.items():
        if state.tasks[task] == Code.WAITING and items.queued:
            yield from ((task, item) for item in _positions(items.items, Code.QUEUED))


def next_wake(state: ExecutionState) -> int | None:
    """When something becomes due by itself: the earliest wait, the earliest deadline of a task, or
    that of the execution (epoch ms). None: never, or the execution has ended. The sweeper goes by
    it (`sweepAt`). While compensating, the execution has none: half undone is worse than late."""
    if state.status in TERMINAL_EXECUTION:
        return None
    if state.status is ExecutionStatus.PAUSED:
        return state.deadline_at  # waits and tasks are looked at when it is resumed
    limit = None if state.status is ExecutionStatus.COMPENSATING else state.deadline_at
    known = () if limit is None else (limit,)
    return min((*state.waits.values(), *state.deadlines.values(), *known), default=None)


def _dispatched(event: ev.Event) -> Iterable[tuple[int, int | None]]:
    match event:
        case ev.TasksQueued():
            return ((task, None) for task in event.tasks)
        case ev.TasksRequeued() | ev.TasksReopened():
            return (*((task, None) for task in event.tasks), *event.items)
        case ev.MapItemsQueued():
            return ((event.task, event.start + offset) for offset in range(event.count))
        case _:
            return ()


def _told(
    workflow: Workflow, state: ExecutionState, event: ev.Event
) -> Iterator[tuple[int, int | None]]:
    """Tasks in flight whose orchestration must hear of `event`."""
    match event:
        case ev.SignalReceived():
            task = workflow.hearer(event.name)
            if task is not None and state.tasks[task] == Code.QUEUED:
                yield task, None
        case ev.ExecutionPaused() | ev.ExecutionResumed():
            for task, item in in_flight(state):
                spec = workflow.tasks[task]
                if (spec.do or spec).type is TaskType.DURABLE:
                    yield task, item
        case _:
            return


def _moves_place(event: ev.Event) -> bool:
    """Whether the execution frees its place in its concurrency group, or wants one again."""
    return isinstance(
        event,
        ev.ExecutionCompleted
        | ev.ExecutionFailed
        | ev.ExecutionCancelled
        | ev.ExecutionReopened
        | ev.CompensationReopened,
    )


def _due(event: ev.Event) -> Iterable[int]:
    """When the execution must be looked at because of `event`. Beyond `MAX_SCHEDULE_AHEAD_MS` no
    message is sent (brokers refuse or lose far-off ones): the sweeper finds it by `next_wake`."""
    match event:
        case ev.TaskWaiting() | ev.SignalAwaited():
            # Whichever comes first ends it.
            known = [due for due in (event.due_at, event.deadline_at) if due is not None]
            return (min(known),) if known else ()
        case ev.ExecutionStarted() | ev.ExecutionReopened() | ev.MapStarted() | ev.TaskOverridden():
            return () if event.deadline_at is None else (event.deadline_at,)
        case ev.TasksQueued() | ev.TasksReopened() | ev.TasksReset():
            return (due for _, due in event.deadlines)
        case _:
            return ()


def _still_overdue(state: ExecutionState, now: int) -> bool:
    """Whether more tasks are past their deadline than one commit could fail."""
    if not state.deadlines or state.status is not ExecutionStatus.RUNNING:
        return False
    return min(state.deadlines.values()) <= now


def _run(workflow: Workflow, tenant: str, execution: str, task: int, item: int | None) -> Message:
    return Message(MessageType.RUN_TASK, tenant, execution, workflow.tasks[task].id, item)


def _positions(codes: bytes, code: int) -> Iterator[int]:
    at = codes.find(code)
    while at >= 0:
        yield at
        at = codes.find(code, at + 1)
