"""Every change of status that may happen, as tables: (operation, from) -> to.

Without one table per machine, the same rule lives in several `if`s and a late message slips through
one of them. `evolve` asks the tables before it changes a state. Workers go by the task document
itself (`engine/claims.py`); the simulation holds every change of one against its table.
`docs/state-machines.md` is printed from here (`python -m orchestrator.domain.transitions`), so that
it cannot go stale.

Five machines: the execution; a task as the execution document shows it (written by orchestrators);
an item of a map (same document and writer); and a task as its own task document shows it (written
by workers, who alone know RUNNING and RETRYING: the execution document says QUEUED meanwhile); and
a circuit breaker, whose table is in `breakers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from orchestrator.domain.breakers import BREAKER, BreakerOperation, BreakerStatus
from orchestrator.domain.status import STATUS_OF_CODE, Code, ExecutionStatus, TaskStatus

_E = ExecutionStatus
_T = TaskStatus


class ExecutionOperation(StrEnum):
    """What may happen to an execution."""

    START = "start"  # an orchestrator takes it up
    PROGRESS = "progress"  # anything happens to its tasks, or a failure is noted
    COMPLETE = "complete"  # all tasks settled, no failure counted
    FAIL = "fail"  # a failure counted, or the execution timed out
    PAUSE = "pause"  # an operator's
    RESUME = "resume"
    CANCEL = "cancel"
    REOPEN = "reopen"  # an operator takes up what failed
    COPY = "copy"  # a replay begins with results of its origin
    COMPENSATE = "compensate"  # instead of failing, or of being cancelled: undo what completed
    COMPENSATE_AGAIN = "compensateAgain"  # an operator takes up a compensation that failed


class TaskOperation(StrEnum):
    """What an orchestrator may do to a task, or to an item of a map."""

    QUEUE = "queue"  # dispatch to the workers; a waiting map: dispatch its gathering
    REQUEUE = "requeue"  # dispatch again what got lost
    WAIT = "wait"  # start a timer, or a map's items, or wait for a signal
    SKIP = "skip"  # its `runWhen` or `when` says no
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"
    RETRY = "retry"  # an operator's: dispatch what failed again; a map: wait for its items again
    RESET = "reset"  # judge again, after an operator took up what it depended on
    OVERRIDE = "override"  # an operator gives the output that it failed to give
    ACCEPT = "accept"  # an operator lets a holding execution go on without it
    UNDO = "undo"  # dispatch a compensation; until then its task stands PENDING and counts nowhere


class WorkerOperation(StrEnum):
    """What a worker may do to a task document. One that does not exist yet counts as QUEUED."""

    CLAIM = "claim"  # take the lease and start an attempt
    WAIT = "wait"  # its child was started, or a wait inside a map begins: no worker is needed
    TAKE_OVER = "takeOver"  # the lease of another worker expired: a new attempt
    RETRY = "retry"  # the attempt failed, the next one is scheduled
    COMPLETE = "complete"
    FAIL = "fail"  # no attempts left, or not retryable
    GIVE_BACK = "giveBack"  # the execution is failing: end it without running it (again)
    REOPEN = "reopen"  # an operator's retry, written with the execution's change
    OVERRIDE = "override"  # an operator's output, likewise


EXECUTION: Final[Mapping[tuple[ExecutionOperation, ExecutionStatus], ExecutionStatus]] = {
    (ExecutionOperation.START, _E.PENDING): _E.RUNNING,
    (ExecutionOperation.PROGRESS, _E.RUNNING): _E.RUNNING,
    (ExecutionOperation.COMPLETE, _E.RUNNING): _E.COMPLETED,
    (ExecutionOperation.FAIL, _E.RUNNING): _E.FAILED,
    (ExecutionOperation.PAUSE, _E.RUNNING): _E.PAUSED,
    (ExecutionOperation.PROGRESS, _E.PAUSED): _E.PAUSED,  # what runs ends, and counts
    (ExecutionOperation.FAIL, _E.PAUSED): _E.FAILED,  # its deadline passed
    (ExecutionOperation.RESUME, _E.PAUSED): _E.RUNNING,
    (ExecutionOperation.CANCEL, _E.PENDING): _E.CANCELLED,
    (ExecutionOperation.CANCEL, _E.RUNNING): _E.CANCELLED,
    (ExecutionOperation.CANCEL, _E.PAUSED): _E.CANCELLED,
    (ExecutionOperation.REOPEN, _E.FAILED): _E.RUNNING,
    (ExecutionOperation.COPY, _E.PENDING): _E.PENDING,
    (ExecutionOperation.COMPENSATE, _E.RUNNING): _E.COMPENSATING,
    (ExecutionOperation.COMPENSATE, _E.PAUSED): _E.COMPENSATING,
    (ExecutionOperation.PROGRESS, _E.COMPENSATING): _E.COMPENSATING,
    (ExecutionOperation.FAIL, _E.COMPENSATING): _E.FAILED,
    (ExecutionOperation.CANCEL, _E.COMPENSATING): _E.CANCELLED,  # its end, or terminated
    (ExecutionOperation.COMPENSATE_AGAIN, _E.FAILED): _E.COMPENSATING,
    (ExecutionOperation.COMPENSATE_AGAIN, _E.CANCELLED): _E.COMPENSATING,
}

TASK: Final[Mapping[tuple[TaskOperation, TaskStatus], TaskStatus]] = {
    (TaskOperation.QUEUE, _T.PENDING): _T.QUEUED,
    (TaskOperation.QUEUE, _T.WAITING): _T.QUEUED,  # a map whose items are all COMPLETED
    (TaskOperation.REQUEUE, _T.QUEUED): _T.QUEUED,
    (TaskOperation.WAIT, _T.PENDING): _T.WAITING,
    (TaskOperation.SKIP, _T.PENDING): _T.SKIPPED,
    (
        TaskOperation.COMPLETE,
        _T.PENDING,
    ): _T.COMPLETED,  # a wait over, an empty map, a signal there before, a replay
    (TaskOperation.COMPLETE, _T.QUEUED): _T.COMPLETED,
    (TaskOperation.COMPLETE, _T.WAITING): _T.COMPLETED,  # a wait whose time has come, a signal
    (TaskOperation.FAIL, _T.PENDING): _T.DEAD_LETTERED,  # its expression fails
    (TaskOperation.FAIL, _T.QUEUED): _T.DEAD_LETTERED,
    (
        TaskOperation.FAIL,
        _T.WAITING,
    ): _T.DEAD_LETTERED,  # a map with a failed item, a signal too late
    (TaskOperation.CANCEL, _T.PENDING): _T.CANCELLED,
    (TaskOperation.CANCEL, _T.QUEUED): _T.CANCELLED,
    (TaskOperation.CANCEL, _T.WAITING): _T.CANCELLED,
    (TaskOperation.RETRY, _T.DEAD_LETTERED): _T.QUEUED,  # a map with failed items: WAITING
    (TaskOperation.RESET, _T.DEAD_LETTERED): _T.PENDING,  # it failed without a worker
    (TaskOperation.RESET, _T.CANCELLED): _T.PENDING,  # a map that had begun: WAITING
    (TaskOperation.RESET, _T.SKIPPED): _T.PENDING,
    (TaskOperation.OVERRIDE, _T.DEAD_LETTERED): _T.COMPLETED,
    (TaskOperation.ACCEPT, _T.DEAD_LETTERED): _T.DEAD_LETTERED,
    (TaskOperation.UNDO, _T.PENDING): _T.QUEUED,
}

ITEM: Final[Mapping[tuple[TaskOperation, TaskStatus], TaskStatus]] = {
    (TaskOperation.QUEUE, _T.PENDING): _T.QUEUED,
    (TaskOperation.REQUEUE, _T.QUEUED): _T.QUEUED,
    (TaskOperation.COMPLETE, _T.QUEUED): _T.COMPLETED,
    (TaskOperation.FAIL, _T.QUEUED): _T.DEAD_LETTERED,
    (TaskOperation.CANCEL, _T.PENDING): _T.CANCELLED,  # with its map
    (TaskOperation.CANCEL, _T.QUEUED): _T.CANCELLED,
    (TaskOperation.RETRY, _T.DEAD_LETTERED): _T.QUEUED,
    (TaskOperation.RESET, _T.CANCELLED): _T.PENDING,
    (TaskOperation.OVERRIDE, _T.DEAD_LETTERED): _T.COMPLETED,
}

WORKER: Final[Mapping[tuple[WorkerOperation, TaskStatus], TaskStatus]] = {
    (WorkerOperation.CLAIM, _T.QUEUED): _T.RUNNING,
    (WorkerOperation.CLAIM, _T.RETRYING): _T.RUNNING,
    (WorkerOperation.WAIT, _T.RUNNING): _T.WAITING,  # a child
    (WorkerOperation.WAIT, _T.QUEUED): _T.WAITING,  # a time or a signal
    (WorkerOperation.WAIT, _T.RETRYING): _T.WAITING,  # the same, at an operator's retry
    (WorkerOperation.WAIT, _T.CANCELLED): _T.WAITING,  # given back, then dispatched again
    (WorkerOperation.TAKE_OVER, _T.RUNNING): _T.RUNNING,
    (WorkerOperation.RETRY, _T.RUNNING): _T.RETRYING,
    (WorkerOperation.RETRY, _T.WAITING): _T.RETRYING,  # the child failed
    (WorkerOperation.COMPLETE, _T.RUNNING): _T.COMPLETED,
    (WorkerOperation.COMPLETE, _T.WAITING): _T.COMPLETED,
    (WorkerOperation.COMPLETE, _T.QUEUED): _T.COMPLETED,  # in a map: a wait due at once, a signal
    (WorkerOperation.COMPLETE, _T.RETRYING): _T.COMPLETED,  # a signal before it waits anew
    (WorkerOperation.COMPLETE, _T.CANCELLED): _T.COMPLETED,  # likewise, after it was given back
    (WorkerOperation.FAIL, _T.RUNNING): _T.DEAD_LETTERED,
    (WorkerOperation.FAIL, _T.WAITING): _T.DEAD_LETTERED,
    (WorkerOperation.FAIL, _T.RETRYING): _T.DEAD_LETTERED,  # past its deadline; or as below
    (WorkerOperation.FAIL, _T.QUEUED): _T.DEAD_LETTERED,  # a wait inside a map until no time
    (WorkerOperation.FAIL, _T.CANCELLED): _T.DEAD_LETTERED,  # the same, after it was given back
    (WorkerOperation.GIVE_BACK, _T.QUEUED): _T.CANCELLED,
    (WorkerOperation.GIVE_BACK, _T.RETRYING): _T.CANCELLED,
    (WorkerOperation.GIVE_BACK, _T.WAITING): _T.CANCELLED,  # or the execution has settled it
    (WorkerOperation.GIVE_BACK, _T.RUNNING): _T.CANCELLED,  # only after its lease expired
    (WorkerOperation.CLAIM, _T.CANCELLED): _T.RUNNING,  # given back, then dispatched again
    (WorkerOperation.REOPEN, _T.DEAD_LETTERED): _T.RETRYING,
    (WorkerOperation.OVERRIDE, _T.DEAD_LETTERED): _T.COMPLETED,
}


@dataclass(frozen=True, slots=True)
class Machine:
    """One state machine: its table, and who writes the status where."""

    name: str
    written: str
    operations: type[StrEnum]
    statuses: type[StrEnum]
    table: Mapping[tuple[StrEnum, StrEnum], StrEnum]


MACHINES: Final = (
    Machine(
        "Execution",
        "orchestrator, execution document",
        ExecutionOperation,
        ExecutionStatus,
        {**EXECUTION},
    ),
    Machine("Task", "orchestrator, execution document", TaskOperation, TaskStatus, {**TASK}),
    Machine("Map item", "orchestrator, map chunk document", TaskOperation, TaskStatus, {**ITEM}),
    Machine("Task attempt", "worker, task document", WorkerOperation, TaskStatus, {**WORKER}),
    Machine(
        "Circuit breaker",
        "worker or operator, breaker document",
        BreakerOperation,
        BreakerStatus,
        {**BREAKER},
    ),
)


class IllegalTransition(Exception):
    """An operation that the table does not allow from this status: a bug, or a damaged history.

    Attributes: `operation`, `status` (where it was), `subject` (what it happened to).
    """

    def __init__(self, operation: str, status: str, subject: str = "") -> None:
        of = f" of {subject}" if subject else ""
        super().__init__(f"{operation}{of} is not allowed from {status}")
        self.operation = operation
        self.status = status
        self.subject = subject


def check_execution(operation: ExecutionOperation, status: ExecutionStatus) -> ExecutionStatus:
    """The status after `operation`. Raises `IllegalTransition`."""
    to = EXECUTION.get((operation, status))
    if to is None:
        raise IllegalTransition(operation, status, "the execution")
    return to


def codes_from(
    table: Mapping[tuple[TaskOperation, TaskStatus], TaskStatus], operation: TaskOperation
) -> frozenset[int]:
    """The status codes from which `table` allows `operation`: `evolve` tests one byte per task. A
    compensation that nobody has called for can be dispatched, and nothing else."""
    if operation is TaskOperation.UNDO:
        return frozenset({Code.HIDDEN})
    return frozenset(
        code
        for code, status in STATUS_OF_CODE.items()
        if code != Code.HIDDEN and (operation, status) in table
    )


def markdown() -> str:
    """The tables as `docs/state-machines.md` shows them: a row per operation, a column per status
    from which it is allowed, the cell the status after it."""
    lines = [
        "# State machines",
        "",
        "Printed by `python -m orchestrator.domain.transitions`; a test compares this page with",
        "the code. An empty cell is forbidden: `evolve` raises `IllegalTransition`; an input that",
        "would cause it (late, doubled or contradictory) is ignored before. What workers write",
        "(task attempt) is held against its table by the simulation, with every write.",
    ]
    for machine in MACHINES:
        columns = [s for s in machine.statuses if any(s == source for _, source in machine.table)]
        lines += ["", f"## {machine.name}", "", f"Written by: {machine.written}.", ""]
        lines.append("| operation | " + " | ".join(f"from {s}" for s in columns) + " |")
        lines.append("|---" * (len(columns) + 1) + "|")
        for operation in machine.operations:
            cells = [machine.table.get((operation, s), "") for s in columns]
            if any(cells):
                lines.append(f"| {operation} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(markdown())
