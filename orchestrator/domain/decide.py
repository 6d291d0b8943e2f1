"""The heart: what happens next in an execution. Pure: no I/O, no clock, no random.

`decide` applies all inputs of a batch, then follows the consequences to a fixed point: tasks whose
needs have settled are skipped, failed, finished or dispatched, a failure stops what it must stop,
and when nothing can move any more the execution ends, or undoes what completed (`compensating`).
Because every commit goes to the fixed point, no stored state ever holds a task that could move but
was not looked at; so only the successors of what changed need a look, and a batch costs what it
touches, not what the workflow is.

Rules that the parts rely on:
- All inputs first, so that order within a batch cannot hide a join.
- Inputs that do not fit the state (doubled, late, unknown) are ignored without an event.
- Dispatch is decided last: what fail-fast stops in the same decision is never sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from orchestrator.domain import compensating
from orchestrator.domain import events as ev
from orchestrator.domain.applying import apply_inputs
from orchestrator.domain.draft import Draft
from orchestrator.domain.evaluation import Missing, Refused, evaluate, json_text, source_of
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.inputs import (
    Accept,
    Facts,
    Input,
    Lost,
    Needs,
    Override,
    Resume,
    Retry,
    Start,
)
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.payload import Payload
from orchestrator.domain.signalling import listens, serve_waiting
from orchestrator.domain.starting import advance_map, consider, dispatch
from orchestrator.domain.state import ExecutionState, FailureRecord
from orchestrator.domain.status import DEAD_CODES, TERMINAL_EXECUTION, Code, ExecutionStatus
from orchestrator.domain.workflow import HANDLERS, Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What `decide` found. `state` is the fold of `events` over the state it was given.

    If `needs` is truthy, ignore the rest: load what it names and decide again from the same state.
    Otherwise store, before or with the events: `outputs` and `failures` of tasks that ended without
    a worker (waits, empty maps, failing expressions, maps with a failed item), and `items`, the
    evaluated items of maps that start.
    """

    events: tuple[ev.Event, ...]
    state: ExecutionState
    needs: Needs = field(default_factory=Needs)
    outputs: Mapping[int, Json] = field(default_factory=dict[int, Json])
    items: Mapping[int, list[Json]] = field(default_factory=dict[int, list[Json]])
    failures: Mapping[int, Failure] = field(default_factory=dict[int, Failure])
    signalled: Mapping[int, str] = field(default_factory=dict[int, str])
    """Signal tasks that completed -> the signal whose payload is the output."""
    signalled_items: Mapping[tuple[int, int], str] = field(
        default_factory=dict[tuple[int, int], str]
    )
    """The same for map items, (task, item). Their documents may exist: see the engine."""

    @property
    def output(self) -> Payload | None:
        """The workflow's output if the execution completes now: JSON text inline, of any size up to
        the payload limit. See `with_output`."""
        last = self.events[-1] if self.events else None
        return last.output if isinstance(last, ev.ExecutionCompleted) else None

    def with_output(self, output: Payload) -> Decision:
        """The same decision with the output kept elsewhere (claim check), in event and state."""
        last = self.events[-1] if self.events else None
        if not isinstance(last, ev.ExecutionCompleted):
            raise ValueError("this decision does not complete the execution")
        return replace(
            self,
            events=(*self.events[:-1], replace(last, output=output)),
            state=replace(self.state, output=output),
        )


def decide(
    workflow: Workflow, state: ExecutionState, inputs: Sequence[Input], facts: Facts, now: int
) -> Decision:
    """The consequences of `inputs` at time `now` (epoch ms). Events carry `now` as their time.

    Any call looks at the execution's deadline; `TimerDue` looks at waits, too; `Lost` checks the
    whole graph again. No events: nothing to do. Never raises for an input; `IllegalTransition`
    would mean that `state` does not belong to `workflow`.
    """
    operator = any(isinstance(given, Retry | Override | Accept) for given in inputs)
    again = operator and (state.status is ExecutionStatus.FAILED or state.ending is not None)
    if state.status in TERMINAL_EXECUTION and not again:
        return Decision(events=(), state=state)
    draft = Draft(workflow, state, facts, now)
    apply_inputs(draft, inputs)
    if draft.fold.status in _ALIVE and _timed_out(draft):
        pass  # ended; paused ones, too
    elif draft.fold.status is ExecutionStatus.RUNNING:
        begins = state.status is ExecutionStatus.PENDING
        whole = (
            begins or operator or any(isinstance(given, Start | Lost | Resume) for given in inputs)
        )
        _settle(draft, range(len(workflow.tasks)) if whole else ())
        while serve_waiting(draft):  # items that were dispatched just now, for signals before that
            _settle(draft, ())
        held = draft.holding and Code.DEAD_LETTERED in draft.fold.codes
        if not (draft.fold.unsettled() or held):  # a task that lacks data is still PENDING
            _finish(draft)
    elif draft.compensating:
        compensating.compensate(draft)
    draft.flush()
    return Decision(
        events=tuple(draft.events),
        state=draft.fold.freeze() if draft.events else state,
        needs=draft.needs(),
        outputs=draft.outputs,
        items=draft.items,
        failures=draft.failures,
        signalled=draft.signalled,
        signalled_items=draft.signalled_items,
    )


_ALIVE: Final = frozenset({ExecutionStatus.RUNNING, ExecutionStatus.PAUSED})


def _settle(draft: Draft, also: Sequence[int]) -> None:
    """Follow the consequences to the fixed point, wave by wave (a join behind a wide wave is judged
    once, and a chain of any length needs no recursion), then dispatch. `also`: tasks to look at
    besides the successors of what changed."""
    codes, successors = draft.fold.codes, draft.workflow.successors
    maps: set[int] = set()
    wave = [task for task in also if codes[task] == Code.PENDING]
    if also:
        draft.maps.update(draft.fold.maps)
    while True:
        if draft.stop:
            _stop(draft)
        moved, draft.maps = draft.maps, set()
        maps |= moved
        for task in sorted(moved):
            advance_map(draft, task)
        if draft.stop:
            continue
        if draft.changed:
            changed, draft.changed = draft.changed, []
            behind = {task for done in changed for task in successors[done]}
            wave = sorted({*behind, *wave})
        if not wave:
            break
        wave = _consider_wave(draft, wave)
    dispatch(draft, maps)


def _consider_wave(draft: Draft, wave: list[int]) -> list[int]:
    """Look at each PENDING task of the wave; the rest of it if a failure stops the execution
    midway: most of that is cancelled then, and must not start before."""
    codes, ready = draft.fold.codes, draft.ready
    for position, task in enumerate(wave):
        if codes[task] == Code.PENDING and task not in ready:
            consider(draft, task)
            if draft.stop:
                return wave[position + 1 :]
    return []


def _stop(draft: Draft) -> None:
    """Fail-fast begins: cancel what has not started and what waits for time, but handlers. Maps go
    on until nothing of them is in flight."""
    draft.stop = False
    fold, tasks = draft.fold, draft.workflow.tasks
    victims = [
        task
        for task, code in enumerate(fold.codes)
        if (code == Code.PENDING or task in fold.waits or listens(code, tasks[task]))
        and tasks[task].run_when not in HANDLERS
    ]
    draft.cancel(victims, "failFast")
    draft.maps.update(task for task in fold.maps if fold.codes[task] == Code.WAITING)


def _timed_out(draft: Draft) -> bool:
    """End the execution if its deadline has passed. The first failure stays the one that counts."""
    fold = draft.fold
    if fold.deadline_at is None or draft.now < fold.deadline_at:
        return False
    allowed = (fold.deadline_at - (fold.started_at or fold.deadline_at)) / 1000
    failure = Failure(
        type=FailureType.EXECUTION_TIMEOUT,
        message=f"the execution did not end within {allowed:g} s",
        retryable=False,
        field="$.timeout",
    )
    draft.note(FailureRecord(failure=failure))
    unsettled = (Code.PENDING, Code.QUEUED, Code.WAITING)
    draft.cancel([t for t, code in enumerate(fold.codes) if code in unsettled], "executionTimeout")
    assert fold.failure is not None
    compensating.fail(draft, fold.failure)
    return True


def _finish(draft: Draft) -> None:
    """Every task has settled: fail if a failure counted, else evaluate the output and complete."""
    failure = draft.fold.failure
    if failure is None:
        try:
            failure = _left_dead(draft)
        except Missing:
            return
    if failure is None:
        try:
            output = _output(draft)
        except Missing:
            return
        except Refused as refusal:
            failure = FailureRecord(failure=refusal.failure.bounded())
        else:
            draft.emit(ev.ExecutionCompleted(at=draft.now, output=output))
            return
    compensating.fail(draft, failure)


def _left_dead(draft: Draft) -> FailureRecord | None:
    """The failure of a task that stayed dead although an operator reopened the execution for
    another one: it counts now. Raises `Missing`."""
    for task, code in enumerate(draft.fold.codes):
        spec = draft.workflow.tasks[task]
        if code not in DEAD_CODES or spec.continue_on_error:
            continue
        failure = draft.failures.get(task)
        if failure is None:
            fact = draft.facts.tasks.get(spec.id)
            if fact is None:
                draft.missing.add(spec.id)
                raise Missing
            error: Any = fact["error"]
            failure = Failure.from_doc(error or {"type": "FAILED", "message": "see the task"})
        return FailureRecord(failure=failure, task=spec.id)
    return None


def _output(draft: Draft) -> Payload | None:
    template = draft.workflow.output
    if template is None:
        return None
    value = evaluate(draft, template, "$.output")
    source, most = source_of(template), draft.facts.max_output
    text = json_text(value, FailureType.OUTPUT_NOT_JSON, "$.output", source, most)
    return Payload(text=text.decode(), size=len(text))
