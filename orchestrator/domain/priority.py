"""The class of an execution: which queue its tasks travel on.

Three classes, each with a queue of its own, so that a backlog of one is never in front of another.
A class says nothing about how long work takes or may take.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from orchestrator.domain.topology import (
    TASKS_HIGH_QUEUE,
    TASKS_LOW_QUEUE,
    TASKS_STANDARD_QUEUE,
)


class Priority(StrEnum):
    """The classes, most urgent first."""

    HIGH = "high"
    STANDARD = "standard"
    LOW = "low"

    @classmethod
    def of(cls, doc: Mapping[str, Any]) -> Priority:
        """That of a stored document (an execution, a task, an outbox entry); `STANDARD` unless it
        says otherwise. Raises `ValueError` for one that is unknown."""
        return cls(doc.get("priority", cls.STANDARD.value))


TASK_QUEUE: Final[dict[Priority, str]] = {
    Priority.HIGH: TASKS_HIGH_QUEUE,
    Priority.STANDARD: TASKS_STANDARD_QUEUE,
    Priority.LOW: TASKS_LOW_QUEUE,
}
