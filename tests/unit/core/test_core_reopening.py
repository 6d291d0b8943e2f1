"""What an operator's decisions about dead letters do to an execution."""

from __future__ import annotations

import random
from typing import Any

import pytest
from core_build import BOOM, Sim, done, failed, given_back, task, workflow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_core_properties import INPUT, workflows

from orchestrator.domain import events as ev
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
    TimerDue,
)
from orchestrator.domain.status import DEAD_CODES, TERMINAL_EXECUTION, Code, ExecutionStatus
from orchestrator.domain.workflow import Workflow


def retry(*tasks: int, **more: Any) -> Retry:
    return Retry(tasks=tasks, by="eve", **more)


def test_a_retry_runs_what_died_and_what_it_had_stopped_and_nothing_else() -> None:
    """argoproj/argo-workflows#13839: a manual retry repeats what had succeeded."""
    flow = workflow(
        task("a"), task("b", "a"), task("c", "b"), task("other"), task("after", "other")
    )
    sim = Sim(flow).start()
    sim.step(done(0))
    sim.step(failed(1))
    sim.step(done(3))
    assert (sim.state.status, sim.letters()) == (ExecutionStatus.FAILED, "CDXCX")
    sim.sent.clear()
    sim.step(retry(1))
    assert (sim.state.status, sim.letters()) == (ExecutionStatus.RUNNING, "CQPCQ")
    assert sim.sent == [(1, None), (4, None)]
    assert sim.state.failure is None
    assert sim.state.ended_at is None
    assert sim.step(retry(1)).events == ()  # pressed twice
    sim.step(done(1), done(4))
    sim.step(done(2))
    assert (sim.state.status, sim.letters()) == (ExecutionStatus.COMPLETED, "CCCCC")
    assert len(sim.of(ev.ExecutionFailed)) == 1  # the first failure stays in the history
    assert sim.step(retry(1)).events == ()


def test_a_new_deadline_begins_when_an_execution_is_reopened() -> None:
    sim = Sim(workflow(task("a"), timeout_ms=1000)).start()
    sim.step(failed(0))
    sim.now += 5000
    sim.step(retry(0))
    assert sim.state.deadline_at == sim.now + 1000
    sim.now += 1000
    sim.step(Lost())
    assert sim.state.status is ExecutionStatus.FAILED
    assert sim.letters() == "X"
    assert sim.step(retry(0)).events == ()
    sim.step(retry(cancelled=True))
    assert sim.letters() == "Q"


def test_what_stays_dead_fails_the_execution_again_at_its_end() -> None:
    flow = workflow(task("a"), task("b"), task("c", "a"), on_failure="continue")
    sim = Sim(flow, work=lambda key: BOOM if key[0] == 1 else None).start()
    sim.step(failed(0))
    sim.step(failed(1))
    sim.step(retry(0))
    assert sim.state.failure is None
    sim.step(done(0))
    sim.step(done(2))
    assert sim.state.status is ExecutionStatus.FAILED
    assert sim.state.failure is not None
    assert sim.state.failure.task == "b"


def test_an_output_given_by_an_operator_completes_the_task_and_lets_the_rest_run() -> None:
    flow = workflow(task("a"), task("b", "a"))
    sim = Sim(flow).start()
    sim.step(failed(0))
    assert sim.letters() == "DX"
    sim.step(Override(task=0, by="eve"))
    assert sim.letters() == "CQ"
    sim.step(done(1))
    assert sim.state.status is ExecutionStatus.COMPLETED


def test_items_are_retried_alone_and_the_rest_of_the_map_follows() -> None:
    flow = workflow(task("m", items=[0, 1, 2, 3, 4, 5], max_concurrency=2), task("z", "m"))
    sim = Sim(flow).start()
    sim.step(done(0, 0))
    sim.step(failed(0, 1), given_back(0, 2))
    assert sim.letters() == "DX"
    assert sim.state.maps[0].items == b"CDXPPP"
    sim.sent.clear()
    sim.step(Retry(items=((0, 1),), by="eve"))
    assert sim.sent == [(0, 1), (0, 2)]
    assert sim.state.maps[0].queued == 2
    for item in (1, 2, 3, 4, 5):
        sim.step(done(0, item))
    sim.step(done(0))
    sim.step(done(1))
    assert sim.state.status is ExecutionStatus.COMPLETED


def test_of_two_failed_items_one_retried_leaves_the_map_failed() -> None:
    sim = Sim(workflow(task("m", items=[0, 1]))).start()
    sim.step(failed(0, 0), failed(0, 1))
    sim.step(Retry(items=((0, 0),), by="eve"))
    sim.step(done(0, 0))
    assert (sim.state.status, sim.letters()) == (ExecutionStatus.FAILED, "D")
    assert sim.state.maps[0].failure is not None
    assert sim.state.maps[0].failure.index == 1
    sim.step(Override(task=0, item=1, by="eve"))
    assert sim.letters() == "Q"


def test_while_paused_nothing_is_dispatched_until_it_is_resumed() -> None:
    sim = Sim(workflow(task("a"), task("b"), on_failure="continue")).start()
    sim.step(failed(0))
    sim.step(Pause(by="eve"))
    sim.step(retry(0))
    assert (sim.state.status, sim.letters()) == (ExecutionStatus.PAUSED, "QQ")
    sim.step(Resume(by="eve"), Lost((0, 1)))
    sim.step(done(0), done(1))
    assert sim.state.status is ExecutionStatus.COMPLETED


@pytest.mark.parametrize("decision", [retry(0), Override(task=0, by="e")])
def test_what_an_operator_cancelled_stays_so(decision: Any) -> None:
    sim = Sim(workflow(task("a"), task("b"), on_failure="continue")).start()
    sim.step(failed(0))
    sim.step(Cancel(by="eve"))
    assert sim.step(decision).events == ()


def test_hold_waits_for_the_operator_and_the_other_branches_go_on() -> None:
    flow = workflow(
        task("a"),
        task("b", "a"),
        task("tidy", "b", run_when="allDone"),
        task("c"),
        task("soft", continue_on_error=True),
        on_failure="hold",
    )
    sim = Sim(flow, work=lambda key: BOOM if key[0] in (0, 4) else None).start()
    sim.step(failed(0), done(3), failed(4))
    assert (sim.state.status, sim.letters()) == (ExecutionStatus.RUNNING, "DPPCd")
    assert sim.step(Start(), Lost()).events == ()
    sim.step(retry(0))
    sim.step(failed(0))
    assert sim.letters() == "DPPCd"
    accept = Accept(task=0, failure=BOOM, by="eve")
    sim.step(accept)
    assert sim.letters() == "dSQCd"
    assert sim.step(accept).events == ()
    sim.step(done(2))
    assert sim.state.status is ExecutionStatus.FAILED
    assert sim.state.failure is not None
    assert sim.state.failure.task == "a"


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workflows(st.sampled_from(["failFast", "continue", "hold"])), st.integers(0, 2**32))
def test_retrying_everything_until_it_works_completes_and_repeats_no_success(
    flow: Workflow, seed: int
) -> None:
    """Workers that fail less and less; an operator who retries, gives outputs, or accepts."""
    rng = random.Random(seed)
    tries: dict[Any, int] = {}

    def work(key: Any) -> Any:
        tries[key] = tries.get(key, 0) + 1
        bad = random.Random(f"{seed}{key}").random() < 0.4
        return BOOM if bad and tries[key] < 3 else {"n": 1}

    sim = Sim(flow, input=INPUT, work=work)
    sim.start()
    judge_once = True
    for _ in range(120):
        dead = [task for task, code in enumerate(sim.state.tasks) if code in DEAD_CODES]
        ended = sim.state.status in TERMINAL_EXECUTION
        if sim.flight and not ended:
            key = rng.choice(sorted(sim.flight, key=repr))
            answer = sim.answer(key)
            if key[1] is None:
                good = answer.failure is None
                sim.facts[flow.tasks[key[0]].id] = {
                    "output": {"n": 1} if good else None,
                    "error": None if good else BOOM.to_doc(),
                }
            sim.step(answer)
        elif sim.state.waits and not ended:
            sim.now = min(sim.state.waits.values())
            sim.step(Lost())
            sim.step(TimerDue())
        elif sim.state.status is ExecutionStatus.FAILED or dead:
            if sim.state.status is ExecutionStatus.COMPLETED:
                break
            items = tuple(
                (task, item)
                for task, state in sim.state.maps.items()
                for item, code in enumerate(state.items)
                if code == Code.DEAD_LETTERED
            )
            alone = {e.task for e in sim.of(ev.TaskFailed) if e.attempt == 0}
            workers = tuple(task for task in dead if task not in alone)
            judged = tuple(alone.intersection(dead)) if judge_once else ()
            judge_once = False
            sim.flight.clear()
            before = len(sim.history)
            sim.step(Retry(tasks=workers, items=items, judged=judged, by="eve"))
            if len(sim.history) == before:
                break  # the output fails
            for position, item in items:
                assert sim.state.maps[position].items[item] == Code.QUEUED
        else:
            break
    assert fold(None, sim.history) == sim.state
    completed: set[Any] = set()
    for event in sim.history:
        if isinstance(event, ev.TaskCompleted):
            assert event.task not in completed, "completed twice"
            completed.add(event.task)
        if isinstance(event, ev.TasksQueued | ev.TasksReopened):
            assert not completed & set(event.tasks), "a completed task was run again"
