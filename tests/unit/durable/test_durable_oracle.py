"""The same orchestrations on `durabletask`'s in-memory backend and on our hub: the same end.

Two programming models over one idea: each scenario is written once per model, and what a client
sees must not differ. Their timers are real ones of some milliseconds, ours jump.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest
from durabletask import task
from durabletask.client import OrchestrationStatus, TaskHubGrpcClient
from durabletask.testing import create_test_backend
from durabletask.worker import TaskHubGrpcWorker

from orchestrator.local.durable import clients
from tests.support.durable_hub import NOW, Run, raised, start

bp = df.DFApp()


@bp.activity_trigger(input_name="n")
def double(n: int) -> int:
    return n * 2


@bp.activity_trigger(input_name="n")
def bad(n: int) -> int:
    raise ValueError("bad")


@bp.orchestration_trigger(context_name="context")
def fan(context: df.DurableOrchestrationContext) -> Any:
    return (yield context.task_all([context.call_activity("double", n) for n in range(5)]))


@bp.orchestration_trigger(context_name="context")
def ticks(context: df.DurableOrchestrationContext) -> Any:
    got = []
    for _ in range(3):
        yield context.call_activity("double", 1)
        got.append((yield context.wait_for_external_event("tick")))
    return got


@bp.orchestration_trigger(context_name="context")
def race(context: df.DurableOrchestrationContext) -> Any:
    timer = context.create_timer(context.current_utc_datetime + dt.timedelta(seconds=30))
    event = context.wait_for_external_event("go")
    winner = yield context.task_any([timer, event])
    return "timer" if winner == timer else event.result


@bp.orchestration_trigger(context_name="context")
def caught(context: df.DurableOrchestrationContext) -> Any:
    said = []
    for call in (context.call_sub_orchestrator("failing"), context.call_activity("bad", 1)):
        try:
            yield call
        except Exception:
            said.append("caught")
    return said


@bp.orchestration_trigger(context_name="context")
def failing(context: df.DurableOrchestrationContext) -> Any:
    yield context.call_activity("bad", 1)


@bp.orchestration_trigger(context_name="context")
def sums(context: df.DurableOrchestrationContext) -> Any:
    total = context.get_input() or 0
    event = yield context.wait_for_external_event("add")
    if event == "stop":
        return total
    context.continue_as_new(total + event)


@bp.orchestration_trigger(context_name="context")
def waits_for_child(context: df.DurableOrchestrationContext) -> Any:
    try:
        return (yield context.call_sub_orchestrator("ticks", None, "child"))
    except Exception:
        return "child is gone"


@bp.orchestration_trigger(context_name="context")
def tries(context: df.DurableOrchestrationContext) -> Any:
    try:
        yield context.call_activity_with_retry("bad", df.RetryOptions(1, 3), 1)
    except Exception:
        return "gave up"


def their_fan(ctx: task.OrchestrationContext, _: Any) -> Any:
    return (yield task.when_all([ctx.call_activity("double", input=n) for n in range(5)]))


def their_ticks(ctx: task.OrchestrationContext, _: Any) -> Any:
    got = []
    for _n in range(3):
        yield ctx.call_activity("double", input=1)
        got.append((yield ctx.wait_for_external_event("tick")))
    return got


def their_race(ctx: task.OrchestrationContext, ms: Any) -> Any:
    timer = ctx.create_timer(dt.timedelta(milliseconds=ms or 30_000))
    event = ctx.wait_for_external_event("go")
    winner = yield task.when_any([timer, event])
    return "timer" if winner == timer else event.get_result()


def their_caught(ctx: task.OrchestrationContext, _: Any) -> Any:
    said = []
    for call in (ctx.call_sub_orchestrator("failing"), ctx.call_activity("bad", input=1)):
        try:
            yield call
        except task.TaskFailedError:
            said.append("caught")
    return said


def their_failing(ctx: task.OrchestrationContext, _: Any) -> Any:
    yield ctx.call_activity("bad", input=1)


def their_sums(ctx: task.OrchestrationContext, total: Any) -> Any:
    total = total or 0
    event = yield ctx.wait_for_external_event("add")
    if event == "stop":
        return total
    ctx.continue_as_new(total + event, save_events=True)
    return None


def their_waits_for_child(ctx: task.OrchestrationContext, _: Any) -> Any:
    try:
        return (yield ctx.call_sub_orchestrator("ticks", instance_id="child"))
    except task.TaskFailedError:
        return "child is gone"


def their_tries(ctx: task.OrchestrationContext, _: Any) -> Any:
    policy = task.RetryPolicy(
        first_retry_interval=dt.timedelta(milliseconds=1), max_number_of_attempts=3
    )
    try:
        yield ctx.call_activity("bad", input=1, retry_policy=policy)
    except task.TaskFailedError:
        return "gave up"


THEIRS: dict[str, Callable[..., Any]] = {
    "fan": their_fan,
    "ticks": their_ticks,
    "race": their_race,
    "caught": their_caught,
    "failing": their_failing,
    "sums": their_sums,
    "waits_for_child": their_waits_for_child,
    "tries": their_tries,
}
Step = tuple[str, Any]
"""What a client does, in both worlds."""


class Ours:
    """Our hub."""

    def __init__(self, path: Path) -> None:
        self.world = Run(bp, path)

    async def end(self, name: str, instance: str, steps: list[Step]) -> tuple[str, Any]:
        await self._now(start(name, None, instance=instance))
        for verb, what in steps:
            store = self.world.client
            if verb == "suspend":
                assert clients.suspend(store, instance, "", NOW, on=True)
            elif verb == "resume":
                assert clients.suspend(store, instance, "", NOW, on=False)
            elif verb == "terminate":
                assert clients.terminate(store, what or instance, "over", NOW)
            elif verb != "ms":
                await self._now(raised(verb, json.dumps(what), instance=instance))
        await self.world.go()
        status = self.world.status(instance)
        value = None if status.status == "Failed" else json.loads(status.output or "null")
        return status.status, value

    async def _now(self, act: Any) -> None:
        await self.world.go([act], until=0)


class Theirs:
    """`durabletask`."""

    def __init__(self, client: TaskHubGrpcClient) -> None:
        self.client = client

    def end(self, name: str, instance: str, steps: list[Step]) -> tuple[str, Any]:
        given = dict(steps).get("ms")
        self.client.schedule_new_orchestration(name, input=given, instance_id=instance)
        for verb, what in steps:
            if verb == "suspend":
                self.client.suspend_orchestration(instance)
                self._until(instance, OrchestrationStatus.SUSPENDED)
            elif verb == "resume":
                self.client.resume_orchestration(instance)
            elif verb == "terminate":
                self._until(what or instance, OrchestrationStatus.RUNNING)
                self.client.terminate_orchestration(what or instance, output="over")
            elif verb != "ms":
                self.client.raise_orchestration_event(instance, verb, data=what)
        state = self.client.wait_for_orchestration_completion(instance, timeout=20)
        assert state is not None
        status = state.runtime_status.name.capitalize()
        value = json.loads(state.serialized_output or "null")
        return status, None if status == "Failed" else value

    def _until(self, instance: str, status: OrchestrationStatus) -> None:
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up:
            state = self.client.get_orchestration_state(instance)
            if state is not None and state.runtime_status == status:
                return
            time.sleep(0.002)
        raise AssertionError(f"{instance} never was {status}")


@pytest.fixture(scope="module")
def theirs() -> Iterator[Theirs]:
    logging.getLogger("durabletask").setLevel(logging.CRITICAL)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    backend = create_test_backend(port=port)
    address = f"127.0.0.1:{port}"
    worker = TaskHubGrpcWorker(host_address=address)
    for name, orchestrator in THEIRS.items():
        worker._registry.add_named_orchestrator(name, orchestrator)
    worker._registry.add_named_activity("double", lambda _, n: n * 2)
    worker._registry.add_named_activity("bad", lambda _, n: 1 // 0)
    worker.start()
    client = TaskHubGrpcClient(host_address=address)
    yield Theirs(client)
    client.close()
    worker.stop()
    backend.stop()


@pytest.mark.parametrize(
    ("name", "steps", "end"),
    [
        ("fan", [], ("Completed", [0, 2, 4, 6, 8])),
        ("ticks", [("tick", 1), ("tick", 2), ("tick", 3)], ("Completed", [1, 2, 3])),
        ("ticks", [("TICK", 1), ("Tick", 2), ("tick", 3)], ("Completed", [1, 2, 3])),
        ("race", [("go", "now")], ("Completed", "now")),
        ("race", [("ms", 20)], ("Completed", "timer")),
        ("race", [("suspend", 0), ("go", "kept"), ("resume", 0)], ("Completed", "kept")),
        ("caught", [], ("Completed", ["caught", "caught"])),
        ("failing", [], ("Failed", None)),
        ("sums", [("add", 1), ("add", 2), ("add", 3), ("add", "stop")], ("Completed", 6)),
        ("ticks", [("tick", 1), ("terminate", "")], ("Terminated", "over")),
        ("waits_for_child", [("terminate", "child")], ("Completed", "child is gone")),
        ("tries", [], ("Completed", "gave up")),
    ],
)
async def test_both_end_alike(
    tmp_path: Path,
    theirs: Theirs,
    request: pytest.FixtureRequest,
    name: str,
    steps: list[Step],
    end: tuple[str, Any],
) -> None:
    instance = request.node.name
    assert theirs.end(name, instance, steps) == end
    assert await Ours(tmp_path / "durable.db").end(name, instance, steps) == end
