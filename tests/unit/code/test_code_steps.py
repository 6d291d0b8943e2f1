"""Code workflows over the real library, driven by hand: steps, input and output, failures."""

from __future__ import annotations

import json
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from activities import CodeContext, Retry, TaskFailed
from activities.code.registry import CodeRegistry
from tests.support.durable_hand import START, Hand, envelope

Flow = Generator[Any, Any, Any]


class Order(BaseModel):
    id: str
    total: float


class Receipt(BaseModel):
    order: str
    charge: Any


def registry(fn: Any, **given: Any) -> CodeRegistry:
    made = CodeRegistry()
    made.register("flow", 1, fn, **given)
    return made


def hand(fn: Any, value: Any = None, **given: Any) -> Hand:
    return Hand(registry(fn, **given), "code_flow_v1", envelope("flow", value))


def test_an_activity_is_called_with_a_key_and_its_output_returned_typed() -> None:
    def flow(ctx: CodeContext, order: Order) -> Flow:
        charge = yield ctx.call_activity("orders.charge", order, timeout="30s")
        return Receipt(order=order.id, charge=charge)

    run = hand(flow, {"id": "o1", "total": 2}, input=Order, output=Receipt)
    assert run.sent(0) == {
        "v": 1,
        "activity": "orders.charge",
        "input": {"id": "o1", "total": 2.0},
        "key": "e1:0:1",
        "timeoutMs": 30_000,
        "tenant": "acme",
        "execution": "e1",
        "task": "main.1",
        "item": None,
        "traceparent": "",
    }
    run.gives(0, {"ref": 7}).turn()
    assert run.sent(1) == {
        "tenant": "acme", "execution": "e1", "task": "main", "item": None, "instance": "e1",
    }  # fmt: skip
    assert not run.done
    assert run.end().output == {"order": "o1", "charge": {"ref": 7}}


def test_what_a_user_sends_never_becomes_an_object() -> None:
    """The library loads JSON with a hook that builds objects from these three keys."""
    trap = {"__class__": "Order", "__module__": __name__, "__data__": "x"}

    def flow(ctx: CodeContext, value: Any) -> Flow:
        result = yield ctx.call_activity("echo", value)
        given = yield ctx.wait_for_signal("go")
        return [value, result, given]

    from tests.support.durable_hand import signal

    run = hand(flow, trap).gives(0, trap).raises("go", signal("s1", trap)).turn().end()
    assert run.output == [trap, trap, trap]


def test_an_input_that_does_not_fit_its_model_fails_for_good() -> None:
    def flow(ctx: CodeContext, order: Order) -> Flow:
        yield ctx.sleep("1s")

    run = hand(flow, {"id": "o1", "total": "much"}, input=Order).end()
    assert (run.failure.type, run.failure.retryable) == ("INPUT_INVALID", False)
    assert "$.total" in run.failure.message
    assert "much" not in run.failure.message


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"order": 1}, "$.order: "),
        ({"order": "o"}, "$.charge: Field required"),
        (Receipt.model_construct(order=7, charge=0), "$.order: "),
    ],
)
def test_an_output_of_another_type_fails_for_good(value: Any, said: str) -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.sleep("0s")
        return value

    run = hand(flow, output=Receipt).fires(0).turn().end()
    assert (run.failure.type, run.failure.retryable) == ("OUTPUT_INVALID", False)
    assert f"the output of flow is not valid: {said}" in run.failure.message


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), 2**70, object()])
def test_what_is_no_json_is_refused_with_its_place(value: Any) -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.call_activity("echo", {"a": [value]})

    run = hand(flow).end()
    assert (run.failure.type, run.failure.retryable) == ("OUTPUT_NOT_JSON", False)
    assert "the input of echo" in run.failure.message


def test_a_failed_step_can_be_caught() -> None:
    def flow(ctx: CodeContext) -> Flow:
        try:
            yield ctx.call_activity("orders.charge")
        except TaskFailed as error:
            return [error.type, error.failure.message, error.failure.retryable]

    run = hand(flow).fails(0, "CardRefused", "stolen", retryable=False).turn().end()
    assert run.output == ["CardRefused", "stolen", False]


def test_a_failed_step_that_is_not_caught_is_the_failure_of_the_workflow() -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.call_activity("orders.charge")

    run = hand(flow).fails(0, "CardRefused", "stolen", retryable=False).turn().end()
    assert run.state["error"].startswith("CardRefused: stolen [weft:")
    assert (run.failure.type, run.failure.retryable) == ("CardRefused", False)


def test_a_failure_that_only_durable_knows_is_told_as_it_is() -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.call_activity("orders.charge")

    run = hand(flow).breaks(0, "The function 'weft_activity' doesn't exist").turn().end()
    assert run.failure.type == "STEP_FAILED"
    assert "doesn't exist" in run.failure.message


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), RecursionError("deep")])
def test_whatever_the_function_raises_is_a_bounded_failure(error: BaseException) -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.sleep("1s")
        raise error

    run = hand(flow).fires(0).turn().end()
    assert run.failure.type in {"ValueError", "ACTIVITY_EXITED", "RecursionError"}
    assert len(run.state["error"]) < 16_384


def test_a_lost_word_to_weft_fails_nothing() -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.sleep("1s")
        return 1

    run = hand(flow).fires(0).turn()
    run.breaks(1, "bus away").turn()
    assert run.output == 1


@pytest.mark.parametrize("wrong", [None, 3, "orders.charge", [1]])
def test_yielding_what_is_no_task_says_what_to_yield(wrong: Any) -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield wrong

    run = hand(flow).end()
    assert run.failure.type == "TypeError"
    assert "ctx.call_activity" in run.failure.message


def test_bare_input_is_refused_with_the_way_in() -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.sleep("1s")

    run = Hand(registry(flow), "code_flow_v1", '{"a": 1}')
    assert run.failure.type == "ENVELOPE_INVALID"


def test_sleep_and_now_and_ids_are_the_same_in_every_replay() -> None:
    seen: list[tuple[Any, ...]] = []

    def flow(ctx: CodeContext) -> Flow:
        before, id = ctx.now, ctx.new_id()
        yield ctx.sleep("90s")
        seen.append((before, id, ctx.now, ctx.new_id()))
        yield ctx.sleep(until="2026-11-30T14:00:00+01:00")
        return str(ctx.now)

    run = hand(flow)
    assert run.asked[0]["fireAt"] == "2026-11-30T12:01:31.000000Z"
    run.fires(0).turn()
    assert run.asked[1]["fireAt"] == "2026-11-30T13:00:00.000000Z"
    run.fires(1).turn().end()
    assert len(seen) == 3
    assert len(set(seen)) == 1
    assert seen[0][1] != seen[0][3]
    assert seen[0][0] == START + timedelta(seconds=1)


def test_a_long_sleep_is_made_of_short_timers() -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.sleep("10d")
        return "up"

    run = hand(flow)
    for number in range(3):
        run.fires(number).turn()
    assert run.names()[:3] == ["timer"] * 3
    assert run.end().output == "up"


def test_all_gives_results_in_order_and_fails_with_the_first() -> None:
    def flow(ctx: CodeContext) -> Flow:
        found = yield ctx.all([ctx.call_activity("a", n) for n in range(3)])
        try:
            yield ctx.all([ctx.call_activity("b", n) for n in range(2)])
        except TaskFailed as error:
            return [found, error.type, (yield ctx.all([]))]

    run = hand(flow)
    for number in (2, 0, 1):
        run.gives(number, number * 10).turn()
    run.fails(4, "Second").turn()
    assert run.end().output == [[0, 10, 20], "Second", []]


def test_any_gives_the_first_and_the_others_go_on() -> None:
    def flow(ctx: CodeContext) -> Flow:
        slow, fast = ctx.call_activity("slow"), ctx.call_activity("fast")
        first = yield ctx.any([slow, fast])
        assert first is fast
        assert not slow.done
        return [first.result, (yield slow)]

    run = hand(flow).gives(1, "f").turn()
    assert not run.done
    assert run.gives(0, "s").turn().end().output == ["f", "s"]


def test_any_of_nothing_is_refused() -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.any([])

    assert "wait for ever" in hand(flow).end().failure.message


def test_a_built_in_activity_is_refused() -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.call_activity("weft.http", {"method": "GET", "url": "http://x"})

    assert "weft.http is built in" in hand(flow).end().failure.message


def test_secrets_are_named_and_never_written() -> None:
    def flow(ctx: CodeContext) -> Flow:
        headers = {"Authorization": ctx.secret("PAY_KEY"), "X": ["${secrets.OTHER}"]}
        yield ctx.call_activity("call", {"headers": headers})

    sent = hand(flow).sent(0)
    assert sent["input"] == {"headers": {"Authorization": None, "X": ["${secrets.OTHER}"]}}
    assert sent["secrets"] == [[["headers", "Authorization"], "PAY_KEY"]]


def test_a_large_output_is_stored_and_named() -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.sleep("1s")
        return "x" * 70_000

    run = hand(flow).fires(0).turn()
    assert run.sent(1)["op"] == "store"
    run.answers(1, '{"ref": "r1", "bytes": 70002}').turn().end()
    assert json.loads(run.state["output"]) == {
        "v": 1, "outputRef": {"ref": "r1", "bytes": 70002},
    }  # fmt: skip


def test_too_large_an_output_is_refused() -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.sleep("1s")
        return "x" * 600_000

    run = hand(flow).fires(0).turn().end()
    assert (run.failure.type, run.failure.retryable) == ("PAYLOAD_TOO_LARGE", False)


def test_a_stored_input_is_loaded_by_an_activity() -> None:
    from orchestrator.domain.payload import Payload

    def flow(ctx: CodeContext, value: Any) -> Flow:
        yield ctx.sleep("1s")
        return len(value)

    text = envelope("flow", input=None, input_ref=Payload(ref="r", size=9))
    run = Hand(registry(flow), "code_flow_v1", text)
    assert run.sent(0) == {"op": "load", "payload": {"ref": "r", "bytes": 9}}
    run.answers(0, '["a", "b"]').turn().fires(1).turn().end()
    assert run.output == 2


def test_the_status_is_shown() -> None:
    def flow(ctx: CodeContext) -> Flow:
        ctx.set_status({"step": 1})
        yield ctx.sleep("1s")

    assert hand(flow).state["customStatus"] == {"step": 1}


def test_the_log_says_everything_once(caplog: pytest.LogCaptureFixture) -> None:
    def flow(ctx: CodeContext) -> Flow:
        ctx.log.warning("begun")
        yield ctx.sleep("1s")
        ctx.log.warning("slept")
        yield ctx.sleep("1s")

    hand(flow).fires(0).turn().fires(1).turn().end()
    assert [record.message for record in caplog.records] == ["begun", "slept"]
    assert caplog.records[0].__dict__["execution_id"] == "e1"


def test_a_policy_runs_the_attempts_in_an_instance_of_their_own() -> None:
    def flow(ctx: CodeContext) -> Flow:
        policy = Retry(max_attempts=2, initial_interval="10s", jitter="none")
        return (yield ctx.all([ctx.call_activity("a", retry=policy), ctx.sleep("1d")]))

    run = hand(flow)
    assert run.names() == ["weft_call", "timer"]
    assert run.sent(0)["call"]["key"] == "e1:0:1"
    run.gives(0, "done").fires(1).turn().end()
    assert run.output == ["done", None]


def test_weft_s_own_workflow_is_refused_as_a_child() -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.call_workflow("weft-bulk", {"action": "cancel"})

    assert "weft-bulk is Weft's own" in hand(flow).end().failure.message
