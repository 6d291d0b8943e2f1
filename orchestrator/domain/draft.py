"""A decision in the making: events so far, the state they lead to, and what turned out missing.

Used by `decide` and its helpers only. Events are applied to the fold as they are emitted, so every
rule sees the state that the rules before it produced, and the final state is the fold of the events
by construction.
"""

from __future__ import annotations

from orchestrator.domain import events as ev
from orchestrator.domain.evolve import Fold
from orchestrator.domain.failure import Failure
from orchestrator.domain.inputs import Facts, Needs
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.state import ExecutionState, FailureRecord, MapState
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.workflow import HANDLERS, OnFailure, Workflow


class Draft:
    """See the module. `changed`: tasks settled since their successors were last looked at; `ready`:
    tasks to dispatch at the end; `maps`: maps whose items moved."""

    def __init__(self, workflow: Workflow, state: ExecutionState, facts: Facts, now: int) -> None:
        self.workflow = workflow
        self.facts = facts
        self.now = now
        self.fold = Fold(state)
        self.events: list[ev.Event] = []
        self.changed: list[int] = []
        self.ready: set[int] = set()
        self.maps: set[int] = set()
        self.stop = False  # fail-fast has begun and nothing was cancelled yet
        self.outputs: dict[int, Json] = {}
        self.items: dict[int, list[Json]] = {}
        self.failures: dict[int, Failure] = {}
        self.signalled: dict[int, str] = {}
        self.signalled_items: dict[tuple[int, int], str] = {}
        self.items_listen = True  # whether map items may take signals in this decision
        self.missing: set[str] = set()
        self.missing_signals: set[str] = set()
        self.missing_input = False
        self._skips: list[int] = []
        self._skips_condition = False

    def emit(self, event: ev.Event) -> None:
        """Append and apply."""
        self.flush()
        self.fold.apply(event)
        self.events.append(event)

    def skip(self, task: int, *, condition: bool) -> None:
        """Skip a task. Neighbouring skips of one reason become one event: a long chain that falls
        away is one line of history."""
        if condition != self._skips_condition:
            self.flush()
            self._skips_condition = condition
        self.fold.apply(ev.TasksSkipped(at=self.now, tasks=(task,), condition=condition))
        self._skips.append(task)
        self.changed.append(task)

    def flush(self) -> None:
        """Write out the skips that were held back to be merged."""
        if self._skips:
            self.events.append(
                ev.TasksSkipped(
                    at=self.now, tasks=tuple(self._skips), condition=self._skips_condition
                )
            )
            self._skips = []

    def complete(self, task: int, output: Json) -> None:
        """A task ends without a worker; the engine stores `output`."""
        self.emit(ev.TaskCompleted(at=self.now, task=task, undo=self.workflow.undo.get(task)))
        self.outputs[task] = output
        self.changed.append(task)

    def fail(
        self,
        task: int,
        failure: Failure,
        *,
        index: int | None = None,
        attempt: int = 0,
        accepted: bool = False,
    ) -> None:
        """A task fails without a worker's saying so; the engine stores `failure`. `accepted`: an
        operator has decided about it already."""
        failure = failure.bounded()
        self.failures[task] = failure
        self.fail_recorded(task, failure, attempt=attempt, index=index, accepted=accepted)

    def fail_item(self, task: int, state: MapState, failure: Failure) -> None:
        """A map fails because of its items. Where an operator has let the execution go on without
        as many, nobody has to decide again: their letters may all be put away, and the execution
        would hold for ever."""
        assert state.failure is not None
        known = state.failed <= state.accepted
        self.fail(task, failure, index=state.failure.index, accepted=known)

    def fail_recorded(
        self,
        task: int,
        failure: Failure,
        *,
        attempt: int,
        index: int | None = None,
        accepted: bool = False,
    ) -> None:
        """A task fails, and its document says so already."""
        spec = self.workflow.tasks[task]
        record = FailureRecord(failure=failure, task=spec.id, index=index)
        accepted = self.holding and (spec.continue_on_error or accepted)
        self.emit(
            ev.TaskFailed(
                at=self.now, task=task, failure=record, attempt=attempt, accepted=accepted
            )
        )
        self.changed.append(task)
        if not spec.continue_on_error and (accepted or not self.holding):
            self.note(record)

    def note(self, record: FailureRecord) -> None:
        """The execution will end FAILED because of this, unless it does so already, or is being
        undone anyhow."""
        if self.fold.failure is None and not self.compensating:
            self.emit(ev.FailureNoted(at=self.now, failure=record))
            self.stop = self.workflow.on_failure is OnFailure.FAIL_FAST

    def cancel(self, tasks: list[int], reason: str) -> None:
        """Tasks that will not run, or whose result no longer counts."""
        if tasks:
            self.emit(ev.TasksCancelled(at=self.now, tasks=tuple(tasks), reason=reason))
            self.changed.extend(tasks)

    def stopped(self, task: int) -> bool:
        """Whether fail-fast keeps this task from starting anything: all but handlers. So does a
        cancel that waits for what is in flight."""
        return self.compensating or (
            self.fold.failure is not None
            and self.workflow.on_failure is OnFailure.FAIL_FAST
            and self.workflow.tasks[task].run_when not in HANDLERS
        )

    @property
    def holding(self) -> bool:
        """Whether a failed task waits for an operator's decision."""
        return self.workflow.on_failure is OnFailure.HOLD

    @property
    def reason(self) -> str:
        """Why a task is cancelled now, other than by the deadline."""
        failing = self.fold.failure is not None and not self.compensating
        return "failFast" if failing else "cancelled"

    @property
    def compensating(self) -> bool:
        """Whether what completed is being undone, or will be when what is in flight has ended."""
        return self.fold.status is ExecutionStatus.COMPENSATING

    def needs(self) -> Needs:
        """What was missing so far."""
        return Needs(frozenset(self.missing), self.missing_input, frozenset(self.missing_signals))
