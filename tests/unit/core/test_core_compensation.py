"""Compensation in the pure core: what is undone, in which order, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from core_build import BOOM, Sim, done, failed, given_back, task, workflow

from orchestrator.domain import events as ev
from orchestrator.domain.effects import next_wake
from orchestrator.domain.evolve import fold
from orchestrator.domain.inputs import (
    Accept,
    Cancel,
    Lost,
    Override,
    Pause,
    Resume,
    Retry,
    Start,
    Terminate,
    TimerDue,
)
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.workflow import Workflow

CANCEL = Cancel(by="eve", reason="wrong order", compensate=True)


def chain(on_failure: str = "failFast", **fields: Any) -> Workflow:
    """a, b, c in a row, a and b with a compensation (positions 3 and 4)."""
    return workflow(
        task("a", compensate=True),
        task("b", "a", compensate=True),
        task("c", "b"),
        on_failure=on_failure,
        **fields,
    )


def failing() -> Sim:
    """The chain, a and b completed, c failed."""
    sim = Sim(chain()).start()
    for given_now in (done(0), done(1), failed(2)):
        sim.step(given_now)
    return sim


def undone(sim: Sim) -> list[int]:
    """Compensations in the order in which they were dispatched."""
    queued = [task for event in sim.of(ev.TasksQueued) for task in event.tasks]
    return [task for task in queued if sim.workflow.tasks[task].undoes is not None]


def test_what_completed_is_undone_one_by_one_in_reverse_order() -> None:
    sim = failing()
    assert sim.state.status is ExecutionStatus.COMPENSATING
    assert sim.letters() == "CCDHQ"
    assert sim.state.ended_at is None
    sim.step(done(4))
    assert sim.letters() == "CCDQC"
    sim.step(done(3))
    assert sim.letters() == "CCDCC"
    assert sim.state.status is ExecutionStatus.FAILED
    assert sim.state.failure is not None
    assert sim.state.failure.task == "c"
    assert sim.state.ended_at == sim.now
    assert undone(sim) == [4, 3]


def test_parallel_branches_are_undone_by_completion_order_not_by_definition_order() -> None:
    flow = workflow(
        *(task(f"t{n}", compensate=True) for n in range(3)), task("z", "t0", "t1", "t2")
    )
    sim = Sim(flow).start()
    for position in (1, 2, 0):
        sim.step(done(position))
    sim.step(failed(3))
    for _ in range(3):
        sim.step(done(undone(sim)[-1]))
    assert undone(sim) == [4, 6, 5]
    assert sim.state.status is ExecutionStatus.FAILED


def test_an_execution_that_completes_is_not_undone() -> None:
    sim = Sim(chain()).start()
    for position in range(3):
        sim.step(done(position))
    assert sim.state.status is ExecutionStatus.COMPLETED
    assert sim.letters() == "CCCHH"


def test_skipped_failed_and_cancelled_tasks_are_not_undone() -> None:
    flow = workflow(
        task("a", compensate=True),
        task("skipped", "a", when="false", compensate=True),
        task("failed", "a", compensate=True),
        task("behind", "failed", compensate=True),
    )
    sim = Sim(flow).start()
    sim.step(done(0))
    sim.step(failed(2))
    assert sim.letters() == "CsDXQHHH"
    sim.step(done(4))
    assert sim.letters() == "CsDXCHHH"
    assert sim.state.status is ExecutionStatus.FAILED


def test_without_a_completed_task_to_undo_it_fails_at_once() -> None:
    sim = Sim(chain()).start()
    sim.step(failed(0))
    assert sim.state.status is ExecutionStatus.FAILED
    assert sim.of(ev.CompensationStarted) == []
    assert sim.state.ending is None


def test_a_compensation_that_fails_does_not_stop_the_others_nor_replaces_the_failure() -> None:
    sim = failing()
    sim.step(failed(4))
    assert sim.letters() == "CCDQD"
    sim.step(done(3))
    assert sim.state.status is ExecutionStatus.FAILED
    assert sim.state.failure is not None
    assert sim.state.failure.task == "c"


def test_retrying_a_dead_compensation_takes_it_up_again_and_ends_as_before() -> None:
    sim = failing()
    sim.step(failed(4))
    sim.step(done(3))
    before = sim.state.failure
    sim.step(Retry(tasks=(4,), by="eve"))
    assert sim.state.status is ExecutionStatus.COMPENSATING
    assert sim.letters() == "CCDCQ"
    sim.step(done(4))
    assert sim.state.status is ExecutionStatus.FAILED
    assert sim.state.failure == before
    assert fold(None, sim.history) == sim.state


def test_skipping_a_dead_compensation_with_an_output_ends_it() -> None:
    sim = failing()
    sim.step(failed(4))
    sim.step(done(3))
    sim.step(Override(task=4, by="eve"))
    assert sim.letters() == "CCDCC"
    assert sim.state.status is ExecutionStatus.FAILED


def test_once_compensated_nothing_else_can_be_taken_up_again() -> None:
    sim = failing()
    for given_now in (Retry(tasks=(2,), by="eve", cancelled=True), Override(task=2, by="eve")):
        assert sim.step(given_now).events == ()
    sim.step(done(4))
    sim.step(done(3))
    for given_now in (
        Retry(tasks=(0, 1, 2, 3, 4), by="eve", cancelled=True),
        Override(task=2, by="eve"),
        Override(task=3, by="eve"),
    ):
        assert sim.step(given_now).events == ()


def test_late_and_doubled_results_change_nothing_while_compensating() -> None:
    sim = failing()
    before = sim.state
    for late in (
        done(2),
        failed(0),
        done(3),
        given_back(1),
        Start(),
        TimerDue(),
        Pause(by="eve"),
        Resume(by="eve"),
        Cancel(by="eve"),
        CANCEL,
    ):
        assert sim.step(late).events == ()
    assert sim.state == before
    assert [type(event) for event in sim.step(Lost((0, 3, 4))).events] == [ev.TasksRequeued]


def test_the_time_limit_of_the_execution_ends_in_compensation_without_a_limit() -> None:
    sim = Sim(chain(timeout_ms=1_000)).start()
    sim.step(done(0))
    sim.now += 1_000
    sim.step(TimerDue())
    assert sim.letters() == "CXXQH"
    assert next_wake(sim.state) is None
    sim.now += 10**9
    assert sim.step(TimerDue(), done(1)).events == ()
    sim.step(done(3))
    assert sim.state.status is ExecutionStatus.FAILED
    assert sim.state.failure is not None
    assert sim.state.failure.failure.type == "EXECUTION_TIMEOUT"


def test_a_paused_execution_whose_time_is_over_compensates() -> None:
    sim = Sim(chain(timeout_ms=1_000)).start()
    sim.step(done(0))
    sim.step(Pause(by="eve"))
    sim.now += 1_000
    sim.step(TimerDue())
    assert sim.state.status is ExecutionStatus.COMPENSATING


def test_under_continue_it_begins_when_all_that_can_run_has_ended() -> None:
    flow = workflow(task("a", compensate=True), task("b"), task("c"), on_failure="continue")
    sim = Sim(flow).start()
    sim.step(done(0), failed(1))
    assert sim.state.status is ExecutionStatus.RUNNING
    sim.step(done(2))
    assert sim.letters() == "CDCQ"


def test_handlers_run_before_anything_is_undone() -> None:
    flow = workflow(
        task("a", compensate=True), task("b", "a"), task("tidy", "b", run_when="allDone")
    )
    sim = Sim(flow).start()
    sim.step(done(0))
    sim.step(failed(1))
    assert sim.letters() == "CDQH"
    sim.step(done(2))
    assert sim.letters() == "CDCQ"


def test_a_holding_execution_compensates_only_when_the_operator_lets_it_fail() -> None:
    sim = Sim(chain("hold")).start()
    for given_now in (done(0), done(1), failed(2)):
        sim.step(given_now)
    assert sim.state.status is ExecutionStatus.RUNNING
    sim.step(Accept(task=2, failure=BOOM, by="eve"))
    assert sim.letters() == "CCdHQ"
    sim.step(failed(4))  # a dead compensation holds nothing
    assert sim.letters() == "CCdQD"


def test_a_failing_output_expression_is_a_failure_that_compensates() -> None:
    flow = workflow(task("a", compensate=True), output="${input.nothing.more}")
    sim = Sim(flow, input={}).start()
    sim.step(done(0))
    assert sim.letters() == "CQ"


def test_what_an_operator_gave_the_output_of_counts_as_completed_and_is_undone() -> None:
    sim = Sim(chain()).start()
    sim.step(failed(0))
    sim.step(Override(task=0, by="eve"))
    sim.step(failed(1))
    assert sim.letters() == "CDXQH"


def test_a_map_is_undone_as_a_whole() -> None:
    flow = workflow(task("m", items=[1, 2], compensate=True), task("z", "m"))
    sim = Sim(flow).start()
    sim.step(done(0, 0), done(0, 1))
    sim.step(done(0))
    sim.step(failed(1))
    assert sim.letters() == "CDQ"


def test_a_map_whose_items_are_done_is_gathered_though_failing_so_that_it_can_be_undone() -> None:
    flow = workflow(task("m", items=[1, 2], compensate=True), task("z"))
    sim = Sim(flow).start()
    sim.step(failed(1))
    sim.step(done(0, 0), done(0, 1))
    assert sim.letters() == "QDH"
    sim.step(done(0))
    assert sim.letters() == "CDQ"


# --- cancel with compensation ---------------------------------------------------------------------


def test_cancel_with_compensation_lets_what_runs_end_and_undoes_it() -> None:
    flow = workflow(
        task("a", compensate=True),
        task("b", "a", compensate=True),
        task("wait", duration_ms=5_000),
        task("c", "b"),
        task("tidy", "c", run_when="allDone"),
    )
    sim = Sim(flow).start()
    sim.step(done(0))
    sim.sent.clear()
    sim.step(CANCEL)
    assert sim.letters() == "CQXXXHH"
    assert sim.sent == [(1, None)]  # called again, so that one that waits for its retry is dropped
    assert sim.state.status is ExecutionStatus.COMPENSATING
    sim.step(done(1))
    assert sim.letters() == "CCXXXHQ"
    sim.step(done(6))
    sim.step(done(5))
    assert sim.state.status is ExecutionStatus.CANCELLED
    assert sim.state.failure is None
    assert undone(sim) == [6, 5]


def test_what_is_given_back_or_fails_after_a_cancel_is_not_undone_and_no_failure() -> None:
    flow = workflow(*(task(f"t{n}", compensate=True) for n in range(3)))
    sim = Sim(flow).start()
    sim.step(done(2))
    sim.step(CANCEL)
    sim.step(given_back(0))
    sim.step(failed(1))
    assert sim.letters() == "XDCHHQ"
    sim.step(done(5))
    assert sim.state.status is ExecutionStatus.CANCELLED
    assert sim.state.failure is None


def test_cancel_with_compensation_starts_no_further_items_of_a_map() -> None:
    flow = workflow(
        task("a", compensate=True), task("m", items=[1, 2, 3], max_concurrency=1, compensate=True)
    )
    sim = Sim(flow).start()
    sim.step(done(0))
    sim.step(CANCEL)
    sim.step(done(1, 0))
    assert sim.letters() == "CXQH"


def test_a_map_that_is_complete_when_cancelled_is_gathered_and_undone() -> None:
    sim = Sim(workflow(task("m", items=[1, 2], compensate=True))).start()
    sim.step(CANCEL)
    sim.step(done(0, 0), done(0, 1))
    assert sim.letters() == "QH"
    sim.step(done(0))
    assert sim.letters() == "CQ"


@pytest.mark.parametrize("compensate", [True, False])
def test_cancel_with_nothing_to_undo_ends_at_once(compensate: bool) -> None:
    cancel = Cancel(by="eve", compensate=compensate)
    for sim in (Sim(chain()), Sim(workflow(task("w", duration_ms=9_000))).start()):
        sim.step(cancel)
        assert sim.state.status is ExecutionStatus.CANCELLED
        assert sim.state.ending is None


def test_cancel_without_compensation_undoes_nothing() -> None:
    sim = Sim(chain()).start()
    sim.step(done(0))
    sim.step(Cancel(by="eve"))
    assert sim.letters() == "CXXHH"
    assert sim.state.status is ExecutionStatus.CANCELLED


# --- terminate ------------------------------------------------------------------------------------


def test_terminate_ends_whatever_it_was_doing() -> None:
    for sim in (Sim(chain()), Sim(chain()).start(), failing(), _paused()):
        sim.step(Terminate(by="eve", reason="enough"))
        assert sim.state.status is ExecutionStatus.CANCELLED
        assert sim.state.terminated
        assert not set(sim.letters()) & set("PQW")
        assert sim.history[-1] == ev.ExecutionCancelled(
            at=sim.now, by="eve", reason="enough", terminated=True
        )
        assert sim.step(Terminate(by="eve"), done(0), done(4)).events == ()


def test_a_result_that_arrives_with_terminate_is_a_result() -> None:
    sim = failing()
    sim.step(Terminate(by="eve"), done(4))
    assert sim.letters() == "CCDHC"  # and the next is not dispatched


def test_what_was_terminated_cannot_be_taken_up_again() -> None:
    sim = failing()
    sim.step(failed(4))
    sim.step(Terminate(by="eve"))
    assert sim.letters() == "CCDXD"
    assert sim.step(Retry(tasks=(4,), by="eve")).events == ()


def _paused() -> Sim:
    sim = Sim(chain()).start()
    sim.step(done(0))
    sim.step(Pause(by="eve"))
    return sim


def test_a_deadline_counts_on_while_a_cancelled_execution_waits_for_what_runs() -> None:
    flow = workflow(
        task("a", compensate=True),
        task("m", items=[1], compensate=True, deadline_ms=1_000),
    )
    sim = Sim(flow).start()
    sim.step(done(0))
    sim.step(CANCEL)
    sim.step(done(1, 0))
    assert sim.letters() == "CQHH"  # gathered, so that it can be undone
    assert next_wake(sim.state) == sim.now + 1_000
    sim.now += 1_000
    sim.step(TimerDue(), *sim.late())
    assert sim.letters() == "CDQH"
    assert sim.state.failure is None
