"""Random workflows, failures, interleavings and cancels: what is undone, and when."""

from __future__ import annotations

import random
from typing import Any

from core_build import BOOM, Sim, task, workflow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.domain import events as ev
from orchestrator.domain.evolve import accepted, fold
from orchestrator.domain.inputs import Cancel
from orchestrator.domain.status import SETTLED_CODES, Code, ExecutionStatus
from orchestrator.domain.workflow import RunWhen, Workflow

CANCEL = Cancel(by="eve", reason="wrong order", compensate=True)


@st.composite
def workflows(draw: Any) -> Workflow:
    tasks = []
    for position in range(draw(st.integers(1, 9))):
        earlier = [f"t{p}" for p in range(position)]
        needs = draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)) if earlier else []
        fields: dict[str, Any] = {"compensate": draw(st.booleans())}
        if draw(st.integers(0, 4)) == 0:
            fields["run_when"] = draw(st.sampled_from([w.value for w in RunWhen]))
        fields["continue_on_error"] = draw(st.integers(0, 3)) == 0
        kind = draw(st.integers(0, 5))
        if kind == 0:
            fields["items"] = draw(st.sampled_from([[], [1], [1, 2, 3]]))
            fields["max_concurrency"] = draw(st.integers(0, 2))
        elif kind == 1:
            fields["duration_ms"] = draw(st.sampled_from([0, 10, 5000]))
        tasks.append(task(f"t{position}", *needs, **fields))
    return workflow(*tasks, on_failure=draw(st.sampled_from(["failFast", "continue"])))


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workflows(), st.integers(0, 2**32), st.booleans())
def test_all_that_completed_is_undone_exactly_once_in_reverse_order_after_all_has_settled(
    flow: Workflow, seed: int, cancel: bool
) -> None:
    def work(key: tuple[int, int | None]) -> Any:
        return BOOM if random.Random(f"{seed}{key}").random() < 0.2 else {"n": 1}

    rng = random.Random(seed)
    sim = Sim(flow, work=work).start()
    steps = rng.randint(0, 4)
    if cancel:
        for _ in range(steps):
            if sim.flight and sim.state.ended_at is None:
                sim.step(sim.answer(rng.choice(sorted(sim.flight, key=repr))))
        sim.step(CANCEL)
    sim.run(rng, noise=True)
    completed: list[int] = []
    states = accepted(sim.history[0])  # type: ignore[arg-type]
    order: list[int] = []
    for event in sim.history[1:]:
        if isinstance(event, ev.TaskCompleted) and flow.tasks[event.task].undoes is None:
            completed.append(event.task)
        if isinstance(event, ev.TasksQueued):
            undo = [t for t in event.tasks if flow.tasks[t].undoes is not None]
            if undo:
                assert len(event.tasks) == 1, "one by one"
                assert set(states.tasks) <= SETTLED_CODES, "all had settled"
                assert states.status is ExecutionStatus.COMPENSATING
            order += undo
        states = fold(states, (event,))
    expected = [flow.undo[t] for t in reversed(completed) if t in flow.undo]
    ended_well = sim.state.status is ExecutionStatus.COMPLETED
    cancelled_at_once = sim.state.status is ExecutionStatus.CANCELLED and sim.state.ending is None
    assert order == ([] if ended_well or cancelled_at_once else expected)
    if cancelled_at_once:
        assert expected == []
    untouched = {flow.undo[t] for t in flow.undo} - set(order)
    assert all(sim.state.tasks[t] == Code.HIDDEN for t in untouched)
