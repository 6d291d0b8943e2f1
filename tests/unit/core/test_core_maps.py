"""Maps: order of dispatch, the end of the last item, failed items, and what fail-fast does."""

from __future__ import annotations

import random
from typing import Any

import pytest
from core_build import BOOM, Sim, done, failed, given_back, task, workflow

from orchestrator.domain import events as ev
from orchestrator.domain.failure import FailureType
from orchestrator.domain.status import ExecutionStatus

FAILED = ExecutionStatus.FAILED


def test_empty_map_then_a_second_map_then_a_plain_task() -> None:
    flow = workflow(
        task("m", items="${input.lines}"),
        task("m2", "m", items="${tasks.m.output}"),
        task("plain", "m2"),
    )
    sim = Sim(flow, input={"lines": []})
    decision = sim.step(*[])
    assert decision.events == ()
    sim.start()
    assert sim.letters() == "CCQ"
    assert sim.sent == [(2, None)]  # no message for the maps
    assert sim.facts["m"]["output"] == sim.facts["m2"]["output"] == []
    assert sim.state.maps == {}
    sim.step(done(2))
    assert sim.state.status is ExecutionStatus.COMPLETED


def test_items_go_out_in_order_up_to_max_concurrency_then_the_map_is_gathered() -> None:
    flow = workflow(task("m", items="${input}", max_concurrency=3), output="${tasks.m.output}")
    sim = Sim(flow, input=[10, 11, 12, 13, 14], work=lambda key: key[1]).start()
    assert sim.sent == [(0, 0), (0, 1), (0, 2)]
    sim.step(done(0, 1))
    assert sim.sent[3:] == [(0, 3)]
    sim.step(done(0, 0), done(0, 3))
    assert sim.sent[4:] == [(0, 4)]
    sim.step(done(0, 4), done(0, 2))
    assert (sim.letters(), sim.sent[5:]) == ("Q", [(0, None)])
    assert [event.items for event in sim.of(ev.MapItemsCompleted)] == [(1,), (0, 3), (2, 4)]
    sim.step(sim.answer((0, None)))
    assert sim.state.status is ExecutionStatus.COMPLETED
    assert sim.state.output is not None
    assert sim.state.output.text == "[0,1,2,3,4]"


def test_without_a_limit_all_items_are_one_event() -> None:
    sim = Sim(workflow(task("m", items="${input}")), input=list(range(10_000))).start()
    assert [(e.start, e.count) for e in sim.of(ev.MapItemsQueued)] == [(0, 10_000)]


@pytest.mark.parametrize("value", [{"a": 1}, "abc", 7, None, True, list(range(10_001))])
def test_items_must_be_a_list_of_limited_length(value: Any) -> None:
    sim = Sim(workflow(task("m", items="${input}")), input=value).start()
    failure = sim.of(ev.TaskFailed)[0].failure.failure
    assert (failure.type, failure.field) == (FailureType.MAP_ITEMS_INVALID, "$.tasks.m.items")
    assert (failure.retryable, failure.expression) == (False, "input")


def test_items_over_the_payload_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.domain.evaluation.MAX_PAYLOAD_BYTES", 10)
    sim = Sim(workflow(task("m", items="${input}")), input=["x" * 20]).start()
    assert sim.of(ev.TaskFailed)[0].failure.failure.type == FailureType.PAYLOAD_TOO_LARGE


def test_a_failed_item_ends_the_map_when_none_is_in_flight() -> None:
    flow = workflow(task("m", items=[1, 2, 3, 4], max_concurrency=2), task("x", "m"))
    sim = Sim(flow).start()
    sim.step(failed(0, 1))
    assert (sim.letters(), sim.sent) == ("WP", [(0, 0), (0, 1)])  # nothing further goes out
    assert sim.state.failure is None
    sim.step(done(0, 0))
    assert (sim.letters(), sim.state.maps[0].items) == ("DX", b"CDPP")
    record = sim.of(ev.TaskFailed)[0].failure
    assert (record.task, record.index, record.failure.type) == ("m", 1, FailureType.MAP_ITEM_FAILED)
    assert record.failure.causes == (BOOM,)
    assert sim.facts["m"]["error"]["causes"][0]["type"] == "Boom"  # type: ignore[index,call-overload]
    assert sim.state.status is FAILED


def test_a_map_may_fail_without_failing_the_execution() -> None:
    flow = workflow(
        task("m", items=[1], continue_on_error=True), task("x", "m", run_when="anyFailed")
    )
    sim = Sim(flow).start()
    sim.step(failed(0, 0))
    assert sim.letters() == "DQ"
    sim.step(done(1))
    assert sim.state.status is ExecutionStatus.COMPLETED


def test_a_gathering_may_fail() -> None:
    sim = Sim(workflow(task("m", items=[1]))).start()
    sim.step(done(0, 0))
    sim.step(failed(0))
    assert (sim.letters(), sim.state.status) == ("D", FAILED)


def mapping_beside_failure(run_when: str = "allSucceeded", **fields: Any) -> Sim:
    flow = workflow(
        task("bad"),
        task("m", items=[1, 2, 3], max_concurrency=2, run_when=run_when, **fields),
    )
    sim = Sim(flow).start()
    assert sim.letters() == "QW"
    return sim


def test_fail_fast_lets_items_in_flight_end_and_starts_no_more() -> None:
    sim = mapping_beside_failure()
    sim.step(failed(0))
    assert sim.letters() == "DW"
    assert sorted(sim.sent[3:]) == [(1, 0), (1, 1)]  # called again, nothing new
    sim.step(done(1, 0))
    assert (sim.letters(), sim.state.maps[1].items) == ("DW", b"CQP")
    sim.step(given_back(1, 1))
    assert (sim.letters(), sim.state.maps[1].items) == ("DX", b"CXX")
    assert sim.state.status is FAILED


def test_fail_fast_cancels_a_map_whose_last_item_ends_in_the_same_batch() -> None:
    sim = mapping_beside_failure()
    sim.step(done(1, 0), done(1, 1))
    sim.step(done(1, 2), failed(0))
    assert (sim.letters(), sim.state.status) == ("DX", FAILED)


def test_fail_fast_does_not_stop_a_handler_map() -> None:
    sim = mapping_beside_failure("allDone")
    sim.step(failed(0))
    sim.step(done(1, 0), done(1, 1))
    assert sim.sent[-1] == (1, 2)
    sim.step(done(1, 2))
    sim.step(done(1))
    assert (sim.letters(), sim.state.status) == ("DC", FAILED)


def test_a_failed_item_outweighs_the_cancelling_of_its_map() -> None:
    sim = mapping_beside_failure()
    sim.step(failed(0), failed(1, 0))
    sim.step(given_back(1, 1))
    assert sim.letters() == "DD"
    assert sim.of(ev.ExecutionFailed)[0].failure.task == "bad"


def test_items_given_back_without_a_failure_still_end_the_map() -> None:
    """Contradicts the protocol, but an execution that never ends would be worse."""
    sim = Sim(workflow(task("m", items=[1, 2], max_concurrency=1))).start()
    sim.step(given_back(0, 0))
    assert (sim.letters(), sim.of(ev.TasksCancelled)[0].reason) == ("X", "cancelled")


def test_wide_map_in_random_batches_dispatches_each_item_once() -> None:
    rng = random.Random(7)
    flow = workflow(task("m", items="${input}", max_concurrency=20))
    sim = Sim(flow, input=list(range(700))).run(rng, batch=30, noise=False)
    assert sorted(sim.sent, key=repr) == sorted(
        [(0, n) for n in range(700)] + [(0, None)], key=repr
    )
    assert sim.sent[:-1] == [(0, n) for n in range(700)]


def test_a_map_started_before_the_failure_of_the_same_decision_is_cancelled() -> None:
    flow = workflow(
        task("m", items=[1]),
        task("bad", "w", when="1 / 0 == 1"),  # in the wave after the map's
        task("w", duration_ms=0),
    )
    sim = Sim(flow).start()
    assert (sim.letters(), sim.sent, sim.state.status) == ("XDC", [], FAILED)


def test_doubled_and_contradicting_items_of_one_batch_count_once() -> None:
    sim = Sim(workflow(task("m", items=[1, 2, 3]))).start()
    sim.step(done(0, 0), done(0, 0), failed(0, 0), failed(0, 1), given_back(0, 1), failed(0, 2))
    assert sim.state.maps[0].items == b"CDD"
    assert sim.of(ev.TaskFailed)[0].failure.index == 1  # the first that failed
