"""Paths through executions: skips, failures, waits, deadlines, lost work, missing data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from core_build import BOOM, Raw, Sim, done, failed, given_back, task, workflow

from orchestrator.domain import events as ev
from orchestrator.domain.decide import decide
from orchestrator.domain.failure import FailureType
from orchestrator.domain.inputs import Facts, Lost, Start, TaskResult, TimerDue
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


# --- time -----------------------------------------------------------------------------------------


def test_wait_completes_when_due_and_not_before() -> None:
    flow = workflow(task("w", duration_ms=500), task("b", "w", when="tasks.w.output == null"))
    sim = Sim(flow).start()
    assert (sim.letters(), sim.state.waits) == ("WP", {0: 1_000_500})
    sim.now += 499
    assert sim.step(TimerDue()).events == ()
    assert sim.step(done(0)).events == ()  # no worker can finish a wait
    sim.now += 1
    sim.step(TimerDue(), TimerDue())
    assert (sim.letters(), sim.state.waits) == ("CQ", {})


def until(value: Any, raw: Raw | None = None) -> Sim:
    sim = Sim(workflow(raw or task("w", until="${input}")), input=value)
    sim.now = 1_806_197_400_000  # 2027-03-28T01:30:00Z
    return sim.start()


@pytest.mark.parametrize(
    ("value", "due"),
    [
        ("2027-03-28T01:30:01Z", 1000),
        ("2027-03-28T03:30:00.5+02:00", 500),
        ("2027-03-28T01:30:00.000001Z", 1),  # rounded up: never early
        ("2027-03-29", None),  # a date is a naive time
        ("2027-03-28T01:30:01", None),
        ("tomorrow", None),
        (1_900_000_000_000, None),
        (None, None),
        ("2037-03-25T01:29:59Z", 3650 * 86_400_000 - 1000),
        ("2037-03-25T01:30:01Z", None),
        ("9999-12-31T23:59:59-23:59", None),
    ],
)
def test_wait_until(value: Any, due: int | None) -> None:
    sim = until(value)
    if due is None:
        failure = sim.of(ev.TaskFailed)[0].failure.failure
        assert (failure.type, failure.field) == (FailureType.WAIT_INVALID, "$.tasks.w.until")
        assert failure.retryable is False
    else:
        assert sim.state.waits == {0: sim.now + due}


@pytest.mark.parametrize(
    "raw",
    [
        task("w", until="2020-01-01T00:00:00Z"),
        task("w", until="2027-03-28T01:30:00Z"),
        task("w", until="0001-01-01T00:00:00+23:00"),
        task("w", duration_ms=0),
    ],
)
def test_a_wait_in_the_past_or_of_0s_completes_at_once(raw: Raw) -> None:
    sim = until(None, raw)
    assert (sim.letters(), sim.state.status) == ("C", COMPLETED)
    assert sim.of(ev.TaskCompleted)[0].attempt == 0


def test_wait_of_400_days_is_kept_in_state() -> None:
    sim = Sim(workflow(task("w", duration_ms=400 * 86_400_000))).start()
    assert sim.letters() == "W"
    sim.now = sim.state.waits[0]
    sim.step(TimerDue())
    assert sim.state.status is COMPLETED


def test_started_at_is_known_to_the_first_condition() -> None:
    started = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1000)).isoformat()
    assert started == "1970-01-01T00:16:40+00:00"
    flow = workflow(task("a", when="execution.startedAt == '1970-01-01T00:16:40.000Z'"))
    assert Sim(flow).start().letters() == "Q"


def deadline(*tasks: Raw) -> Sim:
    sim = Sim(workflow(*tasks, timeout_ms=1000)).start()
    assert sim.state.deadline_at == sim.now + 1000
    return sim


def test_deadline_ends_everything() -> None:
    sim = deadline(
        task("run"), task("w", duration_ms=5000), task("p", "run"), task("m", items=[1, 2])
    )
    sim.now += 999
    assert sim.step(TimerDue()).events == ()
    sim.now += 1
    sim.step(done(3, 0))  # any input; it is applied first
    assert (sim.letters(), sim.state.status, sim.state.waits) == ("XXXX", FAILED, {})
    assert (sim.state.maps[3].items, sim.state.maps[3].queued) == (b"CX", 0)
    failure = sim.of(ev.ExecutionFailed)[0].failure
    assert (failure.task, failure.failure.type) == ("", FailureType.EXECUTION_TIMEOUT)
    assert sim.of(ev.TasksCancelled)[0].reason == "executionTimeout"
    assert sim.step(done(0), done(3, 1), TimerDue()).events == ()


def test_deadline_does_not_hide_an_earlier_failure() -> None:
    sim = deadline(task("bad"), task("slow"))
    sim.step(failed(0))
    sim.now += 1000
    sim.step(TimerDue())
    assert sim.of(ev.ExecutionFailed)[0].failure.task == "bad"
    assert len(sim.of(ev.FailureNoted)) == 1


# --- lost, doubled, missing -----------------------------------------------------------------------


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
