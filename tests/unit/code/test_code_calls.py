"""Activities with a retry policy, and children: instances of their own."""

from __future__ import annotations

import json
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import pytest

from activities import CodeContext, Retry, TaskFailed
from activities.code.frame import Frame
from activities.code.registry import CodeRegistry
from orchestrator.domain.orchestration_result import (
    child_id,
    failure_from,
    failure_text,
    is_below,
)
from orchestrator.domain.retry import next_delay
from tests.support.durable_hand import START, Hand, envelope

Flow = Generator[Any, Any, Any]


def parent(ctx: CodeContext) -> Flow:
    yield ctx.sleep("1s")


def registry(**flows: Any) -> CodeRegistry:
    made = CodeRegistry()
    for name, fn in ({"flow": parent} | flows).items():
        base, _, version = name.partition("_v")
        made.register(base, int(version or 1), fn)
    return made


def attempts(retry: Retry, input: Any = 1) -> Hand:
    """The instance that retries, as a workflow starts it."""

    def flow(ctx: CodeContext) -> Flow:
        return (yield ctx.call_activity("a", input, retry=retry))

    made = CodeRegistry()
    made.register("flow", 1, flow)
    text = Hand(made, "code_flow_v1", envelope("flow")).asked[0]["input"]
    return Hand(made, "weft_call", text, instance="e1:0")


def test_attempts_back_off_as_the_policy_says_under_one_key() -> None:
    policy = Retry(max_attempts=3, initial_interval="10s", jitter="full")
    run = attempts(policy)
    run.fails(0, "Timeout").turn()
    first = next_delay(policy.policy(), attempt=1, key="e1:0:1")
    assert first is not None
    due = START + timedelta(seconds=2, milliseconds=first)
    assert run.asked[1]["fireAt"] == due.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    run.fires(1).turn().fails(2, "Timeout").turn().fires(3).turn()
    assert [run.sent(n)["attempt"] for n in (0, 2, 4)] == [1, 2, 3]
    assert {run.sent(n)["key"] for n in (0, 2, 4)} == {"e1:0:1"}
    assert run.gives(4, "at last").turn().output == "at last"


def test_the_last_failure_is_the_failure() -> None:
    run = attempts(Retry(max_attempts=2, initial_interval="1s", jitter="none"))
    run.fails(0, "First").turn().fires(1).turn().fails(2, "Second").turn()
    assert run.failure.type == "Second"
    assert run.names() == ["weft_activity", "timer", "weft_activity"]


@pytest.mark.parametrize(
    ("policy", "failure"),
    [
        (Retry(non_retryable=["CardRefused"]), {"type": "CardRefused"}),
        (Retry(retryable=["TIMEOUT"]), {"type": "CardRefused"}),
        (Retry(), {"type": "CardRefused", "retryable": False}),
    ],
)
def test_what_is_not_retryable_ends_at_once(policy: Retry, failure: dict[str, Any]) -> None:
    run = attempts(policy).fails(0, **failure).turn()
    assert run.done
    assert run.failure.type == "CardRefused"


def test_a_dependencys_retry_after_is_kept() -> None:
    run = attempts(Retry(max_attempts=2)).fails(0, "Busy", retry_after_ms=3_600_000).turn()
    assert run.asked[1]["fireAt"] == "2026-11-30T13:00:02.000000Z"


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"backoff_coefficient": 0.5},
        {"jitter": "some"},
        {"initial_interval": "soon"},
        {"max_interval": "-1s"},
    ],
)
def test_a_policy_that_cannot_be_is_refused_where_it_is_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"max_attempts|coefficient|jitter|duration|negative"):
        Retry(**wrong)


# --- children -------------------------------------------------------------------------------------


def test_a_child_of_a_version_is_started_with_the_parents_frame() -> None:
    def flow(ctx: CodeContext) -> Flow:
        return (yield ctx.call_workflow("child", {"a": 1}, version=2))

    run = Hand(registry(flow=flow, child_v2=parent), "code_flow_v1", envelope("flow"))
    assert run.names() == ["code_child_v2"]
    assert run.asked[0]["instanceId"] == "e1:0.1"  # found below its parent by the prefix
    frame = Frame.decode(json.loads(run.asked[0]["input"]))
    assert (frame.child, frame.envelope.workflow, frame.envelope.version) == (True, "child", 2)
    assert (frame.envelope.tenant, frame.envelope.execution) == ("acme", "e1")
    assert run.gives(0, [1]).turn().end().output == [1]


def test_a_child_tells_its_parent_alone() -> None:
    def child(ctx: CodeContext, given: Any) -> Flow:
        yield ctx.sleep("1s")
        return given

    made = registry(child=child)
    text = Frame(envelope=Frame.decode(envelope("child", "x" * 70_000)).envelope, child=True)
    run = Hand(made, "code_child_v1", text.encode(), instance="c1").fires(0).turn()
    assert run.done
    assert run.names() == ["timer"]
    assert run.output == "x" * 70_000


def test_a_childs_failure_reaches_the_parent_as_it_was() -> None:
    def flow(ctx: CodeContext) -> Flow:
        try:
            yield ctx.call_workflow("child", version=1)
        except TaskFailed as error:
            return [error.type, error.failure.retryable]

    run = Hand(registry(flow=flow, child=parent), "code_flow_v1", envelope("flow"))
    run.fails(0, "CardRefused", retryable=False).turn().end()
    assert run.output == ["CardRefused", False]


def test_a_version_that_is_not_deployed_names_those_that_are() -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.call_workflow("child", version=9)

    run = Hand(registry(flow=flow, child_v2=parent), "code_flow_v1", envelope("flow")).end()
    assert "version 9 is not deployed; deployed: 2" in run.failure.message


def test_the_latest_version_is_looked_up_once_and_kept_in_the_history() -> None:
    def flow(ctx: CodeContext) -> Flow:
        return (yield ctx.call_workflow("child", 5))

    made = registry(flow=flow, child_v1=parent, child_v2=parent)
    run = Hand(made, "code_flow_v1", envelope("flow"))
    call = Hand(made, "weft_call", run.asked[0]["input"], instance="e1:0")
    assert call.sent(0) == {"op": "latest", "workflow": "child"}
    call.answers(0, "1").turn()  # so it was when this began
    assert call.names()[1] == "code_child_v1"
    assert call.asked[1]["instanceId"] == "e1:0:0.1"
    assert call.gives(1, "ok").turn().output == "ok"


def test_a_version_that_is_gone_when_the_child_starts_is_a_failure() -> None:
    def flow(ctx: CodeContext) -> Flow:
        yield ctx.call_workflow("child")

    made = registry(flow=flow, child=parent)
    run = Hand(made, "code_flow_v1", envelope("flow"))
    call = Hand(made, "weft_call", run.asked[0]["input"]).answers(0, "3").turn()
    assert (call.failure.type, call.failure.retryable) == ("UNKNOWN_WORKFLOW", False)


def test_what_is_below_an_instance_is_known_by_its_id() -> None:
    below = ["e:0.1", "e:12.34", "e:0.1:0.2", "e:0.1:0.2:7.1"]
    others = ["e", "e2:0.1", "e:main:2", "e:0.1x", "e:0", "e:0.1:", "x:e:0.1"]
    assert [id for id in below + others if is_below("e", id)] == below


@pytest.mark.parametrize("root", ["e", "e" * 82, "e" * 26 + ":task-1:12"])
def test_those_far_below_are_still_known_by_the_id_of_the_first(root: str) -> None:
    """A family tree of any depth, no two alike."""
    line, seen = root, set[str]()
    for depth in range(40):
        for number in (1, 2):
            beside = child_id(line, depth % 3, number)
            assert len(beside) <= 100
            assert is_below(root, beside)
            assert not is_below(root[:-1], beside)
            seen.add(beside)
        line = beside
    assert len(seen) == 80
    assert child_id("e" * 82, 10, 1234) == f"{'e' * 82}:10.1234"


def test_a_failure_survives_whatever_durable_puts_around_it() -> None:
    from orchestrator.domain.failure import Failure

    failure = Failure(type="A", message='say "hi" \\ ä\n', retry_after_ms=5)
    text = json.dumps(json.dumps({"Message": f"failed: {failure_text(failure)}\n at X"}))
    assert failure_from(text) == failure
    assert failure_from("[weft:notbase64!]") is None
    assert failure_from("[weft:AAAA]") is None
    assert failure_from(None) is None
    long = failure_text(Failure(type="A", message="x" * 100_000))
    assert len(long) < 12_000
