"""Map items that wait for signals, in `decide`: order, limits of one commit, every status."""

from __future__ import annotations

import random
from typing import Any

import pytest
from core_build import RETRY, Raw, Sim, done, failed, given_back, task, workflow
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.domain import events as ev
from orchestrator.domain.effects import messages_for
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
from orchestrator.domain.itemsignals import AT_LEAST, AT_ONCE, left
from orchestrator.domain.messages import MessageType
from orchestrator.domain.signalling import MAX_BUFFERED
from orchestrator.domain.state import ExecutionState, MapState
from orchestrator.domain.status import ExecutionStatus
from orchestrator.domain.taken import MARK_CHARS, mark_of, pack_taken, unpack_taken
from orchestrator.domain.tolerance import Tolerance
from orchestrator.domain.transitions import IllegalTransition
from orchestrator.domain.workflow import TaskSpec, TaskType, Workflow

COMPLETED, FAILED = ExecutionStatus.COMPLETED, ExecutionStatus.FAILED
LATE = Failure(type=FailureType.SIGNAL_TIMEOUT, message="late", retryable=False)


def arrived(id: str, name: str = "go", at: int = 0) -> SignalArrived:
    return SignalArrived(id=id, name=name, received_at=at)


def asks(id: str, items: int, *needs: str, signal: str = "go", **fields: Any) -> Raw:
    """A map whose items wait for a signal each."""
    do = TaskSpec(id=id, type=TaskType.SIGNAL, signal=signal, timeout_ms=1, retry=RETRY)
    return task(id, *needs, items=list(range(items)), do=do, **fields)


def taken(sim: Sim) -> list[tuple[int, int | None, str]]:
    """(task, item, signal), in order."""
    found: list[tuple[int, int | None, str]] = []
    for one in sim.history:
        if isinstance(one, ev.MapItemSignalled):
            found.append((one.task, one.item, one.signal))
        elif isinstance(one, ev.TaskCompleted) and one.signal:
            found.append((one.task, None, one.signal))
    return found


def items(sim: Sim, task: int = 0) -> str:
    return sim.state.maps[task].items.decode()


def test_items_take_signals_in_order_and_the_map_is_gathered() -> None:
    sim = Sim(workflow(asks("m", 3))).start()
    assert sim.flight == {(0, 0), (0, 1), (0, 2)}, "a worker keeps their time"
    decision = sim.step(arrived("b", at=2), arrived("a", at=1))
    assert decision.signalled_items == {(0, 0): "a", (0, 1): "b"}
    assert (items(sim), dict(sim.state.signals)) == ("CCQ", {})
    assert sim.state.taken == {(0, 0): mark_of("a"), (0, 1): mark_of("b")}
    sim.step(arrived("a"), arrived("c"), arrived("b"))
    assert (items(sim), sim.letters()) == ("CCC", "Q")
    assert (0, None) in sim.flight
    sim.step(done(0))
    assert sim.state.status is COMPLETED
    assert fold(None, sim.history) == sim.state


def test_an_early_signal_waits_for_the_items_turn() -> None:
    """One at a time: what came early is taken item by item, in one decision."""
    sim = Sim(workflow(task("a"), asks("m", 3, "a", max_concurrency=1))).start()
    sim.step(arrived("x"), arrived("y", at=1))
    assert dict(sim.state.signals) == {"go": ("x", "y")}
    sim.step(done(0))
    assert taken(sim) == [(1, 0, "x"), (1, 1, "y")]
    assert (items(sim, 1), sim.state.maps[1].queued) == ("CCQ", 1)


def test_maps_and_tasks_of_one_name_are_served_by_position_then_index() -> None:
    sim = Sim(workflow(asks("m", 2), task("s", signal="go"), asks("n", 1))).start()
    sim.step(*(arrived(f"{n}", at=n) for n in range(5)))
    assert taken(sim) == [(0, 0, "0"), (0, 1, "1"), (1, None, "2"), (2, 0, "3")]
    assert dict(sim.state.signals) == {"go": ("4",)}


def test_a_doubled_signal_counts_once_also_when_its_map_has_completed() -> None:
    sim = Sim(workflow(asks("m", 1), asks("n", 1))).start()
    sim.step(arrived("x"))
    sim.step(done(0))
    assert sim.step(arrived("x")).events == ()
    assert (items(sim, 1), dict(sim.state.signals)) == ("Q", {})


def test_a_result_in_the_same_batch_counts_and_the_signal_goes_to_the_next() -> None:
    sim = Sim(workflow(asks("m", 2, tolerate=Tolerance(count=1)))).start()
    sim.step(arrived("x"), failed(0, 0, LATE))
    assert (items(sim), taken(sim)) == ("DC", [(0, 1, "x")])


def test_one_decision_hands_out_what_a_commit_has_room_for_and_calls_itself_again() -> None:
    for count, most in ((100, AT_ONCE - 1), (10_000, 16)):
        sim = Sim(workflow(asks("m", count))).start()
        decision = sim.step(*(arrived(f"{n:03}", at=n) for n in range(100)))
        assert len(decision.signalled_items) == most
        for _ in range(30):
            sent = messages_for(sim.workflow, "t", "x", decision.events, sim.state)
            again = [one for one in sent if one.message.type is MessageType.TIMER_DUE]
            assert len(again) == left(sim.workflow, sim.state)
            if not again:
                break
            decision = sim.step(TimerDue())
        assert [item for _, item, _ in taken(sim)] == list(range(100)), "in order"


def test_the_buffer_stays_bounded_while_items_wait() -> None:
    sim = Sim(workflow(asks("m", 10_000))).start()
    sim.step(*(arrived(f"{n:05}", at=n) for n in range(5 * MAX_BUFFERED)))
    assert len(sim.state.signals["go"]) <= 2 * MAX_BUFFERED


def test_paused_executions_buffer_and_resuming_serves() -> None:
    sim = Sim(workflow(asks("m", 2))).start()
    sim.step(Pause(by="eve"))
    sim.step(arrived("x"))
    assert (items(sim), dict(sim.state.signals)) == ("QQ", {"go": ("x",)})
    assert not left(sim.workflow, sim.state)
    sim.step(Resume(by="eve"), Lost((), ((0, 0), (0, 1))))
    assert items(sim) == "CQ"
    (again,) = sim.of(ev.TasksRequeued)
    assert again.items == ((0, 1),), "who has a signal is not lost"


def test_failing_fast_no_item_takes_a_signal_but_a_handlers() -> None:
    sim = Sim(
        workflow(task("bad"), asks("m", 1), asks("h", 1, "bad", run_when="anyFailed"))
    ).start()
    sim.step(failed(0), arrived("x"))
    assert taken(sim) == [(2, 0, "x")]
    sim.step(arrived("y"))
    assert not left(sim.workflow, sim.state)
    sim.step(given_back(1, 0), done(2))
    assert (sim.letters(), sim.state.status) == ("DXC", FAILED)


def test_an_operators_retry_of_an_item_is_served_by_the_next_decision() -> None:
    """Its document is part of the operator's batch already."""
    sim = Sim(workflow(asks("m", 2), on_failure="continue")).start()
    sim.step(failed(0, 0, LATE))
    sim.step(arrived("x"))
    assert taken(sim) == [(0, 1, "x")]
    assert sim.state.status is FAILED
    decision = sim.step(arrived("y"), Retry(by="eve", items=((0, 0),)))
    assert (items(sim), decision.signalled_items) == ("QC", {})
    sent = messages_for(sim.workflow, "t", "x", decision.events, sim.state)
    assert MessageType.TIMER_DUE in [one.message.type for one in sent]
    sim.step(TimerDue())
    assert taken(sim)[-1] == (0, 0, "y")


def test_an_operators_output_is_no_signal() -> None:
    sim = Sim(workflow(asks("m", 1))).start()
    sim.step(failed(0, 0, LATE))
    sim.step(Override(by="eve", task=0, item=0))
    assert (items(sim), sim.letters(), dict(sim.state.taken)) == ("C", "Q", {})


def test_a_deadline_fails_the_map_and_others_are_served_by_the_next_decision() -> None:
    """What is overdue is taken over in the same commit, which is full with that."""
    flow = workflow(asks("m", 1, deadline_ms=500, continue_on_error=True), asks("n", 1))
    sim = Sim(flow).start()
    sim.now += 500
    decision = sim.step(Overdue(task=0), arrived("x"))
    assert (sim.letters(), taken(sim)) == ("DW", [])
    sent = messages_for(sim.workflow, "t", "x", decision.events, sim.state)
    assert MessageType.TIMER_DUE in [one.message.type for one in sent]
    sim.step(TimerDue())
    assert taken(sim) == [(1, 0, "x")]


def test_cancelling_with_compensation_does_not_wait_for_signals() -> None:
    sim = Sim(workflow(task("a", compensate=True), asks("m", 2, "a"))).start()
    sim.step(done(0))
    sim.step(Cancel(by="eve", compensate=True))
    assert not sim.step(arrived("x")).events
    sim.step(given_back(1, 0), given_back(1, 1))
    assert sim.letters()[:2] == "CX"
    assert (2, None) in sim.flight


def test_cancel_beside_a_signal() -> None:
    sim = Sim(workflow(asks("m", 2))).start()
    sim.step(arrived("x"), Cancel(by="eve"))
    assert (sim.letters(), items(sim)) == ("X", "CX")


def test_marks_are_short_and_pack() -> None:
    marks = {(0, 7): mark_of("a"), (3, 0): mark_of("a" * 64), (0, 12): mark_of("~" + "0" * 40)}
    assert {len(mark) for mark in marks.values()} == {MARK_CHARS}
    assert unpack_taken(pack_taken(marks)) == marks
    assert not any("," in mark or ":" in mark for mark in marks.values())


def _waiting(**fields: Any) -> ExecutionState:
    progress = MapState(items=b"QC", count=2, queued=1, completed=1)
    return ExecutionState(
        status=ExecutionStatus.RUNNING, tasks=b"W", accepted_at=1, maps={0: progress}, **fields
    )


def test_evolve_refuses_what_cannot_have_happened() -> None:
    took = ev.MapItemSignalled(at=5, task=0, item=0, signal="x")
    after = evolve(_waiting(signals={"go": ("x", "y")}), took)
    assert (after.signals, after.taken) == ({"go": ("y",)}, {(0, 0): mark_of("x")})
    assert (after.maps[0].queued, after.maps[0].completed) == (0, 2)
    again = ev.SignalReceived(at=5, id="x", name="go")
    settled = ev.MapItemSignalled(at=5, task=0, item=1, signal="x")
    for state, event in (
        (_waiting(), took),
        (_waiting(signals={"go": ("y", "x")}), took),
        (_waiting(signals={"go": ("x",)}), settled),
        (_waiting(taken={(9, 9): mark_of("x")}), again),
    ):
        with pytest.raises(IllegalTransition):
            evolve(state, event)


# --- any order, any batch -------------------------------------------------------------------------


@st.composite
def flows(draw: Any) -> Workflow:
    tasks: list[Raw] = []
    for position in range(draw(st.integers(1, 5))):
        earlier = [f"t{p}" for p in range(position)]
        needs = draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)) if earlier else []
        fields: dict[str, Any] = {"run_when": draw(st.sampled_from(["allSucceeded", "allDone"]))}
        fields["continue_on_error"] = draw(st.booleans())
        kind, id = draw(st.integers(0, 4)), f"t{position}"
        if kind == 0:
            tasks.append(task(id, *needs, signal=draw(st.sampled_from("ab")), **fields))
        elif kind == 1:
            tasks.append(task(id, *needs, **fields))
        else:
            fields["max_concurrency"] = draw(st.integers(0, 2))
            fields["tolerate"] = Tolerance(count=draw(st.integers(0, 2)))
            count, signal = draw(st.integers(0, 5)), draw(st.sampled_from("ab"))
            tasks.append(asks(id, count, *needs, signal=signal, **fields))
    return workflow(*tasks, on_failure=draw(st.sampled_from(["continue", "failFast", "hold"])))


@settings(max_examples=200, deadline=None)
@given(flows(), st.integers(0, 2**32), st.sampled_from([1, AT_LEAST]))
def test_each_signal_is_taken_at_most_once_and_none_is_lost(
    flow: Workflow, seed: int, room: int
) -> None:
    """With time-outs by the workers, doubled messages, pauses and lost messages; also if a commit
    has room for one item only."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AT_ONCE", "AT_LEAST"):
            patch.setattr(f"orchestrator.domain.itemsignals.{name}", room)
        _play(flow, random.Random(seed))


def _play(flow: Workflow, rng: random.Random) -> None:
    sim = Sim(flow)
    signals = [arrived(f"{n}", rng.choice("ab"), at=n) for n in range(rng.randint(0, 14))]
    names = {one.id: one.name for one in signals}
    told: list[SignalArrived] = []
    for _ in range(300):
        if sim.state.ended_at is not None:
            break
        inputs: list[Any] = [Start()] if sim.state.started_at is None else []
        if rng.random() < 0.7 and (new := [one for one in signals if one not in told]):
            new = rng.sample(new, rng.randint(1, len(new)))
            told += new
            inputs += new
        if told and rng.random() < 0.4:
            inputs += rng.sample(told, rng.randint(1, len(told)))  # doubled
        if sim.flight and rng.random() < 0.5:
            inputs.append(_answer(sim, rng))
        if rng.random() < 0.3:
            places = tuple((at, item) for at in range(len(flow.tasks)) for item in range(3))
            noise: list[Any] = [Pause(by="e"), Resume(by="e"), TimerDue(), Lost((), places)]
            inputs.append(rng.choice(noise))
        rng.shuffle(inputs)
        sim.now += rng.randint(0, 10)
        before = sim.state
        sim.step(*inputs)
        _account(sim, before, told, names)
    assert fold(None, sim.history) == sim.state


def _answer(sim: Sim, rng: random.Random) -> Any:
    key = rng.choice(sorted(sim.flight, key=str))
    if key[1] is None:
        return sim.answer(key)
    sim.flight.discard(key)  # a worker fails an item at the end of its time, or gives it back
    stopped = sim.state.failure is not None and rng.random() < 0.5
    return given_back(*key) if stopped else failed(*key, LATE)


def _account(
    sim: Sim, before: ExecutionState, told: list[SignalArrived], names: dict[str, str]
) -> None:
    took, flow = taken(sim), sim.workflow
    assert len({id for _, _, id in took}) == len(took), "taken twice"
    assert len({(at, item) for at, item, _ in took}) == len(took), "one took two"
    for at, _, id in took:
        listener = flow.tasks[at].listener
        assert listener is not None
        assert listener.signal == names[id]
    if sim.state.ended_at is not None:
        return
    buffered = [id for ids in sim.state.signals.values() for id in ids]
    wanted = [one.id for one in told if one.name in flow.signals]
    assert sorted([*buffered, *(id for _, _, id in took)]) == sorted(wanted), "lost"
    if sim.state.status is not ExecutionStatus.RUNNING:
        return
    waits = any(
        sim.letters()[at] == "W" and flow.tasks[at].do is None
        for name in sim.state.signals
        for at in flow.signals[name]
    )
    if left(flow, sim.state) or waits:
        moved = len(sim.state.taken) > len(before.taken)
        assert moved, "nobody took a signal although somebody waits beside it"
