"""What travels on the queues: ids, never payloads or state. Losing any of it loses nothing.

A body is JSON: `{"v": 1, "type", "tenant", "execution", "task"?, "item"?, "priority"?}`. Message
ids are not part of it: they belong to the outbox entry that sent the message.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

from orchestrator.domain.priority import TASK_QUEUE, Priority
from orchestrator.domain.topology import ORCHESTRATION_QUEUE, SCHEMA_VERSION, TASKS_STANDARD_QUEUE


class MessageType(StrEnum):
    """Kinds of messages."""

    EXECUTION_STARTED = "executionStarted"  # -> orchestration
    TASK_FINISHED = "taskFinished"  # -> orchestration: the task document has a final result
    TIMER_DUE = "timerDue"  # -> orchestration: a wait or a deadline may be due
    CHECK = "check"  # -> orchestration: the execution was silent; look after lost work
    SIGNAL_RECEIVED = "signalReceived"  # -> orchestration: a signal was stored
    PLACE = "place"  # -> orchestration: look after its place in a concurrency group
    NOTIFY = "notify"  # -> tasks-standard: tell a webhook that the execution has ended
    RUN_TASK = "runTask"  # -> the queue of its class: claim and run


_QUEUE_OF: Final[dict[MessageType, str]] = {
    MessageType.EXECUTION_STARTED: ORCHESTRATION_QUEUE,
    MessageType.TASK_FINISHED: ORCHESTRATION_QUEUE,
    MessageType.TIMER_DUE: ORCHESTRATION_QUEUE,
    MessageType.CHECK: ORCHESTRATION_QUEUE,
    MessageType.SIGNAL_RECEIVED: ORCHESTRATION_QUEUE,
    MessageType.PLACE: ORCHESTRATION_QUEUE,
    MessageType.NOTIFY: TASKS_STANDARD_QUEUE,
}


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `task` is a task id (of a signal or a notification, its key); `item` the index
    of a map item; `priority` the class of the execution."""

    type: MessageType
    tenant: str
    execution: str
    task: str = ""
    item: int | None = None
    priority: Priority = Priority.STANDARD

    @property
    def queue(self) -> str:
        """The queue that it belongs to: of a task, that of its class."""
        if self.type is MessageType.RUN_TASK:
            return TASK_QUEUE[self.priority]
        return _QUEUE_OF[self.type]

    def encode(self) -> bytes:
        """The JSON body."""
        body: dict[str, Any] = {
            "v": SCHEMA_VERSION,
            "type": self.type.value,
            "tenant": self.tenant,
            "execution": self.execution,
        }
        if self.task:
            body["task"] = self.task
        if self.item is not None:
            body["item"] = self.item
        if self.priority is not Priority.STANDARD:
            body["priority"] = self.priority.value
        return orjson.dumps(body)


class BadMessage(Exception):
    """The body cannot be understood; `reason` says why (for the dead letter)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_TYPES: Final[dict[str, MessageType]] = {kind.value: kind for kind in MessageType}
_PRIORITIES: Final[dict[object, Priority]] = {one.value: one for one in Priority}


def decode(body: bytes) -> Message:
    """Parse a body. Raises `BadMessage` for anything that `encode` would not have written."""
    try:
        doc: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadMessage(f"not JSON: {error}") from None
    if not isinstance(doc, dict):
        raise BadMessage("not a JSON object")
    fields: dict[str, Any] = doc  # pyright: ignore[reportUnknownVariableType]
    version = fields.get("v")
    if version != SCHEMA_VERSION:
        raise BadMessage(f"unknown schemaVersion {version!r}, this code reads {SCHEMA_VERSION}")
    kind = _TYPES.get(str(fields.get("type")))
    if kind is None:
        raise BadMessage(f"unknown message type {fields.get('type')!r}")
    tenant, execution = fields.get("tenant"), fields.get("execution")
    task, item = fields.get("task", ""), fields.get("item")
    if not (isinstance(tenant, str) and tenant and isinstance(execution, str) and execution):
        raise BadMessage("tenant and execution must be non-empty strings")
    if not isinstance(task, str) or not (item is None or (type(item) is int and item >= 0)):
        raise BadMessage("task must be a string and item a non-negative integer")
    if kind in (MessageType.RUN_TASK, MessageType.TASK_FINISHED) and not task:
        raise BadMessage(f"{kind.value} needs a task")
    priority = _PRIORITIES.get(fields.get("priority", Priority.STANDARD.value))
    if priority is None:
        raise BadMessage(f"unknown priority {fields['priority']!r}")
    return Message(kind, tenant, execution, task, item, priority)
