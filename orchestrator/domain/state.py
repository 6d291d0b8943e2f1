"""The state of one execution, as `evolve` folds it from events and the store keeps it.

Layout in the `execution` document: `status`, `seq`, `tasks` (one character per task, definition
order), `maps` (a count per map task; the items' characters are in `map` chunk documents), `waits`,
`signals`, `consumed`, `taken`, `deadlines`, `failure`, `output`, times, and what compensation
needs. Everything else in that document (`workflow`, `version`, `input`, `tags`, …) is written at
submission and never changes: see `engine/aggregate.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.domain.failure import Failure
from orchestrator.domain.payload import Payload
from orchestrator.domain.status import ExecutionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRecord:
    """The failure that decides the execution's fate: the first one that counted."""

    failure: Failure
    task: str = ""  # empty: the execution itself (timeout, output expression)
    index: int | None = None  # map item


@dataclass(frozen=True, slots=True, kw_only=True)
class MapState:
    """Progress of one map task. `items` holds one status code per item (the codes of
    `status.Code`); the counts are derived from it and kept so that the execution document can
    show progress without the chunks. `items` is empty when the chunks were not loaded: nothing
    may happen to such a map then."""

    items: bytes
    count: int  # number of items
    queued: int = 0  # dispatched, not settled
    completed: int = 0
    failed: int = 0  # dead-lettered
    accepted: int = 0  # of those, how many an operator let a holding execution go on without
    cancelled: int = 0
    failure: FailureRecord | None = None  # the first failed item; becomes the map's own cause


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionState:
    """All that `decide` reads of an execution. Times are epoch milliseconds."""

    status: ExecutionStatus
    tasks: bytes  # status.Code per task, in definition order
    maps: Mapping[int, MapState] = field(default_factory=dict[int, MapState])
    waits: Mapping[int, int] = field(default_factory=dict[int, int])  # WAITING task -> due time
    signals: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Signals that no task has taken: name -> ids, oldest first. No name without ids."""
    consumed: Mapping[int, str] = field(default_factory=dict[int, str])
    """Signal task -> the signal that it took."""
    taken: Mapping[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    """(map task, item) -> mark of the signal that it took, see `taken.mark_of`."""
    deadlines: Mapping[int, int] = field(default_factory=dict[int, int])
    """QUEUED or WAITING task -> when it fails if it has not ended. Only those that have one."""
    failure: FailureRecord | None = None
    output: Payload | None = None
    accepted_at: int
    started_at: int | None = None
    ended_at: int | None = None
    deadline_at: int | None = None  # of the whole execution
    hidden: int = 0  # how many of `tasks`, at their end, are compensations
    undo: tuple[int, ...] = ()
    """Compensations of the tasks that completed, by position, in order of completion."""
    ending: ExecutionStatus | None = None
    """How it ends (FAILED, CANCELLED) once it has compensated; None: it never began to."""
    terminated: bool = False  # an operator ended it without waiting for anything
    seq: int = 0  # of the last `events` document

    @property
    def visible(self) -> bytes:
        """The codes of the tasks that the definition names."""
        return self.tasks[: len(self.tasks) - self.hidden]
