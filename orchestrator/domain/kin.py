"""Parents and children: which execution a `workflow` task starts, and who tells whom that it ended.

The task's document says which child it has (`child`: see `next_child`); the child's header says
whose it is (`parent`, `parentTask`, `depth`). The child's id is derived from both and a number, and
the number is stored before the child is submitted: whoever takes the task over after a crash names
the same child, so that one wish never starts two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from orchestrator.domain.effects import Outgoing
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.state import ExecutionState
from orchestrator.domain.status import SETTLED_CODES, TERMINAL_EXECUTION, Code
from orchestrator.domain.workflow import TaskSpec, TaskType, Workflow

MAX_FORGIVEN: Final = 10
"""Workers that may die while they start one child before the task is charged for it: starting one
is quick, so a death there is hardly the task's fault; but one that kills every worker must end."""

_NO_SUCCESS: Final = SETTLED_CODES - {Code.COMPLETED}

PARKED: Final = frozenset({TaskType.WORKFLOW, TaskType.DURABLE, TaskType.WAIT, TaskType.SIGNAL})
"""Types of tasks that a worker only sets going: their documents are WAITING afterwards, without a
worker. (A `wait` or `signal` outside a map never reaches a worker at all.)"""


def child_id(tenant: str, parent: str, task: str, item: int | None, number: int) -> str:
    """Id of the `number`-th child of a task (or map item): of the same alphabet as other ids. NUL
    separates, because no part can contain it."""
    place = task if item is None else f"{task}:{item}"
    text = f"child\0{tenant}\0{parent}\0{place}\0{number}"
    return "c" + hashlib.sha256(text.encode()).hexdigest()[:31]


def next_child(partition: tuple[str, str], doc: Mapping[str, Any]) -> dict[str, Any]:
    """The `child` of a task document that is being claimed: the one before, unless its end is
    known; else the next. Fields:

    number      1, 2, … : children of this task so far
    execution   its id, whether or not it exists yet
    settled     its end is taken in, or it will never exist (absent: it may be running)
    deadlineAt  when the task's `timeout` has it cancelled (epoch ms; absent: never)
    lookMs      how long the next look waits; doubles while nothing is wrong
    crashes     workers that died while they started it
    unknown     looks in a row that did not find its workflow, before it is started
    missing     looks in a row that did not find it, after that
    """
    before = doc.get("child")
    if before is not None and not before.get("settled"):
        return before
    number = 1 if before is None else before["number"] + 1
    id = child_id(*partition, doc["task"], doc.get("item"), number)
    return {"number": number, "execution": id}


STARTED: Final = ("child", "instance")
"""Fields of a task document that say what the task has started: an execution, or an orchestration
(`orchestration.next_instance`). A document has one of them at most."""


def started(doc: Mapping[str, Any]) -> str:
    """Which of `STARTED` a task document has; "" if none."""
    return next((field for field in STARTED if field in doc), "")


def has_open_child(doc: Mapping[str, Any]) -> bool:
    """Whether a task document has a child, or an orchestration, that may be running."""
    field = started(doc)
    return bool(field) and not doc[field].get("settled")


def still_wanted(doc: Mapping[str, Any] | None, number: int) -> bool:
    """Whether the parent's task document `doc` still has its child `number`. A document that does
    not know the child yet is an old copy: the number is stored before a child is submitted."""
    child = None if doc is None else doc.get("child")
    if doc is None or child is None or child["number"] < number:
        return True
    open_ = has_open_child(doc) and "endedAt" not in doc
    return bool(child["number"] == number and open_)


def forgiven(doc: dict[str, Any]) -> bool:
    """Whether the death of the worker that was starting a child costs no attempt. Notes it in
    `doc` (the caller's own copy)."""
    field = started(doc)
    if not field or doc[field].get("crashes", 0) >= MAX_FORGIVEN:
        return False
    doc[field] = {**doc[field], "crashes": doc[field].get("crashes", 0) + 1}
    doc["granted"] = doc.get("granted", 0) + 1
    return True


def names_of(workflow: Workflow) -> frozenset[str]:
    """The workflows that `workflow` starts as children without naming a version."""
    return frozenset(
        spec.workflow
        for spec in _specs(workflow)
        if spec.type is TaskType.WORKFLOW and spec.workflow_version is None
    )


def orchestrations_of(workflow: Workflow) -> frozenset[str]:
    """The code workflows that `workflow` runs as tasks without naming a version."""
    return frozenset(
        spec.orchestration
        for spec in _specs(workflow)
        if spec.type is TaskType.DURABLE and spec.orchestration_version is None
    )


def _specs(workflow: Workflow) -> Iterator[TaskSpec]:
    for task in workflow.tasks:
        yield task if task.do is None else task.do


def messages(
    workflow: Workflow,
    partition: tuple[str, str],
    header: Mapping[str, Any],
    before: ExecutionState,
    after: ExecutionState,
) -> list[Outgoing]:
    """What a commit must send besides `effects.messages_for`: word to the parent that this child
    has ended, and a call of the waiting tasks that this execution no longer needs, so that their
    children are cancelled now. A lost one is made up for by the sweeper."""
    out: list[Outgoing] = []
    if after.status in TERMINAL_EXECUTION and before.status not in TERMINAL_EXECUTION:
        out += _to_parent(partition[0], header)
    if before.tasks != after.tasks:
        out += [
            Outgoing(Message(MessageType.RUN_TASK, *partition, workflow.tasks[task].id, item))
            for task, item in _dropped(workflow, before, after)
        ]
    return out


def _to_parent(tenant: str, header: Mapping[str, Any]) -> Iterator[Outgoing]:
    if "parent" in header:
        place = header["parentTask"]
        yield Outgoing(
            Message(
                MessageType.RUN_TASK, tenant, header["parent"], place["task"], place.get("item")
            )
        )


def _dropped(
    workflow: Workflow, before: ExecutionState, after: ExecutionState
) -> Iterator[tuple[int, int | None]]:
    """Waiting (task, item)s that were in flight and are settled now, not by success."""
    for task, (was, now) in enumerate(zip(before.tasks, after.tasks, strict=True)):
        if was == now or now not in _NO_SUCCESS:
            continue
        spec = workflow.tasks[task]
        if was == Code.QUEUED and spec.type in PARKED:
            yield task, None
        elif was == Code.WAITING and spec.do is not None and spec.do.type in PARKED:
            items = before.maps[task].items
            yield from ((task, item) for item, code in enumerate(items) if code == Code.QUEUED)
