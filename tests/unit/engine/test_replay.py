"""A replay is a new execution that repeats an ended one, and only as much of it as is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.domain.errors import ConflictError, InvalidError, NotFoundError
from orchestrator.engine import inspect, replay
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld
from tests.unit.engine.test_cases_deadletters import Flaky


async def again(world: World, execution: str, **more: Any) -> Any:
    return await replay.replay(world.engine, TENANT, execution, by="eve", **more)


async def test_from_the_start_everything_runs_with_the_same_input_and_tags(
    make: MakeWorld,
) -> None:
    flaky = Flaky()
    world = await make(work=flaky)
    await world.publish(flow(a=task("work", input="${input}"), b=task("work", "a")))
    big = {"text": "x" * 100_000}  # kept by reference
    started = await world.start("flow", big, tags={"region": "north"})
    with pytest.raises(ConflictError) as caught:
        await again(world, started.id)
    assert caught.value.code == "CANNOT_REPLAY"
    await world.run_until_quiet()
    first = await again(world, started.id, key="k")
    assert first.created
    assert (await again(world, started.id, key="k")).id == first.id
    with pytest.raises(ConflictError) as caught:
        await again(world, started.id, key="k", start_at="b")
    assert caught.value.code == "IDEMPOTENCY_KEY_REUSED"
    await world.run_until_quiet()
    view = await world.view(first.id)
    assert (view.status, view.replay_of, view.replay_from) == ("COMPLETED", started.id, None)
    assert view.input == big
    assert view.tags == {"region": "north"}
    assert flaky.ran == ["a", "b", "a", "b"]
    await world.verified(first.id)


async def test_from_a_task_other_results_are_copied_and_not_run_again(make: MakeWorld) -> None:
    flaky = Flaky("d")
    world = await make(work=flaky)
    do = {"type": "activity", "activity": "work", "input": "${item}"}
    await world.publish(
        flow(
            a=task("work", input="${'x'}"),
            m={"type": "map", "needs": ["a"], "items": [1, 2], "do": do},
            w={"type": "wait", "needs": ["m"], "duration": "1h"},
            skipped=task("work", "a", when="${false}"),
            c=task("work", "w", "skipped", runWhen="anySucceeded", input="${tasks.m.output}"),
            d=task("work", "c", input="${tasks.c.output}", retry=retry(1)),
            e=task("work", "d"),
            beside=task("work"),
        )
    )
    started = await world.start("flow")
    await world.run_until_quiet()
    before = await inspect.task(world.engine, TENANT, started.id, "c")
    flaky.broken.clear()
    flaky.ran.clear()
    made = await again(world, started.id, start_at="d", reason="fixed")
    await world.run_until_quiet()
    assert flaky.ran == ["d", "e"]
    assert (await world.view(made.id)).status == "COMPLETED"
    assert (await world.statuses(made.id))["skipped"] == "SKIPPED"
    assert (await inspect.task(world.engine, TENANT, made.id, "c")).output == before.output
    assert world.activities.calls[-2].input == before.output
    assert (await world.view(started.id)).status == "FAILED"  # the origin stays as it was
    history, _ = await inspect.history(world.engine, TENANT, made.id, limit=100, after=None)
    assert history[1].type == "tasksCopied"
    await world.verified(made.id)


async def test_on_the_latest_version_what_is_new_runs_and_what_lies_behind_it(
    make: MakeWorld,
) -> None:
    flaky = Flaky()
    world = await make(work=flaky)
    await world.publish(flow(a=task("work"), b=task("work", "a"), c=task("work", "b")))
    started = await world.start("flow", {"n": 1})
    await world.run_until_quiet()
    await world.publish(
        flow(a=task("work"), extra=task("work"), b=task("work", "a", "extra"), c=task("work", "b"))
    )
    flaky.ran.clear()
    made = await again(world, started.id, start_at="c", latest=True)
    assert made.version == 2
    await world.run_until_quiet()
    assert flaky.ran == ["extra", "b", "c"]
    await world.verified(made.id)
    flaky.ran.clear()
    same = await again(world, started.id, start_at="c")
    await world.run_until_quiet()
    assert (same.version, flaky.ran) == (1, ["c"])
    with pytest.raises(NotFoundError):
        await again(world, started.id, start_at="extra")
    with pytest.raises(NotFoundError):
        await again(world, "nope")
    await world.publish(flow(input_schema={"type": "string"}, a=task("work")))
    with pytest.raises(InvalidError):
        await again(world, started.id, latest=True)
