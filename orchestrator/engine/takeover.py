"""A decision ends a task that a worker may still hold: the commit takes its document over.

At its deadline a task fails, whatever its worker is doing. The batch that says so also writes the
failure into the task's document and removes the lease, under the document's ETag. So the attempt's
late result cannot be written, its next renewal tells it to stop, and the messages of a retry find
the task finished. If the document has changed since the decision looked at it, the decision is made
again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from orchestrator.domain import jsonvalues, kin
from orchestrator.domain.decide import Decision
from orchestrator.domain.events import TaskFailed
from orchestrator.domain.failure import Failure
from orchestrator.domain.status import Code, TaskStatus
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import documents, facts, letters, task_docs
from orchestrator.engine.aggregate import Aggregate
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently
from orchestrator.ports import Create, Document, Operation, Replace, Upsert

LETTER_BYTES = 512 * 1024
"""What the inputs in the dead letters of one commit may weigh; further letters have none."""


class Changed(Exception):
    """A task has moved since the decision: decide again."""


@dataclass(slots=True)
class Taken:
    """What a commit writes to take tasks over; `tasks` are their positions."""

    tasks: set[int] = field(default_factory=set[int])
    operations: list[Operation] = field(default_factory=list[Operation])


async def take_over(engine: Engine, aggregate: Aggregate, decision: Decision, *, now: int) -> Taken:
    """For each dispatched task that the decision fails by itself: its document and its dead letter.
    Raises `Changed`, and what the store raises once `patiently` gave up."""
    taken = Taken()
    begun = {
        event.task: event.attempt
        for event in decision.events
        if isinstance(event, TaskFailed)
        and event.task in decision.failures
        and aggregate.state.tasks[event.task] == Code.QUEUED
    }
    if not begun:
        return taken
    partition, seq = aggregate.partition, aggregate.state.seq + 1
    ids = {task: documents.task_id(aggregate.workflow.tasks[task].id) for task in begun}
    found = await patiently(
        engine, engine.store.read_many, EXECUTIONS, partition, list(ids.values())
    )
    room = LETTER_BYTES
    for task, attempt in begun.items():
        existing, failure = found.get(ids[task]), decision.failures[task]
        name = aggregate.workflow.tasks[task].id
        _unchanged(aggregate, task, existing, attempt)
        if existing is None:
            body = documents.unworked(partition, name, TaskStatus.DEAD_LETTERED, now)
            body["failure"] = failure.to_doc()
            taken.operations.append(Create(body))
        else:
            body = _closed(existing.body, failure, now)
            taken.operations.append(Replace(body, existing.etag))
        letter = letters.of_decision(aggregate, name, failure, seq, now)
        if attempt:
            given = await letters.given(engine, aggregate, body)
            room -= len(jsonvalues.dumps(given))
            begun_once = {"attempt": attempt, "attempts": body["attempts"]}
            letter |= {**begun_once, "reason": "notRetryable", **(given if room >= 0 else {})}
        taken.operations.append(Upsert(letter))
        taken.tasks.add(task)
    return taken


def _unchanged(aggregate: Aggregate, task: int, doc: Document | None, attempt: int) -> None:
    """Raise `Changed` unless the document still is what the decision was made from."""
    if doc is None:
        if attempt:
            raise Changed
    elif doc.body["attempt"] != attempt or facts.has_ended(aggregate, task, doc.body):
        raise Changed


def _closed(doc: dict[str, Any], failure: Failure, now: int) -> dict[str, Any]:
    """The document after the take-over. An attempt that ran, or waits for its child, ends with
    the failure, too; the child is stopped afterwards."""
    body = task_docs.without_lease(doc)
    if kin.has_open_child(doc):
        body["sweepAt"] = now
    if doc["status"] in (TaskStatus.RUNNING.value, TaskStatus.WAITING.value):
        last = {**doc["attempts"][-1], "endedAt": now, "error": failure.to_doc()}
        body["attempts"] = [*doc["attempts"][:-1], last]
    return body | {
        "status": TaskStatus.DEAD_LETTERED.value,
        "endedAt": now,
        "failure": failure.to_doc(),
    }
