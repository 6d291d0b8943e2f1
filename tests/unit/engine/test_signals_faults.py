"""External events around crashes and restarts: lost messages, lost answers, lost marks, races."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.engine import control, letters_act, letters_list, signals, sweep
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.ports import StoreError, Unavailable
from tests.support.definitions import task
from tests.support.faults import FaultyStore, times, touching
from tests.support.signals import awaiting, send, started, states, stored
from tests.support.world import TENANT, quiesce
from tests.unit.engine.conftest import MakeWorld


class NotThere(StoreError):
    """As if the process had died."""


DAY = 24 * 3600 * 1000


async def test_signal_in_a_race_with_its_timeout_counts_if_it_was_there(make: MakeWorld) -> None:
    """Its message is lost; the timer finds the document."""
    world = await make()
    id = await started(world, s=awaiting(timeout="1h"), output="${tasks.s.output}")
    await world.clock.advance(3_599_000)
    await send(world, id, payload="in time")
    world.transport.take(world.clock.now())  # lost
    await world.run_until_quiet()
    assert (await world.view(id)).output == "in time"


async def test_signal_whose_message_was_lost_is_found_by_the_sweeper(make: MakeWorld) -> None:
    """Even while the execution has a far-off limit and nothing in flight."""
    world = await make()
    id = await started(world, s=awaiting(timeout="5d"))
    await send(world, id, id="x")
    assert len(world.transport.take(world.clock.now())) == 1
    await world.clock.advance(69_000)
    await world.sweep()
    assert (await world.view(id)).status.value == "RUNNING"
    await world.clock.advance(1_000)
    report = await world.sweep()
    assert report.signals == 1
    assert (await world.view(id)).status.value == "COMPLETED"
    assert "sweepAt" not in await stored(world, id, "signal:x")


async def test_signal_crash_between_write_and_message(make: MakeWorld) -> None:
    """The broker is down when it is stored: the outbox has the message."""
    world = await make()
    id = await started(world, s=awaiting())
    world.transport.failing = True
    assert (await send(world, id, id="x")).created
    world.transport.failing = False
    await world.settle()
    assert (await world.view(id)).status.value == "RUNNING"
    await world.clock.advance(60_000)
    await world.sweep()
    assert (await world.view(id)).status.value == "COMPLETED"


@pytest.mark.parametrize("lost", ["before", "after"])
async def test_signal_survives_a_store_that_does_not_answer(make: MakeWorld, lost: str) -> None:
    """The write's answer is lost: asking again is not a second signal."""
    world = await make(wrap_store=FaultyStore)
    id = await started(world, s=awaiting(), t=awaiting())
    store: Any = world.engine.store

    def rule(name: str, args: tuple[Any, ...]) -> Any:
        if name == "batch" and touching("signal", args[2]) and once:
            once.pop()
            return Unavailable("gone")
        return None

    once = [1]
    setattr(store, lost, rule)
    job = asyncio.create_task(send(world, id, payload=1, id="x"))
    while not job.done():
        await quiesce()
        await world.clock.advance(1_000)
    assert job.result().id == "x"
    await world.settle()
    assert await states(world, id) == {"x": ("CONSUMED", "s")}
    assert (await world.statuses(id))["t"] == "WAITING"


async def test_signal_mark_that_is_lost_changes_nothing(make: MakeWorld) -> None:
    """A crash after the commit, before the document says TAKEN: asked for again, it is known."""
    world = await make(wrap_store=FaultyStore)
    id = await started(world, s=awaiting(), t=awaiting())
    faulty: Any = world.engine.store
    faulty.before = times(1, lambda: NotThere("crash"), "replace")
    await send(world, id, id="x")
    await world.settle()
    assert "sweepAt" in await stored(world, id, "signal:x")
    before = (await world.view(id)).seq
    await world.clock.advance(70_000)
    await world.sweep()
    assert (await world.view(id)).seq == before
    assert (await stored(world, id, "signal:x"))["status"] == "TAKEN"


async def test_signal_waits_over_a_restart_of_everything(make: MakeWorld) -> None:
    world = await make(noop=lambda call: 1)
    id = await started(world, s=awaiting(), a=task("noop", "s"))
    await world.clock.advance(40 * DAY)
    fresh = world.another("worker-2")
    await signals.send(fresh, TENANT, id, "go", id="x")
    await world.settle(fresh)
    assert (await world.view(id)).status.value == "COMPLETED"


async def test_signal_for_ever_is_a_reason_to_wait_not_a_fault(make: MakeWorld) -> None:
    world = await make()
    id = await started(world, s=awaiting())
    before = (await world.view(id)).seq
    for _ in range(10):
        await world.clock.advance(3_600_000)
        await world.sweep()
    view = await world.view(id)
    assert (view.status.value, view.seq, view.holding) == ("RUNNING", before, [])


async def test_signal_that_came_as_the_execution_failed_is_found_when_it_is_taken_up_again(
    make: MakeWorld,
) -> None:
    world = await make()
    id = await started(world, s=awaiting(timeout="1h"), output="${tasks.s.output}")
    await world.clock.advance(3_600_000)
    due = world.transport.take(world.clock.now())
    real = world.engine.store.query

    async def blind(container: str, query: Any) -> Any:
        return (
            []
            if ("type", "signal") in [(w.field, w.value) for w in query.where]
            else await real(container, query)
        )

    await send(world, id, payload="just", id="x")
    world.sqlite.query = blind  # type: ignore[method-assign]  # a replica that lags
    await world.deliver(due)
    world.sqlite.query = real  # type: ignore[method-assign]
    await world.settle()
    assert (await world.view(id)).status.value == "FAILED"
    assert await states(world, id) == {"x": ("UNMATCHED", None)}
    (letter,), _ = await letters_list.find(
        world.engine, TENANT, LetterFilter(), limit=10, after=None
    )
    wish = Wish(action=Action.RETRY, by="eve")
    await letters_act.act(world.engine, TENANT, letters_list.public_id(letter.body), wish)
    await world.settle()
    assert (await world.view(id)).output == "just"
    await world.verified(id)


async def test_signal_that_came_as_the_execution_began_to_undo_is_asked_for_by_nobody(
    make: MakeWorld,
) -> None:
    """Undoing may take days, and no task takes a signal meanwhile."""
    world = await make(work=lambda call: None)
    undo = {"type": "activity", "activity": "work"}
    id = await started(world, a=task("work", compensate=undo), s=awaiting("go", "a"))
    await send(world, id, id="x")
    late = world.transport.take(world.clock.now())
    await control.act(world.engine, TENANT, id, control.CANCEL_COMPENSATING, by="eve")
    undoing = world.transport.take(world.clock.now())
    await world.deliver(late)
    assert not world.transport.messages
    await world.clock.advance(70_000)
    assert (await sweep.sweep(world.engine)).signals == 0
    await world.deliver(undoing)
    await world.settle()
    assert (await world.view(id)).status.value == "CANCELLED"
    assert await states(world, id) == {"x": ("UNMATCHED", None)}
