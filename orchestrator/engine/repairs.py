"""What had really been lost and was found: `weft_repairs_total`, one label per kind of loss.

    outbox         messages that were committed and not sent      (relay)
    lease          a worker died: its task is taken over          (sweep)
    retry          a retry's scheduled message did not come       (sweep)
    signal, notification    nobody took it in, nobody sent it     (sweep)
    task           dispatched, and nobody works on it             (check)
    result         stored, and the orchestrator had not heard     (check)
    timer          a wait or a deadline was over, and nothing came (check, look)
    child          a child had ended, and the parent had not heard (look)

A sweep that finds nothing wrong is no repair. Nor is a message that only the sweeper can send,
because it is due further ahead than a broker keeps messages. (The state does not say how far ahead
a plain `wait` was, so those are counted.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from orchestrator.domain import events as ev
from orchestrator.domain.decide import Decision
from orchestrator.domain.effects import next_wake
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.status import TaskStatus
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine

NAME: Final = "weft_repairs_total"


def of_task(doc: dict[str, Any]) -> str | None:
    """What an overdue task document says was lost; None: nothing, it is only looked at."""
    if doc["status"] == TaskStatus.RUNNING.value:
        return "lease"
    if doc["status"] == TaskStatus.RETRYING.value and doc["sweepAt"] > doc["dueAt"]:
        return "retry"
    return None


def count(engine: Engine, label: str, by: int = 1) -> None:
    """Nothing is counted for 0."""
    if by:
        engine.metrics.count(NAME, label, by)


def count_look(engine: Engine, doc: dict[str, Any], label: str) -> None:
    """The sweeper's look at a task that waits has ended it: the word of that had not come. One
    whose `sweepAt` is its time had no message to lose."""
    if doc["sweepAt"] <= engine.clock.now() and doc["sweepAt"] != doc.get("dueAt"):
        count(engine, label)


def count_decided(
    engine: Engine, aggregate: Aggregate, decision: Decision, messages: Sequence[Message]
) -> None:
    """What a decision found that no message had told it; only a CHECK looks for that."""
    kinds = {message.type for message in messages}
    if MessageType.CHECK not in kinds:
        return
    tasks = aggregate.workflow.tasks
    told = {(one.task, one.item) for one in messages if one.type is MessageType.TASK_FINISHED}
    requeued, unheard = 0, 0
    for event in decision.events:
        if isinstance(event, ev.TasksRequeued):
            requeued += len(event.tasks) + len(event.items)
        else:
            found = _results(event, decision)
            unheard += sum((tasks[task].id, item) not in told for task, item in found)
    count(engine, "task", requeued)
    count(engine, "result", unheard)
    wake, late = next_wake(aggregate.state), engine.clock.now() - engine.tunables.retry_grace_ms
    if MessageType.TIMER_DUE not in kinds and wake is not None and wake <= late:
        count(engine, "timer", int(next_wake(decision.state) != wake))


def _results(event: ev.Event, decision: Decision) -> list[tuple[int, int | None]]:
    """The (task, item) whose stored results this event takes in."""
    match event:
        case ev.TaskCompleted(attempt=attempt) if attempt:
            return [(event.task, None)]
        case ev.TaskFailed() if event.task not in decision.failures:
            return [(event.task, None)]
        case ev.MapItemsCompleted():
            return [(event.task, item) for item in event.items]
        case ev.MapItemFailed():
            return [(event.task, event.item)]
        case _:
            return []
