"""The stored layout of one execution: which documents there are, what they hold, who writes them.

All live in container `executions`, in the logical partition (tenantId, executionId):

    id                    type        written by                    holds
    {executionId}         execution   submission, orchestrator      header, state, `sweepAt`
    events:{seq:010}      events      with every state change       events of one commit, commit id
    outbox:{id}           outbox      whoever commits               messages not known to be sent
    task:{task}[:{item}]  task        the worker that claims it     lease, attempts, result
    items:{task}:{chunk}  items       orchestrator, before MapStarted   500 evaluated items
    map:{task}:{chunk}    map         orchestrator                  item statuses, see `chunk_items`
    dead:{task}[:{item}]:{attempt}  deadletter  with the failure        see `letters`
    notify:{seq}.{n}      notification  with the end, then its sender  see `notify_docs`
    signal:{key}          signal      API, with its message         see `signal_docs`

`sweepAt` (epoch ms) is the one field the sweeper looks for: on an execution "look after me if
nothing happened by then", on a task "its lease or retry is overdue by then", on an outbox "should
have been sent by then". Absent: nothing can be lost any more.

Task documents of work that never reached a worker (a failing `when`) are written by the
orchestrator, before the commit that makes them count; those of tasks past their deadline, and of
map items that take a signal, with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.domain.status import TaskStatus
from orchestrator.domain.topology import MAP_CHUNK_ITEMS, MAX_MAP_ITEMS, SCHEMA_VERSION
from orchestrator.domain.workflow import TaskType, Workflow
from orchestrator.ports import Document, Unavailable

PLATFORM_TENANT = "_platform"
"""Tenant of the platform's own records; user tenants cannot begin with an underscore."""
SYSTEM_DEAD_LETTERS = (PLATFORM_TENANT, "_deadletters")
"""Partition of messages that belong to no readable execution."""


def base(partition: tuple[str, ...], id: str, type: str) -> dict[str, Any]:
    """What every document of an execution starts with."""
    return {
        "id": id,
        "type": type,
        "tenantId": partition[0],
        "executionId": partition[1],
        "v": SCHEMA_VERSION,
    }


def task_id(task: str, item: int | None = None) -> str:
    """Id of a task document. Task ids hold no colon, so items cannot collide with tasks."""
    return f"task:{task}" if item is None else f"task:{task}:{item}"


def events_id(seq: int) -> str:
    """Id of the events document of commit `seq`."""
    return f"events:{seq:010}"


def tag_field(name: str) -> str:
    """Property of an execution document that repeats a tag, so that lists can be filtered by it."""
    return f"tag:{name}"


def unworked(partition: tuple[str, str], task: str, status: TaskStatus, now: int) -> dict[str, Any]:
    """A task document of work that never reached a worker."""
    return {
        **base(partition, task_id(task), "task"),
        "task": task,
        "status": status.value,
        "attempt": 0,
        "attempts": [],
        "endedAt": now,
    }


def dead_id(task: str, item: int | None, attempt: str) -> str:
    """Id of a dead letter: one per task (or item) and attempt, however often it is written."""
    return f"dead:{task}:{attempt}" if item is None else f"dead:{task}:{item}:{attempt}"


def signal_id(key: str) -> str:
    """Id of a signal; `key` stands for its id, see `signalling.key_of`."""
    return f"signal:{key}"


def notification_id(key: str) -> str:
    """Id of a notification, see `notifying.key_of`."""
    return f"notify:{key}"


def items_id(task: str, chunk: int) -> str:
    """Id of a chunk of evaluated map items."""
    return f"items:{task}:{chunk:04}"


def map_id(task: str, chunk: int) -> str:
    """Id of a chunk of map item statuses."""
    return f"map:{task}:{chunk:04}"


CHUNKED_MAPS = 3
"""Workflows with more maps keep each map's statuses in one document: a commit that touches all of
them must stay within the 100 operations of a batch (3 maps x 20 chunks, or `MAX_MAPS` documents,
beside at most 30 outbox documents)."""


def chunk_items(workflow: Workflow) -> int:
    """How many item statuses a `map` document of this workflow holds."""
    maps = sum(1 for task in workflow.tasks if task.type is TaskType.MAP)
    return MAP_CHUNK_ITEMS if maps <= CHUNKED_MAPS else MAX_MAP_ITEMS


def check_version(doc: Mapping[str, Any]) -> None:
    """Refuse a document written by newer code. Raises `NewerSchema`."""
    if int(doc.get("v", 0)) > SCHEMA_VERSION:
        raise NewerSchema(f"document {doc.get('id')} has schema version {doc.get('v')}")


def checked(found: dict[str, Document]) -> dict[str, Document]:
    """`found`, unless newer code wrote any of it: who reads in order to write asks this first.
    Raises `NewerSchema`."""
    for doc in found.values():
        check_version(doc.body)
    return found


class NewerSchema(Unavailable):
    """The document was written by newer code; this code must leave it alone. For this process it
    is as if it could not be read just now: another one can, or this one after an upgrade."""
