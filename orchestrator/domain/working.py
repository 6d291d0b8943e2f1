"""An execution's state, thawed: what `evolve` changes in place and freezes again.

A commit of many events would copy the packed statuses once per event; here they are copied once.
Only `evolve` changes it, through `move` and `move_items`, which ask the transition table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from orchestrator.domain.payload import Payload
from orchestrator.domain.state import ExecutionState, FailureRecord, MapState
from orchestrator.domain.status import SETTLED_CODES, STATUS_OF_CODE, Code, ExecutionStatus
from orchestrator.domain.taken import mark_of
from orchestrator.domain.transitions import ITEM, IllegalTransition, TaskOperation, codes_from

ITEM_FROM: Final = {operation: codes_from(ITEM, operation) for operation in TaskOperation}
"""Per operation, the codes of an item from which it is allowed."""


class WorkingState:
    """An execution's state while events are applied to it. Fields as in `ExecutionState`; `codes`
    is its `tasks`. Read freely; change only by `apply`."""

    __slots__ = (
        "accepted_at",
        "codes",
        "consumed",
        "deadline_at",
        "deadlines",
        "ended_at",
        "ending",
        "failure",
        "hidden",
        "maps",
        "output",
        "seq",
        "signals",
        "started_at",
        "status",
        "taken",
        "terminated",
        "undo",
        "waits",
    )

    def __init__(self, state: ExecutionState) -> None:
        self.status: ExecutionStatus = state.status
        self.codes: bytearray = bytearray(state.tasks)
        self.maps: dict[int, MapState] = dict(state.maps)
        self.waits: dict[int, int] = dict(state.waits)
        self.signals: dict[str, tuple[str, ...]] = dict(state.signals)
        self.consumed: dict[int, str] = dict(state.consumed)
        self.taken: dict[tuple[int, int], str] = dict(state.taken)
        self.deadlines: dict[int, int] = dict(state.deadlines)
        self.failure: FailureRecord | None = state.failure
        self.output: Payload | None = state.output
        self.accepted_at: int = state.accepted_at
        self.started_at: int | None = state.started_at
        self.ended_at: int | None = state.ended_at
        self.deadline_at: int | None = state.deadline_at
        self.hidden: int = state.hidden
        self.undo: list[int] = list(state.undo)
        self.ending: ExecutionStatus | None = state.ending
        self.terminated: bool = state.terminated
        self.seq: int = state.seq

    def freeze(self) -> ExecutionState:
        """The state so far; the fold may go on."""
        return ExecutionState(
            status=self.status,
            tasks=bytes(self.codes),
            maps=dict(self.maps),
            waits=dict(self.waits),
            signals=dict(self.signals),
            consumed=dict(self.consumed),
            taken=dict(self.taken),
            deadlines=dict(self.deadlines),
            failure=self.failure,
            output=self.output,
            accepted_at=self.accepted_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            deadline_at=self.deadline_at,
            hidden=self.hidden,
            undo=tuple(self.undo),
            ending=self.ending,
            terminated=self.terminated,
            seq=self.seq,
        )

    def knows_signal(self, id: str) -> bool:
        """Whether this signal was taken in before: it is buffered, or a task or item has it."""
        buffered = any(id in ids for ids in self.signals.values())
        return buffered or id in self.consumed.values() or mark_of(id) in self.taken.values()

    def set_deadline(self, task: int, due_at: int | None) -> None:
        """From now on `task` has this deadline; None: none, or the one it has."""
        if due_at is not None:
            self.deadlines[task] = due_at

    def unsettled(self) -> int:
        """Number of tasks that may still move by themselves."""
        count = self.codes.count
        return count(Code.PENDING) + count(Code.QUEUED) + count(Code.WAITING)

    def move(self, task: int, code: int, allowed: frozenset[int], operation: TaskOperation) -> int:
        """Set a task's code if the table allows it; the code before. With what has settled goes its
        deadline. Raises `IllegalTransition`."""
        before = self.codes[task] if 0 <= task < len(self.codes) else 0
        if before not in allowed:
            status = STATUS_OF_CODE[before].value if before else "nowhere"
            raise IllegalTransition(operation, status, f"task {task}")
        self.codes[task] = code
        if self.deadlines and code in SETTLED_CODES:
            self.deadlines.pop(task, None)
        return before

    def move_items(
        self, task: int, items: Iterable[int], code: int, operation: TaskOperation
    ) -> MapState:
        """The map's state with these items at `code`. Raises `IllegalTransition`."""
        state = self.waiting_map(task, operation)
        codes, allowed = bytearray(state.items), ITEM_FROM[operation]
        for item in items:
            before = codes[item] if 0 <= item < len(codes) else 0
            if before not in allowed:
                status = STATUS_OF_CODE[before].value if before else "nowhere"
                raise IllegalTransition(operation, status, f"task {task} item {item}")
            codes[item] = code
        return replace(state, items=bytes(codes))

    def waiting_map(self, task: int, operation: TaskOperation) -> MapState:
        """The state of a map that waits for its items. Raises `IllegalTransition`."""
        state = self.maps.get(task)
        if state is None or self.codes[task] != Code.WAITING:
            raise IllegalTransition(operation, "a task that is no waiting map", f"task {task}")
        return state
