"""Signals of code workflows: early ones, doubles, bursts, time limits, generations.

pyproject turns the library's warning of a duplicate completion into an error, so each of these is
also a proof that it never sees an event that nobody waits for.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest

from activities import CodeContext, TaskFailed
from activities.code.frame import Frame
from activities.code.registry import CodeRegistry
from orchestrator.domain.payload import Payload
from tests.support.durable_hand import Hand, envelope, signal

Flow = Generator[Any, Any, Any]


def hand(fn: Any, text: str = "") -> Hand:
    made = CodeRegistry()
    made.register("flow", 1, fn)
    return Hand(made, "code_flow_v1", text or envelope("flow"))


def three(ctx: CodeContext) -> Flow:
    yield ctx.call_activity("a")
    found = []
    for _ in range(3):
        found.append((yield ctx.wait_for_signal("go")))
    return found


def test_signals_that_come_early_in_a_burst_are_all_kept_in_order() -> None:
    run = hand(three)
    for number in range(3):
        run.raises("go", signal(f"s{number}", number))
    run.turn()
    assert not run.done
    assert run.gives(0).turn().end().output == [0, 1, 2]


def test_a_signal_handed_over_twice_counts_once() -> None:
    run = hand(three).gives(0).turn()
    run.raises("go", signal("s0", 0)).raises("go", signal("s0", 0)).turn()
    run.raises("go", signal("s0", 0)).raises("go", signal("s1", 1)).turn()
    assert not run.done
    run.raises("go", signal("s1", 1)).raises("go", signal("s2", 2)).turn()
    assert run.end().output == [0, 1, 2]


def test_a_double_does_not_end_a_group_that_waits() -> None:
    def flow(ctx: CodeContext) -> Flow:
        first = yield ctx.wait_for_signal("go")
        work = ctx.call_activity("a")
        won = yield ctx.any([ctx.wait_for_signal("go"), work])
        return [first, won is work]

    run = hand(flow).raises("go", signal("s0", 0)).turn()
    run.raises("go", signal("s0", 0)).turn()
    assert not run.done
    assert run.gives(0).turn().end().output == [0, True]


def test_signals_of_other_names_do_not_count() -> None:
    def flow(ctx: CodeContext) -> Flow:
        b = yield ctx.wait_for_signal("b")
        return [b, (yield ctx.wait_for_signal("a"))]

    run = hand(flow).raises("a", signal("s1", "for a")).turn()
    assert not run.done
    assert run.raises("b", signal("s2", "for b")).turn().end().output == ["for b", "for a"]


def test_a_signal_in_time_cancels_the_timer() -> None:
    def flow(ctx: CodeContext) -> Flow:
        got = yield ctx.wait_for_signal("go", timeout="1h")
        yield ctx.call_activity("a")
        return got

    run = hand(flow).raises("go", signal("s", 1)).turn()
    state = run.state["actions"][0][0]["compoundActions"]
    assert [action.get("isCanceled") for action in state] == [None, True]


def test_a_signal_too_late_is_kept_for_the_next_wait() -> None:
    def flow(ctx: CodeContext) -> Flow:
        try:
            yield ctx.wait_for_signal("go", timeout="1h")
        except TaskFailed as error:
            yield ctx.call_activity("remind")
            return [error.type, (yield ctx.wait_for_signal("go"))]

    run = hand(flow).fires(0).turn()
    run.raises("go", signal("late", 5)).turn()
    run.gives(1).turn()
    assert run.end().output == ["SIGNAL_TIMEOUT", 5]


def test_durables_host_never_waits_for_a_signal_that_has_come() -> None:
    """It may have handed it to the wait that timed out, and would then block all later steps."""

    def flow(ctx: CodeContext) -> Flow:
        try:
            yield ctx.wait_for_signal("go", timeout="1h")
        except TaskFailed:
            yield ctx.call_activity("a")
            yield ctx.wait_for_signal("go")
            yield ctx.call_activity("b")

    run = hand(flow).fires(0).turn().raises("go", signal("s")).turn().gives(1).turn()
    assert [action["actionType"] for action in run.actions] == [11, 0, 12, 0]
    assert run.actions[2]["compoundActions"] == []


def test_of_several_waits_the_newest_gets_the_signal() -> None:
    """As in Durable's host: a wait that lost a race and was left swallows nothing."""

    def flow(ctx: CodeContext) -> Flow:
        for _ in range(2):
            yield ctx.any([ctx.call_activity("a"), ctx.wait_for_signal("go")])
        return (yield ctx.wait_for_signal("go"))

    run = hand(flow).gives(0).turn().gives(1).turn()
    assert run.raises("go", signal("s", "here")).turn().end().output == "here"


def test_a_stored_payload_is_loaded_also_within_a_group() -> None:
    def flow(ctx: CodeContext) -> Flow:
        return (yield ctx.all([ctx.wait_for_signal("go"), ctx.sleep("1s")]))

    big = signal("s", payload=None, payload_ref=Payload(ref="r", size=99))
    run = hand(flow).raises("go", big).fires(0).turn()
    assert run.sent(1) == {"op": "load", "payload": {"ref": "r", "bytes": 99}}
    assert run.answers(1, '"big"').turn().end().output == ["big", None]


def test_a_stored_payload_that_is_gone_fails_the_wait() -> None:
    def flow(ctx: CodeContext) -> Flow:
        try:
            yield ctx.wait_for_signal("go")
        except TaskFailed as error:
            return error.type

    big = signal("s", payload=None, payload_ref=Payload(ref="r", size=99))
    run = hand(flow).raises("go", big).turn().fails(0, "PayloadNotFound").turn()
    assert run.end().output == "PayloadNotFound"


def test_what_somebody_else_raises_is_the_payload_itself() -> None:
    def flow(ctx: CodeContext) -> Flow:
        return (yield ctx.wait_for_signal("go"))

    assert hand(flow).raises("go", '{"ok": true}').turn().end().output == {"ok": True}


# --- generations ----------------------------------------------------------------------------------


def looping(ctx: CodeContext, count: int) -> Flow:
    got = yield ctx.wait_for_signal("go")
    yield ctx.call_activity("a", got)
    return ctx.continue_as_new(count + 1)


def test_the_next_generation_has_the_signals_that_were_not_taken() -> None:
    run = hand(looping, envelope("flow", 7))
    run.raises("go", signal("s0", 0)).raises("go", signal("s1", 1)).turn()
    run.gives(0).raises("go", signal("s1", 1)).raises("go", signal("s2", 2)).turn()
    assert run.state["isDone"]
    assert run.names() == ["weft_activity"]  # no word of an end
    (last,) = [action for action in run.actions if action["actionType"] == 4]
    frame = Frame.decode(json.loads(last["input"]))
    assert (frame.generation, json.loads(frame.envelope.input or "")) == (1, 8)
    assert [json.loads(text)["payload"] for _, text in frame.signals] == [1, 2]

    after = hand(looping, frame.encode())
    assert after.sent(0)["input"] == 1
    assert after.sent(0)["key"] == "e1:1:1"  # other work than that of the generation before
    after.raises("go", signal("s0", 0)).gives(0).turn()
    assert after.state["isDone"]
    (last,) = [action for action in after.actions if action["actionType"] == 4]
    kept = Frame.decode(json.loads(last["input"])).signals
    assert [json.loads(text)["payload"] for _, text in kept] == [2]


@pytest.mark.parametrize("also", ["yields", "calls"])
def test_going_on_after_continue_as_new_is_a_failure(also: str) -> None:
    def flow(ctx: CodeContext) -> Flow:
        task = ctx.sleep("1s")
        ctx.continue_as_new(1)
        yield task if also == "yields" else ctx.call_activity("a")

    assert hand(flow).end().failure.type == "ContinueAsNew"
