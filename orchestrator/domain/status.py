"""Execution and task statuses, and their codes. `transitions` says how they may change.

A task's state is packed into one byte of the execution document (10,000 tasks must stay small), so
each status has a one-letter code. `SKIPPED` has two codes because the reason is part of the state.
RUNNING and RETRYING are known to the task document only (the worker owns it); the execution
document says QUEUED until the final result arrives.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class ExecutionStatus(StrEnum):
    """Where an execution is. The last three are terminal."""

    PENDING = "PENDING"  # accepted, not yet seen by an orchestrator
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPENSATING = "COMPENSATING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class TaskStatus(StrEnum):
    """Where a task is. COMPLETED, SKIPPED and CANCELLED are terminal; DEAD_LETTERED ends the task
    too, unless an operator takes it up again."""

    PENDING = "PENDING"  # waits for its needs
    QUEUED = "QUEUED"  # dispatched to the workers
    RUNNING = "RUNNING"  # claimed by a worker (task document)
    RETRYING = "RETRYING"  # failed, next attempt scheduled (task document)
    WAITING = "WAITING"  # a timer, a signal, a child or map items must end first
    COMPLETED = "COMPLETED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"
    DEAD_LETTERED = "DEAD_LETTERED"


TERMINAL_EXECUTION: Final = frozenset(
    {ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED}
)


class Code:
    """One byte per task in the packed map; ints, because indexing `bytes` gives ints."""

    PENDING: Final = ord("P")
    QUEUED: Final = ord("Q")
    WAITING: Final = ord("W")
    COMPLETED: Final = ord("C")
    SKIPPED_UPSTREAM: Final = ord("S")  # runWhen was not met by the needs
    SKIPPED_CONDITION: Final = ord("s")  # its own `when` was false
    CANCELLED: Final = ord("X")
    DEAD_LETTERED: Final = ord("D")
    DEAD_ACCEPTED: Final = ord("d")  # under `hold`: the execution goes on without it
    HIDDEN: Final = ord("H")  # a compensation that nobody has called for


STATUS_OF_CODE: Final[dict[int, TaskStatus]] = {
    Code.PENDING: TaskStatus.PENDING,
    Code.QUEUED: TaskStatus.QUEUED,
    Code.WAITING: TaskStatus.WAITING,
    Code.COMPLETED: TaskStatus.COMPLETED,
    Code.SKIPPED_UPSTREAM: TaskStatus.SKIPPED,
    Code.SKIPPED_CONDITION: TaskStatus.SKIPPED,
    Code.CANCELLED: TaskStatus.CANCELLED,
    Code.DEAD_LETTERED: TaskStatus.DEAD_LETTERED,
    Code.DEAD_ACCEPTED: TaskStatus.DEAD_LETTERED,
    Code.HIDDEN: TaskStatus.PENDING,
}

SETTLED_CODES: Final = frozenset(
    {
        Code.COMPLETED,
        Code.SKIPPED_UPSTREAM,
        Code.SKIPPED_CONDITION,
        Code.CANCELLED,
        Code.DEAD_LETTERED,
        Code.DEAD_ACCEPTED,
        Code.HIDDEN,
    }
)
"""Codes of a task that will not move again by itself."""

DEAD_CODES: Final = frozenset({Code.DEAD_LETTERED, Code.DEAD_ACCEPTED})
SKIPPED_CODES: Final = frozenset({Code.SKIPPED_UPSTREAM, Code.SKIPPED_CONDITION})

SKIP_REASON: Final[dict[int, str]] = {
    Code.SKIPPED_UPSTREAM: "upstream",
    Code.SKIPPED_CONDITION: "condition",
}
