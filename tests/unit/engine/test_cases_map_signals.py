"""Signals for the items of a map, in the whole engine: order, limits, operators, lost messages."""

from __future__ import annotations

from typing import Any

import pytest
from family import doc, task_of

from orchestrator.domain.errors import ConflictError, InvalidError
from orchestrator.domain.topology import MAX_SCHEDULE_AHEAD_MS, TASKS_STANDARD_QUEUE
from orchestrator.engine import control, letters_act, letters_list
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from tests.support.definitions import flow, retry, task
from tests.support.signals import awaiting, listed, send, started, states
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld

HOUR = 3_600_000
DAY = 24 * HOUR


def asks(items: Any = 3, name: str = "go", *needs: str, **more: Any) -> dict[str, Any]:
    """A map whose items wait for a signal each; `timeout` and `schema` are the item's."""
    do = {"type": "signal", "signal": name}
    do |= {field: more.pop(field) for field in ("timeout", "schema") if field in more}
    given = list(range(items)) if isinstance(items, int) else items
    return {"type": "map", "items": given, "do": do, "needs": list(needs), **more}


async def takers(world: World, execution: str) -> dict[str, tuple[str | None, int | None]]:
    """Signal id -> (task, item)."""
    return {one.id: (one.task, one.item) for one in await listed(world, execution)}


async def letters(world: World) -> list[Any]:
    found, _ = await letters_list.find(world.engine, TENANT, LetterFilter(), limit=50, after=None)
    return found


async def act(world: World, letter: Any, action: Action, value: Any = None) -> None:
    wish = Wish(action=action, by="eve", value=value)
    await letters_act.act(world.engine, TENANT, letters_list.public_id(letter.body), wish)


async def item_states(world: World, execution: str, count: int) -> list[str]:
    return [(await task_of(world, execution, "m", item)).status.value for item in range(count)]


async def test_signals_for_items_in_order_and_results_by_position(make: MakeWorld) -> None:
    world = await make(noop=lambda call: call.input)
    id = await started(world, m=asks(3), z=task("noop", "m", input="${tasks.m.output}"))
    assert await item_states(world, id, 3) == ["WAITING"] * 3
    for n in range(4):
        await send(world, id, payload={"n": n}, id=f"n{n}")
        await send(world, id, payload={"n": n}, id=f"n{n}")
        world.clock.jump(1)
    await world.settle()
    assert (await world.view(id)).status.value == "COMPLETED"
    assert world.activities.calls[0].input == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert await takers(world, id) == {
        "n0": ("m", 0),
        "n1": ("m", 1),
        "n2": ("m", 2),
        "n3": (None, None),
    }
    assert (await states(world, id))["n3"] == ("UNMATCHED", None)
    shown = await task_of(world, id, "m", 1)
    assert (shown.status, shown.attempt, shown.output) == ("COMPLETED", 0, {"n": 1})
    await world.verified(id)


async def test_signals_before_the_items_turn_are_kept_until_then(make: MakeWorld) -> None:
    """One at a time, and all of them sent before the first orchestration."""
    world = await make(noop=lambda call: 1)
    id = await started(
        world, settle=False, a=task("noop"), m=asks(3, "go", "a", maxConcurrency=1),
        output="${tasks.m.output}",
    )  # fmt: skip
    for n in range(3):
        await send(world, id, payload=n)
        world.clock.jump(1)
    world.transport.messages.reverse()
    await world.settle()
    assert (await world.view(id)).output == [0, 1, 2]
    await world.verified(id)


async def test_signal_before_a_worker_has_parked_the_item(make: MakeWorld) -> None:
    """Its document is created by the commit; the worker finds it finished."""
    world = await make()
    await world.publish(flow(m=asks(2), output="${tasks.m.output}"))
    id = (await world.start("flow")).id
    while not world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE):
        await world.deliver(world.transport.take(world.clock.now()))
    await send(world, id, payload="x")
    await world.settle()
    assert await item_states(world, id, 2) == ["COMPLETED", "QUEUED"]
    await world.clock.advance(60_000)  # the messages to the workers were lost
    await world.sweep()
    assert await item_states(world, id, 2) == ["COMPLETED", "WAITING"]
    await send(world, id, payload="y")
    await world.settle()
    assert (await world.view(id)).output == ["x", "y"]
    await world.verified(id)


async def test_signal_timeout_of_an_item_is_its_dead_letter(make: MakeWorld) -> None:
    world = await make()
    id = await started(world, m=asks(2, timeout="1h"), on_failure="continue")
    shown = await task_of(world, id, "m", 0)
    assert (shown.status, shown.due_at) == ("WAITING", world.clock.now() + HOUR)
    await send(world, id, id="x")
    await world.run_until_quiet()
    assert (await world.view(id)).status.value == "FAILED"
    assert await item_states(world, id, 2) == ["COMPLETED", "DEAD_LETTERED"]
    shown = await task_of(world, id, "m", 1)
    assert shown.error is not None
    assert (shown.error.type, shown.error.field) == ("SIGNAL_TIMEOUT", "$.tasks.m.do.timeout")
    (letter,) = await letters(world)
    assert (letter.body["item"], letter.body["reason"]) == (1, "notRetryable")
    await world.verified(id)


@pytest.mark.parametrize("action", [Action.RETRY, Action.SKIP])
async def test_signal_timeout_of_an_item_retried_waits_anew_and_skipped_has_an_output(
    make: MakeWorld, action: Action
) -> None:
    world = await make()
    id = await started(world, m=asks(2, timeout="1h"), output="${tasks.m.output}")
    await send(world, id, payload="a")
    await world.run_until_quiet()
    for _ in range(2):  # twice: the second letter is another one
        (letter,) = [one for one in await letters(world) if one.body["status"] == "OPEN"]
        if action is Action.SKIP:
            break
        await act(world, letter, action)
        await world.settle()
        assert await item_states(world, id, 2) == ["COMPLETED", "WAITING"]
        if _ == 0:
            await world.run_until_quiet()
    if action is Action.SKIP:
        await act(world, letter, action, "b")
    else:
        await send(world, id, payload="b")
    await world.settle()
    assert (await world.view(id)).output == ["a", "b"]
    await world.verified(id)


async def test_a_signal_that_came_too_late_for_the_item_serves_its_retry(make: MakeWorld) -> None:
    world = await make(noop=lambda call: 1)
    id = await started(
        world, m=asks(1, timeout="1h"), w={"type": "wait", "duration": "5h"}, on_failure="continue",
        output="${tasks.m.output}",
    )  # fmt: skip
    await world.clock.advance(2 * HOUR)
    await world.settle()
    await send(world, id, payload="late")
    await world.settle()
    (letter,) = await letters(world)
    await act(world, letter, Action.RETRY)
    await world.settle()
    assert await item_states(world, id, 1) == ["COMPLETED"]
    await world.run_until_quiet()
    assert (await world.view(id)).output == ["late"]
    await world.verified(id)


async def test_an_item_that_waits_takes_no_edited_input(make: MakeWorld) -> None:
    world = await make()
    await started(world, m=asks(1, timeout="1h"))
    await world.run_until_quiet()
    (letter,) = await letters(world)
    wish = Wish(action=Action.RETRY, by="eve", value=1, edited=True)
    with pytest.raises(ConflictError) as caught:
        await letters_act.act(world.engine, TENANT, letters_list.public_id(letter.body), wish)
    assert caught.value.code == "CANNOT_EDIT"


async def test_signal_in_a_race_with_the_items_timeout_counts_if_it_was_there(
    make: MakeWorld,
) -> None:
    """Its message is lost; the worker that is to fail the item finds it."""
    world = await make()
    id = await started(world, m=asks(1, timeout="1h"), output="${tasks.m.output}")
    await world.clock.advance(HOUR - 1_000)
    await send(world, id, payload="in time")
    world.transport.take(world.clock.now())  # lost
    await world.run_until_quiet()
    assert (await world.view(id)).output == ["in time"]
    await world.verified(id)


async def test_signals_in_time_for_others_do_not_keep_an_item_waiting(make: MakeWorld) -> None:
    """One signal, two items whose time is over: the first has it, the second fails."""
    world = await make()
    id = await started(
        world, m=asks(2, timeout="1h", tolerateFailures=1), output="${tasks.m.output}"
    )
    await world.clock.advance(HOUR - 1_000)
    await send(world, id, payload="in time")
    world.transport.take(world.clock.now())
    await world.run_until_quiet()
    assert (await world.view(id)).output == ["in time", None]
    await world.verified(id)


async def test_signal_that_meets_a_result_of_the_worker_goes_to_the_next_item(
    make: MakeWorld,
) -> None:
    """The item has failed, and the orchestrator has not heard of it."""
    world = await make()
    id = await started(
        world, m=asks(1, timeout="1h", continueOnError=True), n=asks(1), on_failure="continue"
    )
    await world.clock.advance(HOUR)
    failing = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    await world.deliver(failing)
    lost = world.transport.take(world.clock.now())
    assert [message.queue for message in lost] == ["orchestration"]
    assert (await doc(world, id, "task:m:0"))["status"] == "DEAD_LETTERED"
    await send(world, id, id="x")
    await world.settle()
    assert await takers(world, id) == {"x": ("n", 0)}
    assert (await task_of(world, id, "m", 0)).status == "DEAD_LETTERED"
    await world.verified(id)


async def test_signals_while_paused_are_kept_and_nobody_fails_until_it_goes_on(
    make: MakeWorld,
) -> None:
    world = await make()
    id = await started(
        world, m=asks(3, timeout="1h", tolerateFailures=2), output="${tasks.m.output}"
    )
    await control.act(world.engine, TENANT, id, control.PAUSE, by="eve")
    await send(world, id, payload=1, id="x")
    await world.clock.advance(2 * HOUR)
    await world.settle()
    await world.sweep()
    assert await item_states(world, id, 3) == ["WAITING"] * 3
    assert await states(world, id) == {"x": ("BUFFERED", None)}
    await control.act(world.engine, TENANT, id, control.RESUME, by="eve")
    await world.settle()
    assert (await world.view(id)).output == [1, None, None]
    await world.verified(id)


@pytest.mark.parametrize("how", ["cancel", "compensate", "deadline"])
async def test_items_that_wait_are_closed_with_their_execution(make: MakeWorld, how: str) -> None:
    world = await make(noop=lambda call: 1)
    undo = {"type": "activity", "activity": "noop"}
    first = task("noop", compensate=undo)
    more = {"deadline": "1h"} if how == "deadline" else {}
    id = await started(world, a=first, m=asks(2, "go", "a", **more))
    if how == "deadline":
        await world.run_until_quiet()
    else:
        action = control.CANCEL if how == "cancel" else control.CANCEL_COMPENSATING
        await control.act(world.engine, TENANT, id, action, by="eve")
        await world.settle()
    assert (await world.view(id)).status.value in ("CANCELLED", "FAILED")
    for item in range(2):
        stored = await doc(world, id, f"task:m:{item}")
        assert stored["status"] == "CANCELLED"
        assert "sweepAt" not in stored
    with pytest.raises(ConflictError):
        await send(world, id)
    await world.verified(id)


async def test_fail_fast_gives_the_waiting_items_back(make: MakeWorld) -> None:
    world = await make(bad=lambda call: 1 / 0)
    id = await started(world, a=task("bad", retry=retry(1)), m=asks(2))
    assert (await world.view(id)).status.value == "FAILED"
    assert (await doc(world, id, "task:m:0"))["status"] == "CANCELLED"
    await world.verified(id)


async def test_a_lost_call_to_close_an_item_is_made_up_for_by_the_sweeper(make: MakeWorld) -> None:
    world = await make()
    id = await started(world, m=asks(1))
    await world.clock.advance(60_000)
    await world.sweep()
    await world.clock.advance(60_000)
    before = await doc(world, id, "task:m:0")
    assert before["sweepAt"] > world.clock.now(), "looked at less and less often"
    await control.act(world.engine, TENANT, id, control.CANCEL, by="eve")
    world.transport.messages.clear()
    await world.clock.advance(120_000)
    await world.sweep()
    assert (await doc(world, id, "task:m:0"))["status"] == "CANCELLED"


@pytest.mark.parametrize("days", [1, 7])
async def test_long_limits_survive_the_loss_of_every_message(make: MakeWorld, days: int) -> None:
    world = await make()
    id = await started(world, m=asks(1, timeout=f"{days}d"))
    scheduled = [message for message in world.transport.messages if message.due_at]
    assert len(scheduled) == (1 if days * DAY <= MAX_SCHEDULE_AHEAD_MS else 0)
    world.transport.messages.clear()
    await world.clock.advance(days * DAY - 1)
    await world.sweep()
    assert await item_states(world, id, 1) == ["WAITING"]
    for _ in range(3):
        await world.clock.advance(20_000)
        await world.sweep()
    assert await item_states(world, id, 1) == ["DEAD_LETTERED"]


async def test_signals_for_10_items_of_100_kb_each_do_not_break_the_batch(make: MakeWorld) -> None:
    world = await make()
    id = await started(world, m=asks(40), output="${size(tasks.m.output)}")
    for n in range(40):
        await send(world, id, payload="x" * 60_000, id=f"n{n}")
    await world.settle()
    assert (await world.view(id)).output == 40
    assert "ref" in (await doc(world, id, "task:m:7"))["output"]
    await world.verified(id)


async def test_signal_of_an_item_is_checked_against_its_schema(make: MakeWorld) -> None:
    world = await make()
    id = await started(world, m=asks(1, "approved", schema={"type": "integer"}))
    with pytest.raises(InvalidError) as caught:
        await send(world, id, "approved", payload="x")
    assert caught.value.code == "PAYLOAD_INVALID"
    with pytest.raises(InvalidError) as caught:
        await send(world, id, "aproved")
    assert 'did you mean "approved"?' in caught.value.details[0].hint
    await send(world, id, "approved", payload=1)
    await world.settle()
    assert (await world.view(id)).status.value == "COMPLETED"


async def test_a_map_and_a_task_of_one_name_must_agree_on_the_schema(make: MakeWorld) -> None:
    world = await make()
    with pytest.raises(InvalidError) as caught:
        await world.publish(flow(a=awaiting(schema=True), m=asks(schema={"type": "object"})))
    (fault,) = caught.value.details
    assert (fault.code, fault.field) == ("SIGNAL_SCHEMA", "$.tasks.m.do.schema")


async def test_the_maps_own_timeout_is_its_items_limit(make: MakeWorld) -> None:
    world = await make()
    definition = flow(m={**asks(1), "timeout": "5m"})
    await world.publish(definition)
    id = (await world.start("flow")).id
    await world.settle()
    assert (await task_of(world, id, "m", 0)).due_at == world.clock.now() + 300_000


async def test_the_view_says_which_signal_is_awaited(make: MakeWorld) -> None:
    world = await make(noop=lambda call: 1)
    id = await started(world, m=asks(1, "voted"), s=awaiting("approved"), a=task("noop"))
    shown = [(await task_of(world, id, "m", 0)).signal]
    shown += [(await task_of(world, id, task)).signal for task in ("m", "s", "a")]
    assert shown == ["voted", "voted", "approved", None]
