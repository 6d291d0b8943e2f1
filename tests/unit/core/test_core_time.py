"""Waits and the execution's deadline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from core_build import Raw, Sim, done, failed, task, workflow

from orchestrator.domain import events as ev
from orchestrator.domain.failure import FailureType
from orchestrator.domain.inputs import TimerDue
from orchestrator.domain.status import ExecutionStatus

COMPLETED, FAILED = ExecutionStatus.COMPLETED, ExecutionStatus.FAILED


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
