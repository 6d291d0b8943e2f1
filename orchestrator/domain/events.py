"""What happened to an execution: the history. Events are the only thing that changes state.

Times are epoch milliseconds. `tasks` are positions in the definition; the history API shows ids.
Wide events (`TasksQueued`, …) carry many tasks, so that a 1,000-wide fan-out is one event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.domain.events_compensation import CompensationReopened, CompensationStarted
from orchestrator.domain.events_signals import (
    MapItemSignalled,
    SignalAwaited,
    SignalRaised,
    SignalReceived,
)
from orchestrator.domain.payload import Payload
from orchestrator.domain.state import FailureRecord

Deadlines: TypeAlias = tuple[tuple[int, int], ...]
"""(task, when it fails if it has not ended) of those tasks of an event that have a deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionAccepted:
    """Submission stored the execution. Always the first event."""

    at: int
    tasks: int  # number of tasks in the definition
    hidden: int = 0  # number of their compensations


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksCopied:
    """A replay begins with these results of its origin; they are not run again."""

    at: int
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionStarted:
    """An orchestrator took it up."""

    at: int
    deadline_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPaused:
    """Nothing new is dispatched until it is resumed; what runs ends, and its results count."""

    at: int
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionResumed:
    """It goes on where it was."""

    at: int
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionCancelled:
    """The end at an operator's wish: every task that had not settled is CANCELLED with it.
    `terminated`: whatever it was doing, also compensating. `by` is empty after a cancel that
    compensated first: `CompensationStarted` has it."""

    at: int
    by: str
    reason: str = ""
    terminated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksQueued:
    """Tasks whose needs are met were dispatched to the workers (a map: its gathering)."""

    at: int
    tasks: tuple[int, ...]
    deadlines: Deadlines = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksRequeued:
    """Recovery sent tasks again whose message was lost or whose lease expired: no state change."""

    at: int
    tasks: tuple[int, ...] = ()
    items: tuple[tuple[int, int], ...] = ()  # (map task, item index)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWaiting:
    """A `wait` task waits until `due_at`."""

    at: int
    task: int
    due_at: int
    deadline_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksSkipped:
    """Tasks that will not run: `condition` (own `when` is false), else `upstream` (`runWhen`)."""

    at: int
    tasks: tuple[int, ...]
    condition: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCompleted:
    """A task's result is stored in its task document."""

    at: int
    task: int
    attempt: int = 0  # 0: it never reached a worker (wait, empty map)
    started_at: int | None = None  # of the successful attempt
    signal: str = ""  # signal task: the signal that it took; its payload is the output
    undo: int | None = None  # position of the compensation that this task has


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed:
    """A task is out of attempts, or its failure cannot be retried: DEAD_LETTERED."""

    at: int
    task: int
    failure: FailureRecord
    attempt: int = 0  # 0: no worker had begun it
    accepted: bool = False  # under `hold`: nobody has to decide, or not again


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksCancelled:
    """Tasks that will not run or whose result no longer counts."""

    at: int
    tasks: tuple[int, ...]
    reason: str  # "failFast" | "executionTimeout" | "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapStarted:
    """A map's items were evaluated and stored; the task is WAITING for them."""

    at: int
    task: int
    count: int
    deadline_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MapItemsQueued:
    """Items start, start+1, … start+count-1 were dispatched."""

    at: int
    task: int
    start: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapItemsCompleted:
    """Results of these items are stored in their task documents."""

    at: int
    task: int
    items: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapItemFailed:
    """An item is out of attempts. No further item of this map is dispatched."""

    at: int
    task: int
    item: int
    failure: FailureRecord
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MapItemsCancelled:
    """A worker gave these items back unrun because the execution is failing."""

    at: int
    task: int
    items: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureNoted:
    """The execution will end FAILED because of this; under failFast nothing new starts but
    handlers."""

    at: int
    failure: FailureRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionCompleted:
    """All tasks settled and the output expression was evaluated."""

    at: int
    output: Payload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFailed:
    """The end after a failure that counted."""

    at: int
    failure: FailureRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionReopened:
    """An operator took up something that had failed: FAILED becomes RUNNING, with a whole new time
    limit. The failure no longer counts; it stands in the history."""

    at: int
    by: str
    reason: str = ""
    deadline_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksReopened:
    """An operator retries what was dead-lettered: dispatched again, with a new deadline. A map
    waits for its items again. A failure that stopped the execution no longer does."""

    at: int
    by: str
    reason: str = ""
    tasks: tuple[int, ...] = ()
    items: tuple[tuple[int, int], ...] = ()  # (map task, item index)
    deadlines: Deadlines = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksReset:
    """Tasks that are judged again, because an operator took up what they depended on or what had
    stopped them. A map that had begun goes on with the items that had not completed."""

    at: int
    tasks: tuple[int, ...]
    deadlines: Deadlines = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOverridden:
    """An operator gave the output that a task (or item) had failed to give: COMPLETED. A map that
    waits for its items again because of that has a new deadline."""

    at: int
    task: int
    item: int | None = None
    by: str
    reason: str = ""
    deadline_at: int | None = None
    undo: int | None = None  # position of the compensation that this task has


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureAccepted:
    """An operator let a holding execution go on without this task; it will end FAILED."""

    at: int
    task: int
    by: str
    reason: str = ""
    failed: int = 0  # items of a map that had failed; 0 also in histories of older releases


Event: TypeAlias = (
    ExecutionAccepted
    | ExecutionStarted
    | ExecutionPaused
    | ExecutionResumed
    | ExecutionCancelled
    | TasksQueued
    | TasksRequeued
    | TaskWaiting
    | TasksSkipped
    | TaskCompleted
    | TaskFailed
    | TasksCancelled
    | MapStarted
    | MapItemsQueued
    | MapItemsCompleted
    | MapItemFailed
    | MapItemsCancelled
    | FailureNoted
    | ExecutionCompleted
    | ExecutionFailed
    | TasksCopied
    | ExecutionReopened
    | TasksReopened
    | TasksReset
    | TaskOverridden
    | FailureAccepted
    | SignalReceived
    | SignalAwaited
    | SignalRaised
    | MapItemSignalled
    | CompensationStarted
    | CompensationReopened
)
