"""`tolerateFailures`: a map that succeeds although some of its items failed."""

from __future__ import annotations

from typing import Any

import pytest
from family import child_task, doc, everyone

from orchestrator.domain.errors import ConflictError
from orchestrator.domain.topology import MAX_MAP_ITEMS
from orchestrator.engine import inspect, letters_act, letters_list
from orchestrator.engine.letters import LetterStatus
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


def _map(**more: Any) -> dict[str, Any]:
    do = task("work", input="${item}", retry=retry(1))
    return {"type": "map", "items": "${input}", "do": do, **more}


def _work(call: Any) -> Any:
    if call.input < 0:
        raise ValueError("negative")
    return call.input


async def _run(world: World, definition: dict[str, Any], items: list[Any]) -> Any:
    await world.publish(definition)
    started = await world.start(definition["name"], items)
    await world.run_until_quiet()
    await world.verified(started.id)
    return await world.view(started.id)


async def _open(world: World, execution: str) -> list[str]:
    found, _ = await letters_list.page(
        world.engine,
        TENANT,
        LetterFilter(execution=execution, status=LetterStatus.OPEN),
        limit=50,
        after=None,
    )
    return [letter.id for letter in reversed(found)]


@pytest.mark.parametrize(
    ("tolerate", "items", "status"),
    [
        (0, [1, -1, 2], "FAILED"),
        (1, [1, -1, 2], "COMPLETED"),
        (1, [-1, -1, 2], "FAILED"),
        (3, [-1, -1, -1], "COMPLETED"),
        ("33%", [1, -1, 2], "FAILED"),
        ("34%", [1, -1, 2], "COMPLETED"),
        ("100%", [-1, -1], "COMPLETED"),
        ("0%", [-1], "FAILED"),
        ("10%", [-1, *range(9)], "COMPLETED"),
        ("9.99%", [-1, *range(9)], "FAILED"),
        (5, [], "COMPLETED"),
    ],
)
@pytest.mark.parametrize("most", [0, 1])
async def test_the_map_succeeds_up_to_that_many_failures(
    make: MakeWorld, tolerate: Any, items: list[int], status: str, most: int
) -> None:
    """Results by position, null where an item failed; further items go out while tolerated."""
    world = await make(work=_work)
    more = {"maxConcurrency": most} if most else {}
    m = _map(tolerateFailures=tolerate, **more)
    view = await _run(world, flow(m=m, output="${tasks.m.output}"), items)
    assert view.status == status
    if status == "COMPLETED":
        assert view.output == [None if item < 0 else item for item in items]
        assert len(world.activities.calls) == len(items)
        shown = await inspect.task(world.engine, TENANT, view.id, "m")
        if items:
            assert shown.map is not None
            failed = sum(item < 0 for item in items)
            assert (shown.map.completed, shown.map.failed) == (len(items) - failed, failed)
    else:
        assert view.error.type == "MAP_ITEM_FAILED"


async def test_one_failure_too_many_stops_the_dispatch(make: MakeWorld) -> None:
    """As the first one does without tolerance."""
    world = await make(work=_work)
    m = _map(tolerateFailures=1, maxConcurrency=1)
    await _run(world, flow(m=m), [0, -1, 1, -1, 2, 3])
    assert [call.input for call in world.activities.calls] == [0, -1, 1, -1]


async def test_an_output_that_is_null_and_one_that_failed_look_alike(make: MakeWorld) -> None:
    """The map's failures are told by its progress and its dead letters."""
    world = await make(work=lambda call: None if call.input == 0 else _work(call))
    view = await _run(
        world, flow(m=_map(tolerateFailures=1), output="${tasks.m.output}"), [0, -1, 5]
    )
    assert view.output == [None, None, 5]


async def test_tolerated_failures_leave_marked_letters_that_reopen_nothing(
    make: MakeWorld,
) -> None:
    """They can be put away, not taken up: the map has been gathered."""
    world = await make(work=_work)
    view = await _run(world, flow(m=_map(tolerateFailures=2)), [1, -1, -2])
    assert view.status == "COMPLETED"
    ids = await _open(world, view.id)
    assert len(ids) == 2
    shown = await letters_list.show(world.engine, TENANT, ids[0])
    assert (shown.tolerated, shown.kind) == (True, "item")
    for action in (Action.RETRY, Action.SKIP):
        with pytest.raises(ConflictError):
            await letters_act.act(
                world.engine, TENANT, ids[0], Wish(action=action, by="eve", value=1)
            )
    for id, action in zip(ids, (Action.DISCARD, Action.FAIL), strict=True):
        await letters_act.act(world.engine, TENANT, id, Wish(action=action, by="eve"))
    assert await _open(world, view.id) == []
    assert (await world.view(view.id)).status == "COMPLETED"


async def test_while_the_map_runs_a_tolerated_item_can_be_taken_up_again(make: MakeWorld) -> None:
    """Its result then counts, and the failure no longer does."""
    broken = [True]

    def work(call: Any) -> Any:
        if call.input < 0 and broken:
            raise ValueError("negative")
        return call.input

    world = await make(work=work)
    wait = {"type": "wait", "duration": "1m"}
    await world.publish(
        flow(
            m=_map(tolerateFailures=1, maxConcurrency=1),
            w=wait,
            output="${tasks.m.output}",
        )
    )
    started = await world.start("flow", [-1, 2, 3])
    while not (ids := await _open(world, started.id)):
        await world.deliver(world.transport.take(world.clock.now())[:1])
    broken.clear()
    await letters_act.act(world.engine, TENANT, ids[0], Wish(action=Action.RETRY, by="eve"))
    await world.run_until_quiet()
    assert (await world.view(started.id)).output == [-1, 2, 3]
    await world.verified(started.id)


async def test_a_map_that_failed_all_the_same_is_taken_up_within_its_tolerance(
    make: MakeWorld,
) -> None:
    """Of three failures two are tolerated: skipping one is enough."""
    world = await make(work=_work)
    view = await _run(
        world, flow(m=_map(tolerateFailures=2), output="${tasks.m.output}"), [-1, -2, -3, 4]
    )
    assert view.status == "FAILED"
    ids = await _open(world, view.id)
    await letters_act.act(
        world.engine, TENANT, ids[1], Wish(action=Action.SKIP, by="eve", value="given")
    )
    await world.run_until_quiet()
    await world.verified(view.id)
    again = await world.view(view.id)
    assert again.status == "COMPLETED"
    assert sorted(map(str, again.output)) == ["4", "None", "None", "given"]


async def test_under_hold_a_tolerated_item_holds_nothing(make: MakeWorld) -> None:
    """Its letter can be put away while the execution runs."""
    world = await make(work=_work)
    wait = {"type": "wait", "duration": "1h", "needs": ["m"]}
    await world.publish(flow(m=_map(tolerateFailures=1), w=wait, on_failure="hold"))
    started = await world.start("flow", [1, -1])
    await world.settle()
    view = await world.view(started.id)
    assert (view.status, view.holding) == ("RUNNING", [])
    (id,) = await _open(world, started.id)
    await letters_act.act(world.engine, TENANT, id, Wish(action=Action.DISCARD, by="eve"))
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"


async def test_fail_fast_cancels_a_map_whose_failures_are_tolerated(make: MakeWorld) -> None:
    """It has not failed: it was stopped."""
    world = await make(work=_work, boom=lambda call: _work(call))
    await world.publish(
        flow(
            m=_map(tolerateFailures=5, maxConcurrency=1),
            f=task("boom", input=-1, retry=retry(1)),
        )
    )
    started = await world.start("flow", [-1, 2, 3])
    await world.deliver(world.transport.take(world.clock.now()))
    while due := world.transport.take(world.clock.now()):
        await world.deliver([m for m in due if b'"item"' in m.body or b"runTask" not in m.body])
        if len(await _open(world, started.id)) == 1:
            await world.deliver([m for m in due if b'"item"' not in m.body])
    await world.run_until_quiet()
    statuses = await world.statuses(started.id)
    assert (await world.view(started.id)).status == "FAILED"
    assert statuses == {"m": "CANCELLED", "f": "DEAD_LETTERED"}
    await world.verified(started.id)


async def test_a_map_of_children_tolerates_failed_children(make: MakeWorld) -> None:
    """`do: workflow`: results by position, each item linked to its child."""
    world = await make(work=_work)
    await world.publish(
        flow(
            "child",
            w=task("work", input="${input}", retry=retry(1)),
            output="${tasks.w.output}",
        )
    )
    m = {
        "type": "map",
        "items": "${input}",
        "maxConcurrency": 2,
        "tolerateFailures": "40%",
        "do": child_task("child", input="${item}"),
    }
    view = await _run(world, flow("parent", m=m, output="${tasks.m.output}"), [5, -1, 6, -2, 7])
    assert (view.status, view.output) == ("COMPLETED", [5, None, 6, None, 7])
    born = [one for one in (await everyone(world)).values() if "parent" in one]
    assert sorted(one["parentTask"]["item"] for one in born) == [0, 1, 2, 3, 4]
    for one in born:
        stored = await doc(world, view.id, f"task:m:{one['parentTask']['item']}")
        assert stored["child"]["execution"] == one["id"]


async def test_ten_thousand_items_keep_the_parents_document_small(make: MakeWorld) -> None:
    """Items are in chunks and counted: with failures at random places, too."""
    from orchestrator.domain import jsonvalues

    world = await make(work=_work)
    m = _map(tolerateFailures="50%")
    await world.publish(flow(m=m))
    items = [-1 if n % 3 == 0 else n for n in range(MAX_MAP_ITEMS)]
    started = await world.start("flow", items)
    await world.deliver(world.transport.take(world.clock.now()))
    largest = 0
    while due := world.transport.take(world.clock.now(), limit=500):
        await world.deliver(due)
        stored = await doc(world, started.id, started.id)
        stored.pop("input")
        largest = max(largest, len(jsonvalues.dumps(stored)))
    view = await world.view(started.id)
    assert view.status == "COMPLETED"
    assert largest < 2_000
    shown = await inspect.task(world.engine, TENANT, started.id, "m")
    assert shown.map is not None
    assert (shown.map.count, shown.map.failed) == (10_000, 3_334)
    assert shown.output[:4] == [None, 1, 2, None]
    assert len(shown.output) == 10_000
