"""Maps on the real engine: what items see, the order of outputs, failing items, limits."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.domain.topology import MAP_CHUNK_ITEMS, MAX_MAPS
from orchestrator.engine import inspect
from orchestrator.ports import ActivityCall
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


def _map(do: dict[str, Any], items: str = "${input}", **more: Any) -> dict[str, Any]:
    return {"type": "map", "items": items, "do": do, **more}


async def _run(world: World, definition: dict[str, Any], value: Any) -> Any:
    await world.publish(definition)
    started = await world.start(definition["name"], value)
    await world.run_until_quiet()
    await world.verified(started.id)
    return await world.view(started.id)


async def test_items_and_index_across_chunks_and_outputs_in_order(make: MakeWorld) -> None:
    """The items of a map lie in chunks; the last of one and the first of the next, too."""
    count = MAP_CHUNK_ITEMS + 2
    items = [{"n": n * 7} for n in range(count)]
    world = await make(pair=lambda call: call.input)
    do = task("pair", input={"n": "${item.n}", "at": "${index}", "of": "${input[0].n}"})
    view = await _run(world, flow(m=_map(do), output="${tasks.m.output}"), items)
    assert view.status == "COMPLETED"
    assert view.output == [{"n": n * 7, "at": n, "of": 0} for n in range(count)]


async def test_as_many_maps_as_are_allowed_fit_into_one_commit(make: MakeWorld) -> None:
    """All of them start at once, each with statuses that need a document of their own."""
    world = await make(noop=lambda call: None)
    maps = {f"m{at}": _map(task("noop"), "${[1, 2]}", maxConcurrency=1) for at in range(MAX_MAPS)}
    assert (await _run(world, flow(**maps), None)).status == "COMPLETED"


@pytest.mark.parametrize("most", [1, 2, 5])
async def test_max_concurrency_bounds_what_is_dispatched(make: MakeWorld, most: int) -> None:
    """Never more in the queue than that."""
    world = await make(noop=lambda call: call.item)
    await world.publish(flow(m=_map(task("noop"), maxConcurrency=most), output="${tasks.m.output}"))
    started = await world.start("flow", list(range(7)))
    widest = 0
    while due := world.transport.take(world.clock.now()):
        widest = max(widest, sum(b"runTask" in m.body and b'"item"' in m.body for m in due))
        await world.deliver(due)
    assert widest == most
    assert (await world.view(started.id)).output == list(range(7))


@pytest.mark.parametrize("most", [1, 3, 0])
async def test_after_a_failed_item_no_further_one_starts_and_the_map_names_it(
    make: MakeWorld, most: int
) -> None:
    """Items in flight end; the first failure is the map's cause."""

    def third(call: ActivityCall) -> int:
        if call.item == 2:
            raise ValueError("bad item")
        return call.attempt

    world = await make(third=third)
    limit = {"maxConcurrency": most} if most else {}
    view = await _run(
        world,
        flow(
            m=_map(task("third", retry=retry(1)), **limit),
            handler=task("third", "m", runWhen="anyFailed"),
            on_failure="continue",
        ),
        list(range(9)),
    )
    assert view.status == "FAILED"
    assert (view.error.type, view.error.task, view.error.item) == ("MAP_ITEM_FAILED", "m", 2)
    assert view.error.causes[0].type == "ValueError"
    ran = {call.item for call in world.activities.calls if call.task == "m"}
    assert ran == ({0, 1, 2} if most == 1 else set(range(3)) if most == 3 else set(range(9)))
    assert (await world.statuses(view.id))["handler"] == "COMPLETED"


async def test_items_are_retried_by_themselves(make: MakeWorld) -> None:
    """One item's second attempt repeats nobody else's first."""

    def flaky(call: ActivityCall) -> int:
        if call.item == 1 and call.attempt == 1:
            raise ConnectionError("once")
        return call.attempt

    world = await make(flaky=flaky)
    view = await _run(
        world, flow(m=_map(task("flaky", retry=retry(2))), output="${tasks.m.output}"), [0, 0, 0]
    )
    assert view.output == [1, 2, 1]
    assert len(world.activities.calls) == 4
    keys = {call.idempotency_key for call in world.activities.calls}
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ("${1}", "must give a list, not a number"),
        ("${input}", "must give a list, not an object"),
        ("${input.nothing}", "no such key 'nothing'"),
        ("${input.many}", "10001 items, at most 10000"),
    ],
)
async def test_items_that_are_no_usable_list_fail_the_map_with_the_field(
    make: MakeWorld, items: str, reason: str
) -> None:
    """A failure of the task, which the task's own view shows, and handlers see."""
    world = await make(noop=lambda call: call.input)
    view = await _run(
        world,
        flow(
            m=_map(task("noop"), items),
            tell=task("noop", "m", runWhen="anyFailed", input="${tasks.m.error.message}"),
        ),
        {"many": [0] * 10_001},
    )
    assert view.status == "FAILED"
    assert view.error.field == "$.tasks.m.items"
    assert reason in view.error.message
    shown = await inspect.task(world.engine, TENANT, view.id, "m")
    assert shown.error is not None
    assert reason in shown.error.message
    assert reason in world.activities.calls[0].input


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        (task("noop", when="${input.a.b}"), "$.tasks.t.when", "no such key 'a'"),
        (task("noop", when="${1}"), "$.tasks.t.when", "true or false, not a number"),
        ({"type": "wait", "until": "${'soon'}"}, "$.tasks.t.until", "not an ISO 8601 time"),
        (
            {"type": "wait", "until": "${'2030-01-01T00:00:00'}"},
            "$.tasks.t.until",
            "has no offset",
        ),
        (task("noop", input={"x": ["${1 / 0}"]}), "$.tasks.t.input.x[0]", "division by zero"),
    ],
)
async def test_a_failing_expression_is_a_task_failure_that_names_expression_and_field(
    make: MakeWorld, spec: dict[str, Any], field: str, reason: str
) -> None:
    """Shown by the execution, and by the task although no worker ever saw it."""
    world = await make(noop=lambda call: None)
    view = await _run(world, flow(t=spec), {})
    assert view.status == "FAILED"
    assert view.error.field == field
    assert reason in view.error.message
    shown = await inspect.task(world.engine, TENANT, view.id, "t")
    assert (shown.status, shown.error and shown.error.field) == ("DEAD_LETTERED", field)
    assert world.activities.calls == []


async def test_items_of_two_executions_of_one_workflow_are_not_mixed_up(make: MakeWorld) -> None:
    """They are remembered by the process that runs both."""
    world = await make(echo=lambda call: call.input)
    await world.publish(flow(m=_map(task("echo", input="${item}")), output="${tasks.m.output}"))
    first = await world.start("flow", ["a", "b"])
    second = await world.start("flow", ["c", "d", "e"])
    await world.settle()
    assert (await world.view(first.id)).output == ["a", "b"]
    assert (await world.view(second.id)).output == ["c", "d", "e"]
