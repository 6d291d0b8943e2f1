"""`wait` inside maps: a document that is WAITING, a scheduled message, no attempt."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from family import doc, task_of

from orchestrator.domain.topology import MAX_SCHEDULE_AHEAD_MS
from orchestrator.engine import control
from tests.support.definitions import flow, retry, task
from tests.support.world import START, TENANT, World
from tests.unit.engine.conftest import MakeWorld

DAY = 24 * 3600 * 1000


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def _waits(do: dict[str, Any], **more: Any) -> dict[str, Any]:
    m = {"type": "map", "items": "${input}", "do": {"type": "wait", **do}, **more}
    return flow(m=m, z=task("noop", "m"), output="${tasks.m.output}")


async def _started(world: World, definition: dict[str, Any], items: list[Any]) -> str:
    await world.publish(definition)
    started = await world.start("flow", items)
    await world.settle()
    return started.id


async def test_each_item_waits_for_its_own_time_without_an_attempt(make: MakeWorld) -> None:
    """Results by position, all null."""
    world = await make(noop=lambda call: world.clock.now())
    times = [_iso(START + 5_000), _iso(START + 3_000), _iso(START - DAY), _iso(START + 4_000)]
    id = await _started(world, _waits({"until": "${item}"}), times)
    views = [await task_of(world, id, "m", item) for item in range(4)]
    assert [view.status for view in views] == ["WAITING", "WAITING", "COMPLETED", "WAITING"]
    assert [view.due_at for view in views] == [START + 5_000, START + 3_000, None, START + 4_000]
    assert {view.attempt for view in views} == {0}
    await world.run_until_quiet()
    view = await world.view(id)
    assert (view.status, view.output) == ("COMPLETED", [None] * 4)
    (call,) = world.activities.calls
    assert call.execution == id
    assert world.clock.now() == START + 5_000
    await world.verified(id)


@pytest.mark.parametrize("days", [1, 6, 7, 400])
async def test_long_waits_survive_the_loss_of_every_message(make: MakeWorld, days: int) -> None:
    """Beyond six days there is no message at all, and the sweeper finds it when it is due."""
    world = await make(noop=lambda call: 1)
    id = await _started(world, _waits({"duration": f"{days}d"}), [1])
    stored = await doc(world, id, "task:m:0")
    scheduled = [message for message in world.transport.messages if message.due_at]
    assert len(scheduled) == (1 if days * DAY <= MAX_SCHEDULE_AHEAD_MS else 0)
    assert stored["dueAt"] == START + days * DAY
    world.transport.messages.clear()
    await world.clock.advance(days * DAY - 1)
    await world.sweep()
    assert (await task_of(world, id, "m", 0)).status == "WAITING"
    await world.clock.advance(world.tunables.retry_grace_ms + 1)
    await world.sweep()
    assert (await world.view(id)).status == "COMPLETED"


async def test_zero_and_past_end_at_once(make: MakeWorld) -> None:
    """No time passes, no message is scheduled."""
    world = await make(noop=lambda call: 1)
    id = await _started(world, _waits({"duration": "0s"}), [1, 2])
    assert (await world.view(id)).status == "COMPLETED"
    assert world.clock.now() == START


@pytest.mark.parametrize(
    ("item", "type", "message"),
    [
        ("soon", "WAIT_INVALID", "not an ISO 8601 time"),
        ("2030-01-01T00:00:00", "WAIT_INVALID", "has no offset"),
        ("9999-01-01T00:00:00Z", "WAIT_INVALID", "longer than 3650 days"),
        (7, "WAIT_INVALID", "not a number"),
        ({}, "WAIT_INVALID", "not an object"),
    ],
)
async def test_what_is_no_time_fails_the_item_and_names_its_place(
    make: MakeWorld, item: Any, type: str, message: str
) -> None:
    """Also a wait of thousands of years. Not tried again."""
    world = await make(noop=lambda call: 1)
    definition = _waits({"until": "${item}"}, retry=retry(3))
    id = await _started(world, definition, [item])
    view = await world.view(id)
    assert view.error is not None
    assert (view.status, view.error.type) == ("FAILED", "MAP_ITEM_FAILED")
    cause = view.error.causes[0]
    assert (cause.type, message in cause.message) == (type, True)
    shown = await task_of(world, id, "m", 0)
    assert shown.error is not None
    assert shown.error.field == "$.tasks.m.do.until"
    assert (shown.attempt, len(shown.attempts)) == (1, 1)
    await world.verified(id)


async def test_an_expression_that_fails_is_told_with_its_source(make: MakeWorld) -> None:
    """Like everywhere."""
    world = await make(noop=lambda call: 1)
    id = await _started(world, _waits({"until": "${item.at}"}), [{"no": 1}])
    shown = await task_of(world, id, "m", 0)
    assert shown.error is not None
    assert (shown.error.type, shown.error.expression) == ("EXPRESSION_FAILED", "item.at")


async def test_a_failed_item_can_be_taken_up_again(make: MakeWorld) -> None:
    """Skipped with an output, or waited for anew."""
    from orchestrator.engine import letters_act, letters_list
    from orchestrator.engine.letters_list import LetterFilter
    from orchestrator.engine.letters_wish import Action, Wish

    world = await make(noop=lambda call: 1)
    id = await _started(world, _waits({"until": "${item}"}), ["soon"])
    for action in (Action.RETRY, Action.SKIP):
        found, _ = await letters_list.page(
            world.engine,
            TENANT,
            LetterFilter(execution=id, status=letters_list.LetterStatus.OPEN),
            limit=5,
            after=None,
        )
        (letter,) = found
        await letters_act.act(
            world.engine, TENANT, letter.id, Wish(action=action, by="eve", value="now")
        )
        await world.settle()
        expected = "FAILED" if action is Action.RETRY else "COMPLETED"
        assert (await world.view(id)).status == expected
        await world.verified(id)
    assert (await world.view(id)).output == ["now"]


async def test_cancel_closes_the_waits_at_once(make: MakeWorld) -> None:
    """Else the sweeper would look after them for years."""
    world = await make(noop=lambda call: 1)
    id = await _started(world, _waits({"duration": "400d"}), [1, 2])
    await control.act(world.engine, TENANT, id, control.CANCEL, by="eve")
    await world.settle()
    for item in range(2):
        stored = await doc(world, id, f"task:m:{item}")
        assert (stored["status"], "sweepAt" in stored) == ("CANCELLED", False)


async def test_fail_fast_ends_the_waits_of_a_map_like_other_waits(make: MakeWorld) -> None:
    """They are given back, and the map is cancelled; a handler's are waited for."""

    def fails(call: Any) -> None:
        raise ValueError("no")

    world = await make(noop=lambda call: 1, fails=fails)
    wait = {"type": "map", "items": [1, 2], "do": {"type": "wait", "duration": "1h"}}
    await world.publish(
        flow(
            m=wait,
            h=wait | {"needs": ["f"], "runWhen": "anyFailed"},
            f=task("fails", retry=retry(1)),
        )
    )
    started = await world.start("flow")
    await world.settle()
    assert await world.statuses(started.id) == {
        "m": "CANCELLED",
        "h": "WAITING",
        "f": "DEAD_LETTERED",
    }
    await world.run_until_quiet()
    assert (await world.statuses(started.id))["h"] == "COMPLETED"
    assert (await world.view(started.id)).status == "FAILED"
    await world.verified(started.id)


async def test_a_wait_that_is_due_while_paused_is_over_and_nothing_starts(make: MakeWorld) -> None:
    """Resuming goes on behind it."""
    world = await make(noop=lambda call: 1)
    id = await _started(world, _waits({"duration": "1m"}), [1])
    await control.act(world.engine, TENANT, id, control.PAUSE, by="eve")
    await world.run_until_quiet()
    assert world.activities.calls == []
    await control.act(world.engine, TENANT, id, control.RESUME, by="eve")
    await world.settle()
    assert (await world.view(id)).status == "COMPLETED"


async def test_a_message_that_comes_early_comes_again(make: MakeWorld) -> None:
    """By the broker's clock it was time; by ours a second is missing."""
    world = await make(noop=lambda call: 1)
    id = await _started(world, _waits({"duration": "1m"}), [1])
    await world.clock.advance(59_000)
    early, world.transport.messages = world.transport.messages, []
    await world.deliver(early)
    assert (await task_of(world, id, "m", 0)).status == "WAITING"
    assert [message.due_at for message in world.transport.messages] == [START + 60_000]
    await world.run_until_quiet()
    assert (await world.view(id)).status == "COMPLETED"


async def test_doubled_messages_make_one_wait(make: MakeWorld) -> None:
    """Two workers at the same moment: one document, one scheduled message."""
    world = await make(noop=lambda call: 1)
    await world.publish(_waits({"duration": "1m"}))
    started = await world.start("flow", [1])
    await world.deliver(world.transport.take(world.clock.now()))
    (message,) = world.transport.take(world.clock.now())
    await world.deliver([message, message, message])
    assert len(world.transport.messages) == 1
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
