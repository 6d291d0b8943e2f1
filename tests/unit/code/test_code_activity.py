"""The activity functions of code workflows, on a real engine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.orchestration_result import decode_output
from orchestrator.engine import code_activity
from orchestrator.ports import ActivityCall, ActivityFailed
from tests.support.world import FakeActivities, World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.open()
    yield made
    await made.close()


def request(input: Any = None, **given: Any) -> dict[str, Any]:
    fields = {
        "activity": "a",
        "input": json.dumps(input),
        "key": "e1:0:1",
        "timeoutMs": 5_000,
        "tenant": "acme",
        "execution": "e1",
        "task": "main.1",
        "item": None,
    }
    return fields | given


async def run(world: World, function: Any, input: Any = None, **given: Any) -> Any:
    world.engine.activities = FakeActivities(a=function)
    text, ref = decode_output(await code_activity.run(world.engine, request(input, **given)))
    assert ref is None
    return json.loads(text or "")


async def test_an_attempt_has_the_ids_of_its_step(world: World) -> None:
    seen: list[ActivityCall] = []

    def work(call: ActivityCall) -> Any:
        seen.append(call)
        return {"n": 2**53 + 1}

    assert await run(world, work, {"a": 1}, attempt=3, traceparent="t") == {"n": 2**53 + 1}
    (call,) = seen
    assert (call.activity, call.input, call.attempt) == ("a", {"a": 1}, 3)
    assert (call.tenant, call.execution, call.task) == ("acme", "e1", "main.1")
    assert (call.idempotency_key, call.timeout_ms, call.traceparent) == ("e1:0:1", 5_000, "t")


async def test_secrets_are_put_where_they_belong_and_nowhere_else(world: World) -> None:
    world.secrets.values["acme", "KEY"] = "hush-hush-1"
    seen: list[Any] = []
    places = {"headers": [{"a": None}], "text": "${secrets.KEY}"}
    await run(
        world,
        lambda call: seen.append(call.input),
        places,
        secrets=[[["headers", 0, "a"], "KEY"]],
    )
    await run(world, lambda call: seen.append(call.input), None, secrets=[[[], "KEY"]])
    assert seen == [{"headers": [{"a": "hush-hush-1"}], "text": "${secrets.KEY}"}, "hush-hush-1"]


async def test_what_an_attempt_leaves_behind_has_no_secret(world: World) -> None:
    """Its output and failure go into Durable's history, and into the host's log."""
    world.secrets.values["acme", "KEY"] = "hush-hush-1"
    given: dict[str, Any] = {"input": {"a": None}, "secrets": [[["a"], "KEY"]]}
    assert await run(world, lambda call: f"got {call.input['a']}", **given) == "got ***"

    def fail(call: ActivityCall) -> None:
        raise ValueError(f"refused {call.input['a']}")

    with pytest.raises(ActivityFailed) as caught:
        await run(world, fail, **given)
    assert caught.value.failure.message == "refused ***"


async def test_a_missing_secret_fails_for_good(world: World) -> None:
    with pytest.raises(ActivityFailed) as caught:
        await run(world, lambda call: 1, {"a": None}, secrets=[[["a"], "NONE"]])
    failure = caught.value.failure
    assert (failure.type, failure.retryable) == ("SECRET_NOT_FOUND", False)


async def test_an_attempt_that_takes_too_long_is_cancelled(world: World) -> None:
    import asyncio

    seen: list[ActivityCall] = []

    async def forever(call: ActivityCall) -> Any:
        seen.append(call)
        await asyncio.Event().wait()

    with pytest.raises(ActivityFailed) as caught:
        await run(world, forever, timeoutMs=1)
    assert (caught.value.failure.type, caught.value.failure.retryable) == ("TIMEOUT", True)
    assert seen[0].cancelled


async def test_too_large_an_output_fails_for_good(world: World) -> None:
    with pytest.raises(ActivityFailed) as caught:
        await run(world, lambda call: "x" * 600_000)
    failure = caught.value.failure
    assert (failure.type, failure.retryable) == ("PAYLOAD_TOO_LARGE", False)


async def test_a_payload_is_stored_and_loaded(world: World) -> None:
    text = json.dumps("x" * 70_000)
    where = {"tenant": "acme", "execution": "e1"}
    doc = json.loads(
        await code_activity.support(world.engine, {"op": "store", "text": text, **where})
    )
    assert doc["bytes"] == len(text)
    assert await code_activity.support(world.engine, {"op": "load", "payload": doc}) == text


@pytest.mark.parametrize(
    ("given", "kind", "retryable"),
    [
        ({"op": "load", "payload": {"ref": "gone", "bytes": 9}}, "PayloadNotFound", True),
        ({"op": "load", "payload": {"ref": "big", "bytes": 9**9}}, "PAYLOAD_TOO_LARGE", False),
        ({"op": "latest", "workflow": "none"}, "UNKNOWN_WORKFLOW", False),
    ],
)
async def test_what_support_cannot_do_is_a_failure(
    world: World, given: dict[str, Any], kind: str, retryable: bool
) -> None:
    with pytest.raises(ActivityFailed) as caught:
        await code_activity.support(world.engine, given)
    assert (caught.value.failure.type, caught.value.failure.retryable) == (kind, retryable)
