"""Paths through executions: order, skips, failures, outputs."""

from __future__ import annotations

import pytest
from core_build import BOOM, Sim, done, failed, given_back, task, workflow

from orchestrator.domain import events as ev
from orchestrator.domain.failure import FailureType
from orchestrator.domain.payload import Payload
from orchestrator.domain.state import FailureRecord
from orchestrator.domain.status import ExecutionStatus

COMPLETED, FAILED = ExecutionStatus.COMPLETED, ExecutionStatus.FAILED


def test_a_chain_runs_to_its_output() -> None:
    flow = workflow(task("a"), task("b", "a"), output={"got": "${tasks.b.output}"})
    sim = Sim(flow, work=lambda key: key[0] * 10).start()
    assert sim.letters() == "QP"
    sim.step(sim.answer((0, None)))
    assert sim.letters() == "CQ"
    sim.step(sim.answer((1, None)))
    assert (sim.state.status, sim.state.output) == (COMPLETED, Payload(text='{"got":10}', size=10))
    assert [type(event).__name__ for event in sim.history] == [
        "ExecutionAccepted",
        "ExecutionStarted",
        "TasksQueued",
        "TaskCompleted",
        "TasksQueued",
        "TaskCompleted",
        "ExecutionCompleted",
    ]


@pytest.mark.parametrize(
    ("run_when", "letter"),
    [("anySucceeded", "C"), ("noneFailed", "C"), ("allDone", "C"), ("allSucceeded", "S")],
)
def test_join_after_a_branch_condition(run_when: str, letter: str) -> None:
    flow = workflow(
        task("a"),
        task("b", "a", when="false"),
        task("b2", "b"),
        task("c", "a"),
        task("join", "b2", "c", run_when=run_when),
    )
    sim = Sim(flow).start()
    sim.step(done(0))
    assert sim.letters() == "CsSQP"  # b by its condition, b2 by what is upstream
    sim.step(done(3))
    if letter == "C":
        assert sim.letters()[4] == "Q"
        sim.step(done(4))
    assert sim.letters() == "CsSC" + letter
    assert sim.state.status is COMPLETED


def test_a_batch_is_applied_before_anything_is_decided() -> None:
    flow = workflow(task("a"), task("b"), task("join", "a", "b"))
    for order in ((0, 1), (1, 0)):
        sim = Sim(flow).start()
        sim.step(*map(done, order))
        assert sim.of(ev.TasksQueued)[-1].tasks == (2,)


def test_when_is_not_evaluated_if_the_needs_say_no() -> None:
    flow = workflow(
        task("a", continue_on_error=True), task("b", "a", when="tasks.a.output.missing")
    )
    sim = Sim(flow).start()
    sim.step(failed(0))
    assert (sim.letters(), sim.state.status) == ("DS", COMPLETED)


@pytest.mark.parametrize("length", [10_000])
def test_a_long_chain_falls_away_in_one_step_and_one_event(length: int) -> None:
    flow = workflow(
        task("t0", when="false"), *(task(f"t{n}", f"t{n - 1}") for n in range(1, length))
    )
    sim = Sim(flow).start()
    assert sim.letters() == "s" + "S" * (length - 1)
    assert [len(event.tasks) for event in sim.of(ev.TasksSkipped)] == [1, length - 1]
    assert sim.state.status is COMPLETED


def test_a_long_chain_of_waits_that_are_over_needs_one_step() -> None:
    flow = workflow(
        task("t0", duration_ms=0),
        *(task(f"t{n}", f"t{n - 1}", duration_ms=0) for n in range(1, 2_000)),
    )
    assert Sim(flow).start().state.status is COMPLETED


# --- failures -------------------------------------------------------------------------------------


def fan(on_failure: str) -> Sim:
    """bad and slow run; after, plain and handler wait for both; tidy waits for slow."""
    flow = workflow(
        task("bad"),
        task("slow"),
        task("after", "slow"),
        task("handler", "bad", "slow", run_when="anyFailed"),
        task("tidy", "after", run_when="allDone"),
        task("more", "tidy"),
        on_failure=on_failure,
    )
    return Sim(flow).start()


def test_fail_fast_cancels_all_but_handlers_and_lets_running_tasks_end() -> None:
    sim = fan("failFast")
    sim.step(failed(0))
    assert sim.letters() == "DQXPQX"  # tidy's need was cancelled, so it runs now
    assert sim.of(ev.TasksCancelled)[0].reason == "failFast"
    assert sim.state.failure == FailureRecord(failure=BOOM, task="bad")
    assert sim.sent.count((1, None)) == 2  # called again, so that a retrying one is given back
    sim.step(done(1), done(4))
    assert sim.letters() == "DCXQCX"
    sim.step(done(3))
    assert sim.state.status is FAILED
    assert sim.of(ev.ExecutionFailed)[0].failure.task == "bad"


def test_fail_fast_takes_back_what_a_worker_did_not_run() -> None:
    sim = fan("failFast")
    sim.step(failed(0))
    sim.step(given_back(1), given_back(1))
    assert sim.letters() == "DXXQQX"
    sim.step(done(3), done(4))
    assert sim.state.status is FAILED


def test_continue_runs_all_that_can_then_fails() -> None:
    sim = fan("continue")
    sim.step(failed(0))
    assert sim.letters() == "DQPPPP"
    sim.step(done(1))
    assert sim.letters() == "DCQQPP"
    for position in (2, 3, 4, 5):
        sim.step(done(position))
    assert (sim.letters(), sim.state.status) == ("DCCCCC", FAILED)


def test_only_the_first_failure_is_noted() -> None:
    flow = workflow(task("a"), task("b"), on_failure="continue")
    sim = Sim(flow).start()
    sim.step(failed(1), failed(0))
    assert [event.failure.task for event in sim.of(ev.FailureNoted)] == ["b"]
    assert sim.of(ev.ExecutionFailed)[0].failure.task == "b"


def test_continue_on_error_does_not_count_but_dependents_see_it() -> None:
    flow = workflow(
        task("a", continue_on_error=True),
        task("plain", "a"),
        task("any", "a", run_when="anyFailed", when="tasks.a.error.type == 'Boom'"),
        task("done", "a", run_when="allDone"),
    )
    sim = Sim(flow, work=lambda key: BOOM if key[0] == 0 else None).start()
    sim.step(sim.answer((0, None)))
    assert sim.letters() == "DSQQ"
    sim.step(done(2), done(3))
    assert sim.state.status is COMPLETED


def test_a_failing_expression_stops_the_rest_of_its_wave() -> None:
    """Dispatch is decided last: under fail-fast its neighbours are never sent."""
    flow = workflow(
        task("first"),
        task("w", duration_ms=50),
        task("bad", when="1 / 0 == 1"),
        task("m", items=[1]),
        task("h", "bad", run_when="anyFailed"),
    )
    sim = Sim(flow).start()
    assert sim.letters() == "XXDXQ"
    assert sim.sent == [(4, None)]
    failure = sim.of(ev.TaskFailed)[0].failure.failure
    assert (failure.type, failure.retryable) == (FailureType.EXPRESSION, False)
    assert (failure.field, failure.expression) == ("$.tasks.bad.when", "1 / 0 == 1")
    assert sim.facts["bad"]["error"]["type"] == "EXPRESSION_FAILED"  # type: ignore[index,call-overload]


def test_when_must_be_a_boolean() -> None:
    sim = Sim(workflow(task("a", when="'yes'"))).start()
    failure = sim.of(ev.TaskFailed)[0].failure.failure
    assert (failure.field, failure.expression) == ("$.tasks.a.when", "'yes'")
    assert "not text" in failure.message


def test_a_failing_output_fails_the_execution() -> None:
    flow = workflow(task("a"), output={"x": ["${tasks.a.output.nothing}"]})
    sim = Sim(flow, work=lambda key: {}).start()
    sim.step(sim.answer((0, None)))
    record = sim.of(ev.ExecutionFailed)[0].failure
    assert (sim.state.status, record.task, record.failure.field) == (FAILED, "", "$.output.x[0]")
    assert record.failure.expression == "tasks.a.output.nothing"


def test_an_output_over_the_limit_fails_the_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.domain.evaluation.MAX_PAYLOAD_BYTES", 10)
    for text, status in (("x" * 8, COMPLETED), ("x" * 9, FAILED)):
        sim = Sim(workflow(task("a"), output="${input}"), input=text).start()
        sim.step(done(0))
        assert sim.state.status is status
    assert sim.of(ev.ExecutionFailed)[0].failure.failure.type == FailureType.PAYLOAD_TOO_LARGE


def test_a_large_output_can_be_kept_elsewhere() -> None:
    sim = Sim(workflow(task("a"), output="${input}"), input="large").start()
    decision = sim.decide([done(0)])
    assert decision.output == Payload(text='"large"', size=7)
    kept = decision.with_output(Payload(ref="r", size=7))
    assert kept.output == kept.state.output == Payload(ref="r", size=7)
    assert kept.events[:-1] == decision.events[:-1]
    with pytest.raises(ValueError, match="does not complete"):
        sim.decide([]).with_output(Payload(ref="r"))
