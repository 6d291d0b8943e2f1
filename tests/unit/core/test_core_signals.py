"""Signals in `decide`: buffered when early, consumed once and in order, timeouts, every status."""

from __future__ import annotations

import random
from typing import Any

import pytest
from core_build import Sim, done, failed, task, workflow
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.domain import events as ev
from orchestrator.domain.effects import messages_for, next_wake
from orchestrator.domain.evolve import evolve, fold
from orchestrator.domain.failure import Failure, FailureType
from orchestrator.domain.inputs import (
    Cancel,
    Lost,
    Overdue,
    Override,
    Pause,
    Resume,
    Retry,
    SignalArrived,
    Start,
    TimerDue,
)
from orchestrator.domain.messages import MessageType
from orchestrator.domain.signalling import MAX_BUFFERED, key_of
from orchestrator.domain.state import ExecutionState, FailureRecord
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.topology import MAX_SCHEDULE_AHEAD_MS
from orchestrator.domain.transitions import IllegalTransition
from orchestrator.domain.workflow import Workflow

COMPLETED, FAILED = ExecutionStatus.COMPLETED, ExecutionStatus.FAILED


def arrived(id: str, name: str = "go", at: int = 0) -> SignalArrived:
    return SignalArrived(id=id, name=name, received_at=at)


def consumed(sim: Sim) -> list[tuple[int, str]]:
    return [(one.task, one.signal) for one in sim.of(ev.TaskCompleted) if one.signal]


def test_a_signal_task_waits_for_ever_and_its_signal_completes_it() -> None:
    sim = Sim(workflow(task("s", signal="go"), task("after", "s"))).start()
    assert (sim.letters(), dict(sim.state.waits), next_wake(sim.state)) == ("WP", {}, None)
    assert sim.flight == set(), "no worker is asked"
    sim.now += 10**12
    assert sim.step(TimerDue(), Lost()).events == ()
    decision = sim.step(arrived("x"))
    assert decision.signalled == {0: "x"}
    assert sim.letters() == "CQ"
    assert (dict(sim.state.signals), dict(sim.state.consumed)) == ({}, {0: "x"})


def test_an_early_signal_is_kept_until_its_task_starts() -> None:
    sim = Sim(workflow(task("a"), task("s", "a", signal="go"))).start()
    sim.step(arrived("x"))
    assert (sim.letters(), dict(sim.state.signals)) == ("QP", {"go": ("x",)})
    sim.step(done(0))
    assert (sim.letters(), sim.state.status) == ("CC", COMPLETED)
    assert not sim.of(ev.SignalAwaited), "it never had to wait"


def test_a_signal_before_the_first_orchestration_takes_the_execution_up() -> None:
    sim = Sim(workflow(task("s", signal="go"), task("other"), timeout_ms=5_000))
    sim.step(arrived("x"))
    assert (sim.letters(), sim.state.deadline_at) == ("CQ", sim.now + 5_000)
    assert sim.step(Start(), arrived("x")).events == ()


def test_a_burst_serves_the_tasks_in_order_and_keeps_the_rest() -> None:
    tasks = [task(f"s{n}", signal="go") for n in range(3)]
    sim = Sim(workflow(*tasks, task("hold", duration_ms=10))).start()
    burst = [arrived(f"n{n:03}", at=n) for n in range(100)]
    random.Random(7).shuffle(burst)
    sim.step(*burst)
    assert consumed(sim) == [(0, "n000"), (1, "n001"), (2, "n002")]
    assert sim.state.signals["go"] == tuple(f"n{n:03}" for n in range(3, 100))
    sim.now += 10
    sim.step(TimerDue())
    assert sim.state.status is COMPLETED
    assert len(sim.state.signals["go"]) == 97, "what nobody took is listed for ever"


def test_tasks_of_one_name_are_served_in_the_order_of_the_definition() -> None:
    sim = Sim(workflow(task("late", "gate", signal="go"), task("gate"), task("s", signal="go")))
    sim.start()
    sim.step(done(1))
    assert sim.letters() == "WCW"
    sim.step(arrived("x"))
    assert consumed(sim) == [(0, "x")]


def test_names_do_not_mix_and_unknown_ones_are_ignored() -> None:
    sim = Sim(workflow(task("a", signal="a"), task("b", signal="b"))).start()
    assert sim.step(arrived("x", "c")).events == ()
    sim.step(arrived("x", "b"))
    assert sim.letters() == "WC"


def test_a_doubled_signal_counts_once_also_after_it_was_taken() -> None:
    sim = Sim(workflow(task("a", signal="go"), task("b", signal="go"))).start()
    sim.step(arrived("x"), arrived("x"))
    sim.step(arrived("x"))
    assert sim.letters() == "CW"
    sim.step(Pause(by="eve"))
    sim.step(arrived("y"))
    assert sim.step(arrived("y"), arrived("x")).events == ()


def test_race_with_the_timeout_in_one_batch_the_signal_that_is_there_counts() -> None:
    for batch in ([TimerDue(), arrived("x")], [arrived("x"), TimerDue()]):
        sim = Sim(workflow(task("s", signal="go", wait_ms=500))).start()
        assert sim.state.waits == {0: sim.now + 500}
        sim.now += 10_000
        sim.step(*batch)
        assert (sim.state.status, consumed(sim)) == (COMPLETED, [(0, "x")])


def test_a_timeout_fails_the_task_and_a_branch_may_escalate() -> None:
    flow = workflow(
        task("s", signal="go", wait_ms=500, continue_on_error=True),
        task("escalate", "s", run_when="anyFailed"),
        task("ship", "s", when="tasks.s.output.ok"),
    )
    sim = Sim(flow).start()
    sim.now += 499
    assert sim.step(TimerDue()).events == ()
    sim.now += 1
    sim.step(TimerDue())
    (fail,) = sim.of(ev.TaskFailed)
    failure = fail.failure.failure
    assert (failure.type, failure.retryable) == (FailureType.SIGNAL_TIMEOUT, False)
    assert "500ms" in failure.message
    assert (sim.letters(), dict(sim.state.waits)) == ("DQS", {})
    late = sim.step(arrived("late"))
    assert [type(event) for event in late.events] == [ev.SignalReceived], "too late: listed"


def test_its_payload_is_read_only_if_an_expression_needs_it() -> None:
    flow = workflow(
        task("s", signal="go"),
        task("yes", "s", when="tasks.s.output.ok"),
        task("no", "s", when="!tasks.s.output.ok"),
    )
    sim = Sim(flow)
    sim.payloads = {"x": {"ok": True}}
    sim.start()
    sim.step(arrived("x"))
    assert sim.letters() == "CQs"
    plain = Sim(workflow(task("s", signal="go"), task("b", "s"))).start()
    assert not plain.decide([arrived("x")]).needs


def test_paused_executions_buffer_and_resuming_serves_before_it_fails() -> None:
    sim = Sim(workflow(task("a", signal="go", wait_ms=100), task("b", signal="go", wait_ms=100)))
    sim.start()
    sim.step(Pause(by="eve"))
    sim.now += 5_000
    sim.step(arrived("x"), TimerDue())
    assert (sim.letters(), dict(sim.state.signals)) == ("WW", {"go": ("x",)})
    sim.step(Resume(by="eve"), TimerDue())
    assert (sim.letters(), sim.state.status) == ("CD", FAILED)


def test_fail_fast_cancels_who_listens_but_a_handler_still_waits() -> None:
    flow = workflow(
        task("bad"),
        task("s", signal="go"),
        task("handler", "bad", signal="go", run_when="anyFailed"),
    )
    sim = Sim(flow).start()
    sim.step(failed(0))
    assert sim.letters() == "DXW"
    sim.step(arrived("x"))
    assert (sim.letters(), sim.state.status) == ("DXC", FAILED)


def test_cancelling_keeps_what_nobody_took() -> None:
    sim = Sim(workflow(task("a"), task("s", "a", signal="go"))).start()
    sim.step(arrived("x"), Cancel(by="eve"))
    assert (sim.letters(), dict(sim.state.signals)) == ("XX", {"go": ("x",)})
    assert sim.step(arrived("y")).events == ()


def test_the_deadline_of_the_execution_ends_the_wait() -> None:
    sim = Sim(workflow(task("s", signal="go"), timeout_ms=1_000)).start()
    sim.now += 1_000
    sim.step(TimerDue())
    assert (sim.letters(), sim.state.status) == ("X", FAILED)


def test_a_timed_out_task_is_judged_anew_by_retry_and_approved_by_skip() -> None:
    sim = Sim(workflow(task("s", signal="go", wait_ms=100), task("b", "s"))).start()
    sim.now += 100
    sim.step(TimerDue())
    assert (sim.letters(), sim.state.status) == ("DX", FAILED)
    sim.step(Retry(by="eve", judged=(0,)))
    assert (sim.letters(), dict(sim.state.waits)) == ("WP", {0: sim.now + 100})
    sim.now += 100
    sim.step(TimerDue())
    sim.step(Override(by="eve", task=0))
    assert sim.letters() == "CQ"


def test_a_signal_that_came_too_late_serves_the_retry() -> None:
    sim = Sim(workflow(task("s", signal="go", wait_ms=100), task("w", duration_ms=900),
                       on_failure="continue")).start()  # fmt: skip
    sim.now += 100
    sim.step(TimerDue())
    sim.step(arrived("x"))
    sim.step(Retry(by="eve", judged=(0,)))
    assert (sim.letters(), consumed(sim)) == ("CW", [(0, "x")])


def test_a_signal_that_comes_with_an_operators_retry_of_a_failed_execution_is_taken_in() -> None:
    sim = Sim(workflow(task("s", signal="go", wait_ms=100))).start()
    sim.now += 100
    sim.step(TimerDue())
    assert sim.state.status is FAILED
    assert sim.step(arrived("x")).events == ()
    sim.step(arrived("x"), Retry(by="eve", judged=(0,)))
    assert (sim.state.status, consumed(sim)) == (COMPLETED, [(0, "x")])


def test_the_buffer_is_bounded_and_room_is_made_by_consuming() -> None:
    sim = Sim(workflow(task("a"), task("s", "a", signal="go"), task("t", signal="other"))).start()
    sim.step(*(arrived(f"{n:05}", at=n) for n in range(MAX_BUFFERED + 5)))
    assert len(sim.state.signals["go"]) == MAX_BUFFERED
    sim.step(arrived("x", "other"))
    assert sim.letters() == "QPC", "what is awaited is taken although the buffer is full"
    sim.step(done(0))
    assert sim.letters() == "CCC"


def test_the_time_limit_is_a_message_unless_it_is_too_far_ahead() -> None:
    for wait, due in ((1_000, True), (MAX_SCHEDULE_AHEAD_MS + 1, False)):
        sim = Sim(workflow(task("s", signal="go", wait_ms=wait))).start()
        awaited = sim.of(ev.SignalAwaited)
        sent = messages_for(sim.workflow, "t", "x", awaited, sim.state)
        assert [one.message.type for one in sent] == ([MessageType.TIMER_DUE] if due else [])
        assert next_wake(sim.state) == sim.now + wait


def test_a_deadline_ends_the_wait_but_a_signal_that_is_there_counts() -> None:
    for batch, letters in (
        ([Overdue(task=0)], "D"),
        ([Overdue(task=0), arrived("x")], "C"),
    ):
        sim = Sim(workflow(task("s", signal="go", wait_ms=900, deadline_ms=500))).start()
        assert next_wake(sim.state) == sim.now + 500
        awaited = sim.of(ev.SignalAwaited)
        (timer,) = messages_for(sim.workflow, "t", "x", awaited, sim.state)
        assert timer.due_at == sim.now + 500
        sim.now += 500
        sim.step(*batch)
        assert (sim.letters(), dict(sim.state.waits), dict(sim.state.deadlines)) == (
            letters,
            {},
            {},
        )


@pytest.mark.parametrize(
    ("id", "plain"),
    [("a", True), ("a" * 64, True), ("A.b_c-9", True), ("a" * 65, False), ("a/b", False),
     ("ä", False), ("~x", False), ("a b", False), ("a:b", False)],
)  # fmt: skip
def test_odd_ids_are_hashed(id: str, plain: bool) -> None:
    key = key_of(id)
    assert (key == id) is plain
    assert key == key_of(id)
    assert len(key) <= 64
    assert not set(key) & set("/\\?#:")


def waiting(**fields: Any) -> ExecutionState:
    return ExecutionState(status=ExecutionStatus.RUNNING, tasks=b"W", accepted_at=1, **fields)


def test_evolve_refuses_what_cannot_have_happened() -> None:
    took = ev.TaskCompleted(at=5, task=0, signal="x")
    assert evolve(waiting(signals={"go": ("x",)}), took).consumed == {0: "x"}
    record = FailureRecord(failure=FAILURE)
    for state, event in (
        (waiting(), took),
        (waiting(signals={"go": ("y", "x")}), took),
        (waiting(signals={"go": ("x",)}), ev.SignalReceived(at=5, id="x", name="go")),
        (waiting(consumed={3: "x"}), ev.SignalReceived(at=5, id="x", name="go")),
        (waiting(waits={0: 6}), ev.TaskFailed(at=5, task=0, failure=record)),
        (waiting(), ev.TaskFailed(at=5, task=0, failure=record)),
        (waiting(), ev.SignalAwaited(at=5, task=0, name="go")),
    ):
        with pytest.raises(IllegalTransition):
            evolve(state, event)


FAILURE = Failure(type="T", message="m")

# --- any order, any batch -------------------------------------------------------------------------


@st.composite
def flows(draw: Any) -> Workflow:
    tasks = []
    for position in range(draw(st.integers(1, 7))):
        earlier = [f"t{p}" for p in range(position)]
        needs = draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)) if earlier else []
        fields: dict[str, Any] = {"run_when": draw(st.sampled_from(["allSucceeded", "allDone"]))}
        fields["continue_on_error"] = draw(st.booleans())
        if draw(st.integers(0, 3)):
            fields["signal"] = draw(st.sampled_from(["a", "b"]))
            fields["wait_ms"] = draw(st.sampled_from([None, None, 5, 50]))
        tasks.append(task(f"t{position}", *needs, **fields))
    return workflow(*tasks, on_failure=draw(st.sampled_from(["continue", "failFast"])))


@settings(max_examples=200, deadline=None)
@given(flows(), st.integers(0, 2**32))
def test_each_signal_is_consumed_at_most_once_and_none_is_lost(flow: Workflow, seed: int) -> None:
    rng = random.Random(seed)
    sim = Sim(flow)
    signals = [arrived(f"{n}", rng.choice("ab"), at=n) for n in range(rng.randint(0, 12))]
    told: list[SignalArrived] = []
    for _ in range(300):
        if sim.state.ended_at is not None:
            break
        inputs: list[Any] = [Start()] if sim.state.started_at is None else []
        if rng.random() < 0.7 and (left := [one for one in signals if one not in told]):
            new = rng.sample(left, rng.randint(1, len(left)))
            told += new
            inputs += new
        if told and rng.random() < 0.4:
            inputs += rng.sample(told, rng.randint(1, len(told)))  # doubled
        if sim.flight and rng.random() < 0.6:
            inputs.append(sim.answer(rng.choice(sorted(sim.flight))))
        if rng.random() < 0.3:
            inputs.append(rng.choice([Pause(by="e"), Resume(by="e"), TimerDue(), Lost()]))
        rng.shuffle(inputs)
        sim.now += rng.randint(0, 10)
        sim.step(*inputs)
        names = {one.id: one.name for one in signals}
        _account(sim, told, names, flow)
    assert fold(None, sim.history) == sim.state


def _account(sim: Sim, told: list[SignalArrived], names: dict[str, str], flow: Workflow) -> None:
    taken = consumed(sim)
    assert len({id for _, id in taken}) == len(taken), "consumed twice"
    assert len({at for at, _ in taken}) == len(taken), "one task took two"
    assert all(flow.tasks[at].signal == names[id] for at, id in taken)
    if sim.state.status is ExecutionStatus.CANCELLED or sim.state.ended_at is not None:
        return
    buffered = [id for ids in sim.state.signals.values() for id in ids]
    wanted = [one.id for one in told if one.name in flow.signals]
    assert sorted([*buffered, *(id for _, id in taken)]) == sorted(wanted), "lost"
    if sim.state.status is ExecutionStatus.RUNNING:
        for name, positions in flow.signals.items():
            idle = [at for at in positions if sim.letters()[at] == "W"]
            assert not (idle and sim.state.signals.get(name)), "a task waits beside its signal"


def test_cancel_with_compensation_does_not_wait_for_signals_that_may_never_come() -> None:
    flow = workflow(task("a", compensate=True), task("s", "a", signal="go"))
    sim = Sim(flow).start()
    sim.step(done(0))
    sim.step(Cancel(by="eve", compensate=True))
    assert sim.letters()[:2] == "CX"
    assert (2, None) in sim.flight, "the compensation is dispatched at once"


def test_a_signal_task_is_undone_like_any_other() -> None:
    flow = workflow(task("s", signal="go", compensate=True), task("b", "s"))
    sim = Sim(flow).start()
    sim.step(arrived("x"))
    sim.step(failed(1))
    assert (2, None) in sim.flight
