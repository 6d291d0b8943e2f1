"""Task documents as workers write them: a new one, one that was closed, what counts in one.

Notifications are claimed and tried again in the same way, so their documents have the same fields.
"""

from __future__ import annotations

from typing import Any, Final

from orchestrator.domain.messages import Message
from orchestrator.domain.priority import Priority
from orchestrator.domain.status import TaskStatus
from orchestrator.engine import documents

MAX_KEPT_ATTEMPTS: Final = 20
"""Older attempts are dropped from the document; `attempt` still counts them."""
FINAL: Final = frozenset(
    {
        TaskStatus.COMPLETED.value,
        TaskStatus.DEAD_LETTERED.value,
        TaskStatus.CANCELLED.value,
    }
)


def new(partition: tuple[str, str], message: Message) -> dict[str, Any]:
    """The document of a task that nobody has claimed yet, with the class of its message."""
    doc = documents.base(partition, documents.task_id(message.task, message.item), "task")
    doc |= {"task": message.task, "attempt": 0, "attempts": []}
    if message.item is not None:
        doc["item"] = message.item
    if message.priority is not Priority.STANDARD:
        doc["priority"] = message.priority.value
    return doc


def cancelled(doc: dict[str, Any], now: int) -> dict[str, Any]:
    """A task document after it was ended unrun."""
    return without_lease(doc) | {"status": TaskStatus.CANCELLED.value, "endedAt": now}


def counted(doc: dict[str, Any]) -> int:
    """Attempts that count against `maxAttempts`: those since an operator's last retry."""
    return doc["attempt"] - doc.get("granted", 0)


def without_lease(doc: dict[str, Any]) -> dict[str, Any]:
    """A copy of a task document that nobody holds and nothing is due for."""
    dropped = ("lease", "sweepAt", "dueAt", "endedAt")
    return {key: value for key, value in doc.items() if key not in dropped}
