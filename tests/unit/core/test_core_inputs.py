"""Lost, doubled and contradicting inputs, and data that is missing."""

from __future__ import annotations

import pytest
from core_build import BOOM, Sim, done, failed, given_back, task, workflow

from orchestrator.domain import events as ev
from orchestrator.domain.decide import decide
from orchestrator.domain.inputs import Facts, Lost, Start, TaskResult, TimerDue
from orchestrator.domain.status import ExecutionStatus

COMPLETED = ExecutionStatus.COMPLETED


def test_lost_work_is_dispatched_again_unless_its_result_is_there() -> None:
    flow = workflow(task("a"), task("b"), task("m", items=[1, 2, 3], max_concurrency=2))
    sim = Sim(flow).start()
    lost = Lost((0, 1, 2, 9, -1), ((2, 0), (2, 1), (2, 2), (2, 9), (0, 0), (7, 0)))
    sim.step(lost, done(1), done(2, 0))
    assert sim.of(ev.TasksRequeued)[0].tasks == (0,)
    assert sim.of(ev.TasksRequeued)[0].items == ((2, 1),)
    assert sim.sent.count((0, None)) == sim.sent.count((2, 1)) == 2
    assert sim.sent.count((1, None)) == sim.sent.count((2, 0)) == 1


def test_doubled_and_contradicting_results_of_one_batch_count_once() -> None:
    sim = Sim(workflow(task("a"), task("b", "a"))).start()
    sim.step(done(0), failed(0), done(0), given_back(0), Start())
    assert (sim.letters(), len(sim.of(ev.TaskCompleted)), len(sim.of(ev.TaskFailed))) == (
        "CQ",
        1,
        0,
    )


def test_nothing_happens_before_the_start() -> None:
    sim = Sim(workflow(task("a")))
    for early in (done(0), failed(0), TimerDue(), Lost((0,))):
        assert sim.step(early).events == ()


def test_needs_name_exactly_what_is_missing() -> None:
    flow = workflow(
        task("a"),
        task("b"),
        task("x", "a", "b", when="tasks.a.output > 1 && input.go"),
        task("y", "b", when="tasks.b.status == 'COMPLETED'"),
        task("z", "a"),
    )
    sim = Sim(flow, input={"go": True}, work=lambda key: 5).start()
    bare = Facts(input_loaded=False)
    first = decide(flow, sim.state, [done(0), done(1)], bare, sim.now)
    assert (first.needs.outputs, first.needs.input) == ({"a", "b"}, True)
    known = Facts(input={"go": True}, tasks={i: {"output": 5, "error": None} for i in "ab"})
    second = decide(flow, sim.state, [done(0), done(1)], known, sim.now)
    assert not second.needs
    assert second.state.tasks == b"CCQQQ"


def test_outputs_of_skipped_tasks_and_of_this_decision_need_no_loading() -> None:
    flow = workflow(
        task("s", when="false"),
        task("w", duration_ms=0),
        task("e", items=[]),
        task("f", items=7, continue_on_error=True),
        task(
            "x",
            *"swef",
            run_when="allDone",
            when="tasks.s.output == null && tasks.s.status == 'SKIPPED' && tasks.w.output == null"
            " && tasks.e.output == [] && tasks.f.error.type == 'MAP_ITEMS_INVALID'",
        ),
    )
    sim = Sim(flow)
    decision = decide(flow, sim.state, [Start()], Facts(input_loaded=False), sim.now)
    assert not decision.needs
    assert decision.state.tasks == b"sCCDQ"
    assert (decision.outputs, set(decision.failures)) == ({1: None, 2: []}, {3})


def test_an_expression_that_picks_tasks_at_run_time_sees_upstream_only() -> None:
    flow = workflow(
        task("a"),
        task("other"),
        task("b", "a", when="tasks[input].output == 5"),
        on_failure="continue",
    )
    for picked, letters in (("a", "CQQ"), ("other", "CQD")):
        sim = Sim(flow, input=picked, work=lambda key: 5).start()
        sim.step(sim.answer((0, None)))
        assert sim.letters() == letters


def test_a_result_must_be_consistent() -> None:
    with pytest.raises(ValueError, match="outcome failed"):
        TaskResult(task=0, outcome="failed")
    with pytest.raises(ValueError, match="outcome completed"):
        TaskResult(task=0, outcome="completed", failure=BOOM)


def test_a_workflow_without_tasks_completes() -> None:
    assert Sim(workflow(output=1)).start().state.status is COMPLETED
