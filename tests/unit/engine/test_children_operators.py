"""What operators do about the dead letters of parents and children."""

from __future__ import annotations

from typing import Any

from family import child, child_of, child_task, doc, everyone, parent

from orchestrator.domain.topology import ORCHESTRATION_QUEUE
from orchestrator.engine import letters_act, letters_list
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from tests.support.definitions import flow, retry
from tests.support.world import TENANT
from tests.unit.engine.conftest import MakeWorld


async def test_a_failed_child_taken_up_again_changes_nothing_in_its_parent(
    make: MakeWorld,
) -> None:
    """The parent took its failure; an operator's retry of the parent's task starts a new child."""

    broken = [True]

    def work(call: Any) -> str:
        if broken:
            raise ValueError("down")
        return "up"

    world = await make(work=work)
    await world.publish(child(defaults={"retry": retry(1)}))
    await world.publish(parent())
    started = await world.start("parent")
    await world.run_until_quiet()
    first = await child_of(world, started.id)
    broken.clear()

    async def again(execution: str) -> None:
        found, _ = await letters_list.page(
            world.engine, TENANT, LetterFilter(execution=execution), limit=5, after=None
        )
        await letters_act.act(
            world.engine, TENANT, found[0].id, Wish(action=Action.RETRY, by="eve")
        )
        await world.run_until_quiet()

    await again(first)
    assert (await world.view(first)).status == "COMPLETED"
    assert (await world.view(started.id)).status == "FAILED"
    await again(started.id)
    view = await world.view(started.id)
    assert (view.status, view.output) == ("COMPLETED", "up")
    assert await child_of(world, started.id) != first


async def test_an_operators_retry_with_edited_input_gives_it_to_the_new_child(
    make: MakeWorld,
) -> None:
    """The letter shows what the child was given."""

    world = await make(work=lambda call: 10 // call.input)
    await world.publish(child(defaults={"retry": retry(1)}))
    await world.publish(parent(input="${input}"))
    started = await world.start("parent", 0)
    await world.run_until_quiet()
    found, _ = await letters_list.page(
        world.engine, TENANT, LetterFilter(execution=started.id), limit=5, after=None
    )
    shown = await letters_list.show(world.engine, TENANT, found[0].id)
    assert shown.error is not None
    assert (shown.input, shown.error.type) == (0, "CHILD_FAILED")
    await letters_act.act(
        world.engine, TENANT, shown.id, Wish(action=Action.RETRY, by="eve", value=5, edited=True)
    )
    await world.run_until_quiet()
    assert (await world.view(started.id)).output == 2


async def test_the_deadline_of_a_task_takes_it_over_and_stops_its_child(make: MakeWorld) -> None:
    """The task fails at its deadline; its child, and the children of a map, are cancelled."""
    world = await make(work=lambda call: 1)
    await world.publish(flow("child", w={"type": "wait", "duration": "3h"}))
    m = {"type": "map", "items": [1, 2], "do": child_task("child"), "deadline": "1h"}
    c = child_task("child", deadline="1h")
    await world.publish(flow("parent", c=c, m=m, on_failure="continue"))
    started = await world.start("parent")
    await world.run_until_quiet()
    view = await world.view(started.id)
    assert view.error is not None
    assert (view.status, view.error.type) == ("FAILED", "DEADLINE_EXCEEDED")
    everybody = await everyone(world)
    assert sorted(one["status"] for one in everybody.values()) == ["CANCELLED"] * 3 + ["FAILED"]
    for name in ("task:c", "task:m:0", "task:m:1"):
        stored = await doc(world, started.id, name)
        assert ("sweepAt" in stored, stored["child"]["settled"]) == (False, True)
    await world.verified(started.id)


async def test_a_child_of_a_task_that_is_skipped_before_it_was_stopped_is_stopped_none_the_less(
    make: MakeWorld,
) -> None:
    """The deadline makes a dead letter at once, and the child is called off after that: whoever
    skips the letter in between must not leave it running."""
    world = await make(work=lambda call: 1)
    await world.publish(flow("child", w={"type": "wait", "duration": "30d"}))
    c = child_task("child", deadline="1h")
    w = {"type": "wait", "duration": "2h"}
    await world.publish(flow("parent", c=c, w=w, on_failure="continue"))
    started = await world.start("parent")
    await world.settle()
    await world.clock.advance(3_600_000)
    timers = world.transport.take(world.clock.now(), ORCHESTRATION_QUEUE)
    await world.deliver(timers)
    world.transport.take(world.clock.now())  # the call to look at the task is lost
    assert (await doc(world, started.id, "task:c"))["status"] == "DEAD_LETTERED"
    wish = Wish(action=Action.SKIP, by="eve", value=1)
    found, _ = await letters_list.page(
        world.engine, TENANT, LetterFilter(execution=started.id), limit=5, after=None
    )
    await letters_act.act(world.engine, TENANT, found[0].id, wish)
    await world.sweep()
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert (await world.view(await child_of(world, started.id))).status == "CANCELLED"
    stored = await doc(world, started.id, "task:c")
    assert ("sweepAt" in stored, stored["child"]["settled"]) == (False, True)
    await world.verified(started.id)
