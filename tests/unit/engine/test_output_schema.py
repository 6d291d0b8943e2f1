"""`outputSchema`: what an activity gives is held against it, and a finding repeats no secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.engine import inspect
from orchestrator.ports import ActivityCall
from tests.support.world import TENANT, FakeActivities, World

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "k": {"x-sensitive": True}}}


async def test_an_output_that_does_not_fit_fails_the_task_for_good(tmp_path: Path) -> None:
    outputs: list[Any] = [{"n": 1}, {"n": "s3cr3t-value"}]
    calls: list[ActivityCall] = []

    def work(call: ActivityCall) -> Any:
        calls.append(call)
        return outputs[len(calls) - 1]

    world = await World(tmp_path, FakeActivities(work=work)).open()
    world.secrets.values[TENANT, "K"] = "s3cr3t-value"
    given = {"type": "activity", "activity": "work", "input": "${secrets.K}"}
    await world.publish({"name": "flow", "tasks": {"a": {**given, "outputSchema": SCHEMA}}})
    ids = []
    for _ in outputs:
        ids.append((await world.start("flow")).id)
        await world.run_until_quiet()
    good, bad = [await inspect.task(world.engine, TENANT, id, "a") for id in ids]
    assert (good.status, good.output) == ("COMPLETED", {"n": 1})
    assert bad.error is not None
    assert (bad.status, bad.error.type, bad.attempt) == ("DEAD_LETTERED", "OUTPUT_INVALID", 1)
    assert "$.n" in bad.error.message
    assert "s3cr3t" not in bad.error.message
    assert len(calls) == 2
    await world.close()
