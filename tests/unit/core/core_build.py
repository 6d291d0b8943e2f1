"""Workflows written short, and an executor that plays workers, queue and engine in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.domain import events as ev
from orchestrator.domain.codec import event_from_doc, event_to_doc, state_from_doc, state_to_doc
from orchestrator.domain.codec_state import chunks_of
from orchestrator.domain.compensating import gives_back
from orchestrator.domain.deadlines import overdue
from orchestrator.domain.decide import Decision, decide
from orchestrator.domain.effects import messages_for, next_wake
from orchestrator.domain.evolve import accepted, fold
from orchestrator.domain.expressions import Expression, Template
from orchestrator.domain.failure import Failure
from orchestrator.domain.inputs import (
    Accept,
    Facts,
    Input,
    Lost,
    Overdue,
    Override,
    Retry,
    Start,
    TaskResult,
    TimerDue,
)
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.messages import MessageType
from orchestrator.domain.state import ExecutionState
from orchestrator.domain.status import SETTLED_CODES, TERMINAL_EXECUTION, Code, ExecutionStatus
from orchestrator.domain.workflow import (
    UNDO_SUFFIX,
    Jitter,
    OnFailure,
    RetryPolicy,
    RunWhen,
    TaskSpec,
    TaskType,
    Workflow,
)

RETRY = RetryPolicy(
    max_attempts=3,
    initial_interval_ms=1000,
    backoff_coefficient=2.0,
    max_interval_ms=60_000,
    jitter=Jitter.NONE,
)

Raw = dict[str, Any]


def task(id: str, *needs: str, **fields: Any) -> Raw:
    """One task: `compensate` (a flag), `run_when`, `when` (source), `items`, `until` (JSON),
    `type`, … as in TaskSpec. With `items` it is a map, with `duration_ms` or `until` a wait."""
    return {"id": id, "needs": needs, **fields}


def workflow(
    *tasks: Raw, on_failure: str = "failFast", timeout_ms: int | None = None, output: Json = None
) -> Workflow:
    """Compile without validation."""
    index = {raw["id"]: position for position, raw in enumerate(tasks)}
    plain = [{key: raw[key] for key in raw if key != "compensate"} for raw in tasks]
    undone = [position for position, raw in enumerate(tasks) if raw.get("compensate")]
    hidden = [_spec(task(plain[of]["id"] + UNDO_SUFFIX, undoes=of), {}) for of in undone]
    specs = (*(_spec(raw, index) for raw in plain), *hidden)
    index |= {spec.id: len(tasks) + number for number, spec in enumerate(hidden)}
    successors: list[list[int]] = [[] for _ in specs]
    for position, spec in enumerate(specs):
        for need in spec.needs:
            successors[need].append(position)
    return Workflow(
        name="test",
        tasks=specs,
        index=index,
        successors=tuple(tuple(s) for s in successors),
        on_failure=OnFailure(on_failure),
        timeout_ms=timeout_ms,
        output=None if output is None else Template.compile(output),
        undo={of: len(tasks) + number for number, of in enumerate(undone)},
    )


def _spec(raw: Raw, index: dict[str, int]) -> TaskSpec:
    fields = dict(raw)
    needs = tuple(index[need] for need in fields.pop("needs"))
    kind = TaskType.ACTIVITY
    if "items" in fields:
        kind = TaskType.MAP
        fields["items"] = Template.compile(fields["items"])
    elif "duration_ms" in fields or "until" in fields:
        kind = TaskType.WAIT
        if "until" in fields:
            fields["until"] = Template.compile(fields["until"])
    kind = TaskType(fields.pop("type", kind))
    run_when = RunWhen(fields.pop("run_when", "allSucceeded"))
    if "when" in fields:
        fields["when"] = Expression.compile(fields["when"])
    return TaskSpec(
        type=kind, needs=needs, run_when=run_when, timeout_ms=30_000, retry=RETRY, **fields
    )


BOOM = Failure(type="Boom", message="boom")


def done(task: int, item: int | None = None) -> TaskResult:
    return TaskResult(task=task, item=item, outcome="completed", attempt=1)


def failed(task: int, item: int | None = None, failure: Failure = BOOM) -> TaskResult:
    return TaskResult(task=task, item=item, outcome="failed", failure=failure, attempt=3)


def given_back(task: int, item: int | None = None) -> TaskResult:
    return TaskResult(task=task, item=item, outcome="cancelled")


Key = tuple[int, int | None]
Work = Callable[[Key], Json | Failure]
"""The fixed result of a task or item: an output, or a Failure."""


class Sim:
    """An execution driven by hand or to its end, with every promise of `decide` checked after each
    step."""

    def __init__(
        self, workflow: Workflow, *, input: Json = None, work: Work = lambda key: None
    ) -> None:
        self.workflow = workflow
        self.input = input
        self.work = work
        self.now = 1_000_000
        first = ev.ExecutionAccepted(at=self.now, tasks=workflow.visible, hidden=len(workflow.undo))
        self.history: list[ev.Event] = [first]
        self.state: ExecutionState = accepted(first)
        self.facts: dict[str, dict[str, Json]] = {}
        self.items: dict[int, list[Json]] = {}
        self.flight: set[Key] = set()
        self.answered: list[TaskResult] = []
        self.sent: list[Key] = []
        self.reopened = False

    def start(self) -> Sim:
        self.step(Start())
        return self

    def step(self, *inputs: Input) -> Decision:
        """Decide on a batch as the engine does, then check."""
        before = self.state
        decision = self.decide(inputs)
        operator = any(isinstance(given, Retry | Override | Accept) for given in inputs)
        self.reopened = self.reopened or operator
        self._check(before, decision, operator=operator)
        self.state = decision.state
        self.history.extend(decision.events)
        for position, output in decision.outputs.items():
            self._store(position, output, None)
        for position, failure in decision.failures.items():
            self._store(position, None, failure)
        self.items.update(decision.items)
        for out in messages_for(self.workflow, "t", "x", decision.events, self.state):
            if out.message.type is MessageType.RUN_TASK:
                key = (self.workflow.index[out.message.task], out.message.item)
                self.flight.add(key)
                self.sent.append(key)
        return decision

    def decide(self, inputs: Sequence[Input]) -> Decision:
        """With no fact at first; then with exactly what was asked for."""
        tasks: dict[str, dict[str, Json]] = {}
        loaded = False
        while True:
            facts = Facts(input=self.input if loaded else None, input_loaded=loaded, tasks=tasks)
            decision = decide(self.workflow, self.state, inputs, facts, self.now)
            if not decision.needs:
                return decision
            assert decision.needs.outputs - tasks.keys() or (decision.needs.input and not loaded)
            loaded = loaded or decision.needs.input
            tasks |= {id: self._fact(id, inputs) for id in decision.needs.outputs}

    def _fact(self, id: str, inputs: Sequence[Input]) -> dict[str, Json]:
        position = self.workflow.index[id]
        if id not in self.facts:
            result = self.result((position, None))
            failure = result if isinstance(result, Failure) else None
            self._store(position, None if failure else result, failure)
        return self.facts[id]

    def _store(self, position: int, output: Json, failure: Failure | None) -> None:
        error = None if failure is None else failure.to_doc()
        self.facts[self.workflow.tasks[position].id] = {"output": output, "error": error}

    def result(self, key: Key) -> Json | Failure:
        """What the worker finds; the gathering of a map always works."""
        position, item = key
        if item is None and self.workflow.tasks[position].type is TaskType.MAP:
            return [self.work((position, at)) for at in range(len(self.items[position]))]
        return self.work(key)

    def answer(self, key: Key) -> TaskResult:
        """The worker's result for a dispatched key; under fail-fast it may give it back."""
        self.flight.discard(key)
        result = self.result(key)
        answer = failed(*key, failure=result) if isinstance(result, Failure) else done(*key)
        self.answered.append(answer)
        return answer

    def run(self, rng: random.Random, *, batch: int = 4, noise: bool = False) -> Sim:
        """Answer everything in flight in random order and batches until the execution ends."""
        if self.state.started_at is None:
            self.start()
        for _ in range(10_000):
            if self.state.status in TERMINAL_EXECUTION:
                return self
            waiting = sorted(
                self.flight, key=lambda key: (key[0], -1 if key[1] is None else key[1])
            )
            rng.shuffle(waiting)
            noisy = self._noise(rng) if noise else []
            inputs: list[Input] = [
                self._respond(key, rng) for key in waiting[: rng.randint(0, batch)]
            ]
            if noise and inputs:
                inputs.append(rng.choice(inputs))
            inputs += noisy
            rng.shuffle(inputs)
            waits = self.state.waits
            # The workers hang: what has a deadline meets it.
            hung = not inputs and self.state.deadlines and rng.random() < 0.2
            if hung or (not self.flight and waits):
                due = [*waits.values(), *self.state.deadlines.values()]
                self.now = max(self.now, min(due))
                inputs.append(TimerDue())
                inputs += self.late()
            self.now += rng.randint(0, 3)
            self.step(*inputs)
            if not inputs and not self.flight and not self.state.waits:
                break
        assert self.state.status in TERMINAL_EXECUTION, f"stuck: {self.state}"
        return self

    def late(self) -> list[Input]:
        """What the engine tells of tasks past their deadline, none of which has a result."""
        return [Overdue(task=task, attempt=1, cause=BOOM) for task in overdue(self.state, self.now)]

    def _respond(self, key: Key, rng: random.Random) -> TaskResult:
        stoppable = gives_back(self.workflow, self.state, key[0])
        if stoppable and rng.random() < 0.5:
            self.flight.discard(key)
            return given_back(*key)
        return self.answer(key)

    def _noise(self, rng: random.Random) -> list[Input]:
        """Doubled, late, premature-timer, unknown and lost inputs."""
        count = len(self.workflow.tasks)
        noise: list[Input] = [TimerDue(), Start(), done(count + 3), failed(-1), done(0, 7_000)]
        if self.answered:
            noise += rng.sample(self.answered, min(2, len(self.answered)))
            late = rng.choice(self.answered)
            noise.append(failed(late.task, late.item))  # contradicts, or repeats
        noise.append(Lost(tuple(range(count)), tuple((t, 0) for t in range(count))))
        # A lost task is still in flight: dispatching it again must change nothing.
        return [given for given in noise if not self._premature(given) and rng.random() < 0.3]

    def _premature(self, given: Input) -> bool:
        return isinstance(given, TaskResult) and (given.task, given.item) in self.flight

    def _check(self, before: ExecutionState, decision: Decision, *, operator: bool) -> None:
        after = decision.state
        assert fold(before, decision.events) == after
        assert [event_from_doc(event_to_doc(e)) for e in decision.events] == list(decision.events)
        chunks = {position: chunks_of(state) for position, state in after.maps.items()}
        assert state_from_doc(state_to_doc(after), chunks) == after
        if before.status in TERMINAL_EXECUTION and not operator:
            assert not decision.events
        for position, code in enumerate(before.tasks):
            settled = code in SETTLED_CODES and code != Code.HIDDEN
            if code == Code.COMPLETED or (settled and not operator):
                assert after.tasks[position] == code, "a settled task moved"
        moving = (Code.QUEUED, Code.WAITING)
        for position in after.deadlines:
            assert after.tasks[position] in moving, "a deadline of what is not in flight"
        wake = next_wake(after)
        if wake is not None and after.status is not ExecutionStatus.PAUSED:
            assert all(wake <= due for due in after.deadlines.values())
        elif after.status in TERMINAL_EXECUTION:
            assert not after.deadlines
        started = before
        for event in decision.events:
            self._check_needs(started, event)
            started = fold(started, (event,))

    def _check_needs(self, state: ExecutionState, event: ev.Event) -> None:
        """No task starts in any way before its needs have settled."""
        match event:
            case ev.TasksQueued():
                # So does a map: it gathers although one of its needs was taken up again.
                codes = state.tasks if self.reopened else b""
                starting = [t for t in event.tasks if not codes or codes[t] == Code.PENDING]
            case ev.TaskWaiting() | ev.MapStarted():
                starting = (event.task,)
            case ev.TaskCompleted() | ev.TaskFailed():
                # What ran when an operator took up one of its needs goes on.
                began = self.reopened and state.tasks[event.task] != Code.PENDING
                starting = () if began else (event.task,)
            case _:
                starting = ()
        for position in starting:
            for need in self.workflow.tasks[position].needs:
                assert state.tasks[need] in SETTLED_CODES

    def letters(self) -> str:
        return self.state.tasks.decode()

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.history if isinstance(event, kind)]

    def fate(self) -> tuple[Any, ...]:
        """What must not depend on the order of messages."""
        maps = {
            position: (state.count, state.completed)
            for position, state in self.state.maps.items()
            if self.state.tasks[position] == Code.COMPLETED
        }
        return (self.state.status, self.state.tasks, maps, self.state.output)
