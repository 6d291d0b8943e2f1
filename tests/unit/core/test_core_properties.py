"""Random DAGs, outcomes, interleavings and noise: the promises that hold for every execution."""

from __future__ import annotations

import random
from typing import Any

import pytest
from core_build import BOOM, Sim, done, failed, task, workflow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.domain.events import TaskFailed
from orchestrator.domain.evolve import fold
from orchestrator.domain.inputs import Lost, Start, TimerDue
from orchestrator.domain.status import TERMINAL_EXECUTION
from orchestrator.domain.workflow import RunWhen, Workflow

CONDITIONS = ["true", "false", "input.yes", "input.no", "input.nothing == 1"]


@st.composite
def workflows(draw: Any, on_failure: st.SearchStrategy[str], *, late: bool = False) -> Workflow:
    tasks = []
    for position in range(draw(st.integers(1, 12))):
        earlier = [f"t{p}" for p in range(position)]
        needs = draw(st.lists(st.sampled_from(earlier), max_size=3, unique=True)) if earlier else []
        fields: dict[str, Any] = {"run_when": draw(st.sampled_from([w.value for w in RunWhen]))}
        if draw(st.booleans()):
            fields["run_when"] = "allSucceeded"
        conditions = CONDITIONS + [f"tasks.{need}.status == 'COMPLETED'" for need in needs]
        conditions += [f"tasks.{need}.output == {{'n': 1}}" for need in needs]
        if draw(st.integers(0, 3)) == 0:
            fields["when"] = draw(st.sampled_from(conditions))
        fields["continue_on_error"] = draw(st.booleans())
        kind = draw(st.integers(0, 5))
        if kind == 0:
            fields["items"] = draw(
                st.sampled_from([[], [1], [1, 2, 3], "${input.list}", "${input.yes}"])
            )
            fields["max_concurrency"] = draw(st.integers(0, 2))
        elif kind == 1:
            fields["duration_ms"] = draw(st.sampled_from([0, 10, 5000]))
        if late and draw(st.booleans()):
            fields["deadline_ms"] = draw(st.sampled_from([1, 20, 4000, 9000]))
        tasks.append(task(f"t{position}", *needs, **fields))
    return workflow(*tasks, on_failure=draw(on_failure), output="${input.list}")


INPUT = {"yes": True, "no": False, "list": ["a", "b", "c", "d"]}
slow = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def make(flow: Workflow, seed: int, failing: bool = True) -> Sim:
    """Outcomes depend on the seed and the key alone, never on the order of asking."""

    def work(key: tuple[int, int | None]) -> Any:
        rng = random.Random(f"{seed}{key}")
        return BOOM if failing and rng.random() < 0.25 else {"n": rng.randint(0, 1)}

    return Sim(flow, input=INPUT, work=work)


@slow
@given(workflows(st.sampled_from(["failFast", "continue"])), st.integers(0, 2**32))
def test_every_execution_ends_and_nothing_moves_afterwards(flow: Workflow, seed: int) -> None:
    rng = random.Random(seed)
    sim = make(flow, seed).run(rng, noise=True)
    assert sim.state.status in TERMINAL_EXECUTION
    assert fold(None, sim.history) == sim.state
    count = len(flow.tasks)
    for late in (
        Start(),
        TimerDue(),
        Lost((0,)),
        *map(done, range(count)),
        *map(failed, range(count)),
    ):
        assert sim.step(late).events == ()


@slow
@given(workflows(st.sampled_from(["failFast", "continue"]), late=True), st.integers(0, 2**32))
def test_every_execution_with_deadlines_ends_and_its_history_is_its_state(
    flow: Workflow, seed: int
) -> None:
    """Workers hang now and then; what has a deadline fails there, and only there."""
    sim = make(flow, seed).run(random.Random(seed), noise=True)
    assert sim.state.status in TERMINAL_EXECUTION
    assert fold(None, sim.history) == sim.state
    for event in sim.history:
        if isinstance(event, TaskFailed) and event.failure.failure.type == "DEADLINE_EXCEEDED":
            assert flow.tasks[event.task].deadline_ms is not None


@slow
@given(workflows(st.just("continue")), st.integers(0, 2**32))
def test_the_end_does_not_depend_on_the_order_of_messages(flow: Workflow, seed: int) -> None:
    fates = {
        repr(make(flow, seed).run(random.Random(f"{seed}{order}"), noise=order > 0).fate())
        for order in range(4)
    }
    assert len(fates) == 1, sorted(fates)


@slow
@given(workflows(st.sampled_from(["failFast", "continue"])), st.integers(0, 2**32))
def test_a_decision_reaches_the_fixed_point(flow: Workflow, seed: int) -> None:
    """Looking at the whole graph again after any commit finds nothing to do."""
    rng = random.Random(seed)
    sim = make(flow, seed).start()
    while sim.state.status not in TERMINAL_EXECUTION:
        assert sim.decide([Lost()]).events == ()
        if sim.flight:
            key = rng.choice(sorted(sim.flight, key=repr))
            sim.step(sim.answer(key))
        else:
            sim.now = min(sim.state.waits.values())
            sim.step(TimerDue())


@slow
@given(workflows(st.just("failFast")), st.integers(0, 2**32))
def test_under_fail_fast_only_handlers_start_after_the_failure(flow: Workflow, seed: int) -> None:
    sim = make(flow, seed).run(random.Random(seed), noise=True)
    failing = False
    for event in sim.history:
        name = type(event).__name__
        failing = failing or name == "FailureNoted"
        if failing and name in {"TasksQueued", "TaskWaiting", "MapStarted", "MapItemsQueued"}:
            for position in getattr(event, "tasks", None) or (event.task,):  # type: ignore[union-attr]
                assert flow.tasks[position].run_when.value in {"allDone", "anyFailed"}


@pytest.mark.parametrize("seed", range(150))
def test_join_of_200_branches_is_dispatched_once_in_any_order_and_split(seed: int) -> None:
    flow = workflow(
        task("a"),
        *(task(f"b{n}", "a") for n in range(200)),
        task("join", *(f"b{n}" for n in range(200))),
    )
    rng = random.Random(seed)
    sim = Sim(flow).start()
    sim.step(done(0))
    inputs: list[Any] = [done(n) for n in range(1, 201)] + [
        done(rng.randint(1, 200)) for _ in range(40)
    ]
    rng.shuffle(inputs)
    state, history = sim.state, []
    while inputs:
        size = rng.choice([1, 2, 7, 32, 100])
        sim.state = state
        decision = sim.decide(inputs[:size])
        del inputs[:size]
        state = decision.state
        history += decision.events
    dispatched = [e for e in history if type(e).__name__ == "TasksQueued"]
    assert [e.tasks for e in dispatched] == [(201,)]
