"""Deadlines of tasks: what sets them, what removes them, and what happens at them."""

from __future__ import annotations

from typing import Any

import pytest
from core_build import BOOM, Sim, done, failed, task, workflow

from orchestrator.domain import events as ev
from orchestrator.domain.deadlines import overdue
from orchestrator.domain.effects import messages_for, next_wake
from orchestrator.domain.evolve import fold
from orchestrator.domain.inputs import Cancel, Overdue, Pause, Resume, Retry, Start, TimerDue
from orchestrator.domain.messages import MessageType
from orchestrator.domain.state import FailureRecord
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.topology import MAX_SCHEDULE_AHEAD_MS
from orchestrator.domain.transitions import IllegalTransition

MINUTE = 60_000


def timers(sim: Sim, events: Any) -> list[int | None]:
    found = messages_for(sim.workflow, "t", "x", events, sim.state)
    return [out.due_at for out in found if out.message.type is MessageType.TIMER_DUE]


def test_the_dispatch_sets_it_and_the_result_removes_it() -> None:
    sim = Sim(workflow(task("a", deadline_ms=MINUTE), task("b", "a", deadline_ms=5), task("c")))
    decision = sim.step(Start())
    assert dict(sim.state.deadlines) == {0: sim.now + MINUTE}
    assert next_wake(sim.state) == sim.now + MINUTE
    assert timers(sim, decision.events) == [sim.now + MINUTE]
    sim.now += 1_000
    sim.step(done(0))
    assert dict(sim.state.deadlines) == {1: sim.now + 5}


def test_many_that_are_due_together_are_one_timer() -> None:
    sim = Sim(workflow(*(task(f"t{n}", deadline_ms=MINUTE + n % 2) for n in range(500))))
    decision = sim.step(Start())
    assert timers(sim, decision.events) == [sim.now + MINUTE, sim.now + MINUTE + 1]


def test_far_ahead_no_timer_is_sent_but_the_state_says_when() -> None:
    far = MAX_SCHEDULE_AHEAD_MS + 1
    sim = Sim(workflow(task("a", deadline_ms=far)))
    decision = sim.step(Start())
    assert timers(sim, decision.events) == []
    assert next_wake(sim.state) == sim.now + far


def test_at_the_deadline_it_fails_and_not_before() -> None:
    sim = Sim(workflow(task("a", deadline_ms=MINUTE))).start()
    sim.now += MINUTE - 1
    assert sim.step(Overdue(task=0)).events == ()
    sim.now += 1
    assert overdue(sim.state, sim.now) == [0]
    sim.step(Overdue(task=0, attempt=2, cause=BOOM))
    (event,) = sim.of(ev.TaskFailed)
    failure = event.failure.failure
    assert (failure.type, failure.retryable, event.attempt) == ("DEADLINE_EXCEEDED", False, 2)
    assert (failure.field, failure.causes) == ("$.tasks.a.deadline", (BOOM,))
    assert "60 s" in failure.message
    assert (sim.state.status, sim.letters()) == (ExecutionStatus.FAILED, "D")
    assert not sim.state.deadlines


def test_a_timer_alone_fails_nothing_whose_document_nobody_looked_at() -> None:
    sim = Sim(workflow(task("a", deadline_ms=MINUTE))).start()
    sim.now += MINUTE
    assert sim.step(TimerDue()).events == ()


@pytest.mark.parametrize("first", [True, False])
def test_a_result_in_the_same_batch_wins(first: bool) -> None:
    sim = Sim(workflow(task("a", deadline_ms=MINUTE))).start()
    sim.now += 2 * MINUTE
    batch = [Overdue(task=0), done(0)]
    sim.step(*(reversed(batch) if first else batch))
    assert (sim.state.status, sim.letters()) == (ExecutionStatus.COMPLETED, "C")


def test_paused_it_goes_on_counting_and_fails_with_the_resumption() -> None:
    sim = Sim(workflow(task("a", deadline_ms=MINUTE))).start()
    sim.step(Pause(by="eve"))
    assert next_wake(sim.state) is None
    sim.now += MINUTE
    assert sim.step(TimerDue(), Overdue(task=0)).events == ()
    sim.step(Resume(by="eve"), TimerDue(), Overdue(task=0))
    assert (sim.state.status, sim.letters()) == (ExecutionStatus.FAILED, "D")


def test_what_is_still_overdue_after_a_commit_gets_a_timer_at_once() -> None:
    flow = workflow(*(task(f"t{n}", deadline_ms=MINUTE) for n in range(3)), on_failure="continue")
    sim = Sim(flow).start()
    sim.now += MINUTE
    decision = sim.step(Overdue(task=1))
    assert timers(sim, decision.events) == [None]
    decision = sim.step(Overdue(task=0), Overdue(task=2))
    assert timers(sim, decision.events) == []


def test_a_wait_sends_one_timer_for_whichever_comes_first() -> None:
    for duration, first in ((10, 10), (90_000, MINUTE)):
        sim = Sim(workflow(task("w", duration_ms=duration, deadline_ms=MINUTE)))
        decision = sim.step(Start())
        assert timers(sim, decision.events) == [sim.now + first]
        sim.now += first
        sim.step(TimerDue(), *sim.late())
        assert sim.letters() == ("C" if first == 10 else "D")
        assert not sim.state.waits
        assert not sim.state.deadlines


def test_a_map_keeps_the_deadline_of_its_start_while_it_gathers() -> None:
    sim = Sim(workflow(task("m", items=[1, 2], deadline_ms=MINUTE))).start()
    due = sim.now + MINUTE
    sim.now += 1_000
    sim.step(done(0, 0), done(0, 1))
    assert (sim.letters(), dict(sim.state.deadlines)) == ("Q", {0: due})
    sim.now = due
    sim.step(Overdue(task=0, attempt=1))
    assert sim.letters() == "D"
    sim.step(Retry(tasks=(0,), by="eve"))
    assert (sim.letters(), dict(sim.state.deadlines)) == ("Q", {0: due + MINUTE})


def test_a_map_fails_whole_and_is_judged_again_with_what_had_not_completed() -> None:
    sim = Sim(workflow(task("m", items=[1, 2, 3], max_concurrency=2, deadline_ms=MINUTE))).start()
    sim.step(done(0, 0))
    sim.now += MINUTE
    sim.step(*sim.late())
    state = sim.state.maps[0]
    assert (sim.letters(), state.items, state.queued, state.cancelled) == ("D", b"CXX", 0, 2)
    assert sim.step(done(0, 1)).events == ()  # late
    sim.step(Retry(judged=(0,), by="eve"))
    assert (sim.letters(), sim.state.maps[0].items) == ("W", b"CQQ")
    assert dict(sim.state.deadlines) == {0: sim.now + MINUTE}
    sim.step(done(0, 1), done(0, 2))
    sim.step(done(0))
    assert sim.state.status is ExecutionStatus.COMPLETED


def test_a_map_with_a_dead_item_fails_because_of_the_item() -> None:
    sim = Sim(workflow(task("m", items=[1, 2], deadline_ms=MINUTE))).start()
    sim.step(failed(0, 0))
    assert sim.letters() == "W"
    sim.now += MINUTE
    sim.step(*sim.late())
    (event,) = sim.of(ev.TaskFailed)
    assert (event.failure.failure.type, event.failure.index) == ("MAP_ITEM_FAILED", 0)
    assert sim.state.maps[0].items == b"DX"
    sim.step(Retry(items=((0, 0),), by="eve"))
    assert sim.state.maps[0].items == b"QQ"
    assert dict(sim.state.deadlines) == {0: sim.now + MINUTE}


def test_cancelling_and_the_end_of_the_execution_remove_every_deadline() -> None:
    sim = Sim(workflow(task("a", deadline_ms=MINUTE), task("m", items=[1], deadline_ms=5))).start()
    sim.step(Cancel(by="eve"))
    assert not sim.state.deadlines
    timed = Sim(workflow(task("a", deadline_ms=MINUTE), timeout_ms=1_000)).start()
    timed.now += 1_000
    timed.step(TimerDue())
    assert timed.state.status is ExecutionStatus.FAILED
    assert not timed.state.deadlines


def test_a_history_in_which_a_waiting_task_fails_before_its_deadline_is_impossible() -> None:
    sim = Sim(workflow(task("w", duration_ms=90_000, deadline_ms=MINUTE))).start()
    record = FailureRecord(failure=BOOM, task="w")
    early = ev.TaskFailed(at=sim.now + MINUTE - 1, task=0, failure=record)
    with pytest.raises(IllegalTransition):
        fold(sim.state, [early])
