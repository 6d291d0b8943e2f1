"""Messages follow from events: which, how many, and when."""

from __future__ import annotations

from core_build import BOOM, Sim, failed, task, workflow

from orchestrator.domain import events as ev
from orchestrator.domain.effects import Outgoing, in_flight, messages_for, next_wake
from orchestrator.domain.inputs import Lost, Start
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.state import FailureRecord
from orchestrator.domain.topology import MAX_SCHEDULE_AHEAD_MS

RUN, TIMER = MessageType.RUN_TASK, MessageType.TIMER_DUE
DAY = 86_400_000


def test_dispatches_become_run_task_messages() -> None:
    flow = workflow(task("a"), task("m", items=[1]))
    state = Sim(flow).state
    events = [
        ev.TasksQueued(at=1, tasks=(0, 1)),
        ev.TasksRequeued(at=1, tasks=(0,), items=((1, 4),)),
        ev.MapItemsQueued(at=1, task=1, start=2, count=2),
        ev.TaskCompleted(at=1, task=0),
    ]
    assert messages_for(flow, "t", "x", events, state) == [
        Outgoing(Message(RUN, "t", "x", "a")),
        Outgoing(Message(RUN, "t", "x", "m")),
        Outgoing(Message(RUN, "t", "x", "a")),
        Outgoing(Message(RUN, "t", "x", "m", 4)),
        Outgoing(Message(RUN, "t", "x", "m", 2)),
        Outgoing(Message(RUN, "t", "x", "m", 3)),
    ]


def test_timers_are_sent_only_as_far_ahead_as_a_broker_keeps_them() -> None:
    flow = workflow(task("a"))
    state = Sim(flow).state
    last = MAX_SCHEDULE_AHEAD_MS
    events = [
        ev.ExecutionStarted(at=5, deadline_at=5 + DAY),
        ev.TaskWaiting(at=5, task=0, due_at=5 + last),
        ev.TaskWaiting(at=5, task=0, due_at=6 + last),
        ev.ExecutionStarted(at=5, deadline_at=5 + 400 * DAY),
        ev.ExecutionStarted(at=5),
    ]
    assert messages_for(flow, "t", "x", events, state) == [
        Outgoing(Message(TIMER, "t", "x"), 5 + DAY),
        Outgoing(Message(TIMER, "t", "x"), 5 + last),
    ]


def test_next_wake_is_the_earliest_of_waits_and_deadline() -> None:
    flow = workflow(
        task("late", duration_ms=400 * DAY), task("soon", duration_ms=9000), timeout_ms=5000
    )
    sim = Sim(flow)
    assert next_wake(sim.state) is None
    sim.start()
    assert next_wake(sim.state) == sim.now + 5000
    sim.now += 5000
    sim.step()
    assert next_wake(sim.state) is None  # ended
    other = Sim(workflow(task("w", duration_ms=400 * DAY))).start()
    assert next_wake(other.state) == other.now + 400 * DAY
    assert next_wake(Sim(workflow(task("a"))).start().state) is None


def test_fail_fast_calls_what_is_in_flight_but_not_twice_and_no_handler() -> None:
    flow = workflow(
        task("bad"),
        task("slow"),
        task("handler", run_when="allDone"),
        task("m", items=[1, 2]),
        task("after", "bad", run_when="anyFailed"),
    )
    sim = Sim(flow).start()
    assert set(in_flight(sim.state)) == {(0, None), (1, None), (2, None), (3, 0), (3, 1)}
    decision = sim.step(failed(0))
    out = messages_for(flow, "t", "x", decision.events, decision.state)
    keys = [(o.message.task, o.message.item) for o in out]
    assert keys == [("after", None), ("slow", None), ("m", 0), ("m", 1)]
    continuing = workflow(task("bad"), task("slow"), on_failure="continue")
    events = [ev.FailureNoted(at=1, failure=FailureRecord(failure=BOOM, task="bad"))]
    assert messages_for(continuing, "t", "x", events, Sim(continuing).start().state) == []


def test_what_was_lost_is_not_called_twice_at_the_failure() -> None:
    flow = workflow(task("bad"), task("slow"))
    sim = Sim(flow).start()
    decision = sim.step(failed(0), Lost((1,)))
    out = messages_for(flow, "t", "x", decision.events, decision.state)
    assert [o.message.task for o in out] == ["slow"]


def test_work_in_flight_is_what_was_sent() -> None:
    flow = workflow(*(task(f"t{n}") for n in range(300)), task("m", items=[1] * 5))
    sim = Sim(flow)
    sim.step(Start())
    assert set(in_flight(sim.state)) == sim.flight
    assert len(sim.flight) == 305
