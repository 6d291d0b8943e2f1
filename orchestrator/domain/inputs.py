"""What may reach `decide`: made by the engine from messages and stored documents.

A message only says "look"; the engine reads the task document and turns it into one of these, so
that a forged or late message cannot say what did not happen. `decide` ignores what does not fit the
state (doubled, late, unknown): there is no error to raise at the sender's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from orchestrator.domain.failure import Failure
from orchestrator.domain.jsontypes import Json


@dataclass(frozen=True, slots=True)
class Start:
    """The execution was submitted; take it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """A worker's final result for a task (`item` None) or a map item. `failure` is set exactly for
    `failed`; `cancelled`: given back unrun because the execution is failing."""

    task: int
    item: int | None = None
    outcome: Literal["completed", "failed", "cancelled"]
    failure: Failure | None = None
    attempt: int = 0
    started_at: int | None = None  # of the last attempt

    def __post_init__(self) -> None:
        if (self.failure is not None) != (self.outcome == "failed"):
            raise ValueError(f"outcome {self.outcome} with failure {self.failure!r}")


@dataclass(frozen=True, slots=True)
class TimerDue:
    """Some wait, or the execution's deadline, may be due. (Of a task's tells `Overdue`.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalArrived:
    """A signal is stored. `id`: the key of its document; `received_at` (epoch ms) orders those of
    one batch."""

    id: str
    name: str
    received_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalHandedOver:
    """A worker has handed a signal to the orchestration of a `durable` task."""

    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """A task's deadline has passed, and its document holds no result. `attempt`: how many attempts
    it says have begun; `cause`: how the last one that ended failed."""

    task: int
    attempt: int = 0
    cause: Failure | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """Recovery found no message and no lease for these dispatched tasks and (map task, item)s:
    dispatch them again."""

    tasks: tuple[int, ...] = ()
    items: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """An operator wants it to stand still. No event if it does already."""

    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """An operator lets it go on. No event unless it is paused."""

    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """An operator ends it: now, or (`compensate`) when what is in flight has ended and what had
    completed is undone."""

    by: str
    reason: str = ""
    compensate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminate:
    """An operator ends it now, whatever it is doing, also compensating."""

    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """An operator takes up what failed. `tasks`, `items`: dead-lettered by a worker, dispatched
    again; `judged`: tasks that failed without one, judged again. Whatever was cancelled by a
    failure, and what was skipped behind any of these, is judged again too; with `cancelled` that
    alone is a reason to reopen (after a timeout nothing is dead). No event for what does not fit
    (completed, cancelled by an operator, retried already)."""

    by: str
    reason: str = ""
    tasks: tuple[int, ...] = ()
    items: tuple[tuple[int, int], ...] = ()
    judged: tuple[int, ...] = ()
    cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """An operator gives the output that a dead-lettered task or item failed to give; the engine
    stores it."""

    task: int
    item: int | None = None
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """An operator lets an execution that holds for this task go on without it."""

    task: int
    failure: Failure
    by: str
    reason: str = ""


Input: TypeAlias = (
    Start
    | TaskResult
    | TimerDue
    | SignalArrived
    | SignalHandedOver
    | Overdue
    | Lost
    | Pause
    | Resume
    | Cancel
    | Terminate
    | Retry
    | Override
    | Accept
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The data that expressions of an execution may read.

    `tasks`: task id -> `{"output", "status", "error"}`, needed for COMPLETED and DEAD_LETTERED
    tasks only (the others have no output and are filled in). `execution`: `{"id", "tags", …}`;
    `startedAt` is filled in. `signals`: id -> payload, of signals that tasks take now.
    `input_loaded` False: `input` is not the execution's input yet. `max_output`: bytes of JSON that
    the workflow's output may have (None: what the platform stores).
    """

    input: Json = None
    input_loaded: bool = True
    tasks: Mapping[str, Mapping[str, Json]] = field(default_factory=dict[str, Mapping[str, Json]])
    execution: Mapping[str, Json] = field(default_factory=dict[str, Json])
    signals: Mapping[str, Json] = field(default_factory=dict[str, Json])
    max_output: int | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """What `decide` lacked: load it and call again from the same state. Truthy if anything."""

    outputs: frozenset[str] = frozenset()  # ids of tasks whose `Facts.tasks` entry is missing
    input: bool = False  # the execution's input
    signals: frozenset[str] = frozenset()  # ids of signals that tasks took in this decision

    def __bool__(self) -> bool:
        return self.input or bool(self.outputs) or bool(self.signals)
