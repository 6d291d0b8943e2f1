"""A process that dies at any call, of the store or of Durable, and answers that are lost: one
instance per wish, no signal lost, and an end that is taken in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hub import Hub, around, hub_of

from orchestrator.engine import control, signals, sweep
from orchestrator.engine.core import Tunables
from orchestrator.ports import DocumentStore, Unavailable
from orchestrator.ports_durable import ENDED
from tests.support.faults import FaultyStore
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld

WRITES = ("create", "replace", "batch", "upsert")


STRIDE = 3
"""Every third call: a world per strike takes time, and the simulation strikes anywhere."""


class Crash(BaseException):
    """The process dies."""


class Fate:
    """Counts what crosses the ports and strikes once, at call number `at`."""

    def __init__(self, at: int, make: Callable[[], BaseException]) -> None:
        self.at, self.make, self.count = at, make, 0

    def __call__(self, name: str, args: tuple[Any, ...]) -> BaseException | None:
        self.count += 1
        return self.make() if self.count == self.at else None


async def settle(world: World) -> None:
    """Deliver one message after the other; what was not begun when a process died stays."""
    while due := world.transport.take(world.clock.now()):
        while due:
            try:
                await world.deliver([due.pop(0)])
            except Crash:
                world.transport.messages += due
                raise


async def survive(world: World, hub: Hub, fate: Fate, rounds: int) -> None:
    """Minutes in which whoever dies is replaced."""
    for _ in range(rounds):
        try:
            await settle(world)
            await world.clock.advance(31_000)
            await sweep.sweep(world.engine)
            await settle(world)
        except Crash:
            world.engine = hub.join(world.another(f"worker-{fate.count}"))
            world.engine.store = world.sqlite


async def scenario(make: MakeWorld, fate: Fate, place: str) -> tuple[World, Hub, str]:
    """A durable task that is started, gets two signals and ends; struck once, somewhere."""
    stores: list[FaultyStore] = []

    def wrap(store: DocumentStore) -> Any:
        stores.append(FaultyStore(store))
        return stores[-1]

    often = Tunables(max_silence_ms=60_000)  # looks do not become seldom
    world, hub = await hub_of(make, wrap_store=wrap, tunables=often)
    await world.publish(around(signals=["go"]))
    started = await world.start("around")

    def of_store(name: str, args: tuple[Any, ...]) -> Any:
        # A lost answer of the store has its own tests, and its patience needs a clock that runs.
        struck = name in WRITES and not isinstance(fate.make(), Unavailable)
        return fate(name, args) if struck else None

    if place == "before":
        stores[0].before, hub.before = of_store, fate
    else:
        stores[0].after, hub.after = of_store, fate
    await survive(world, hub, fate, 2)
    for number in (1, 2):
        try:
            id = f"s{number}"
            await signals.send(world.engine, TENANT, started.id, "go", number, id=id)
        except (Crash, Unavailable):
            world.engine = hub.join(world.another("sender"))
            world.engine.store = world.sqlite
            await signals.send(world.engine, TENANT, started.id, "go", number, id=f"s{number}")
        await survive(world, hub, fate, 4)
    return world, hub, started.id


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("kind", [Crash, lambda: Unavailable("lost")], ids=["crash", "lost"])
async def test_whatever_dies_at_whichever_call(
    make: MakeWorld, place: str, kind: Callable[[], Any]
) -> None:
    """The same flow, struck at another call each time."""
    at, reached = 1 if place == "before" else 2, STRIDE
    while at <= reached:
        fate = Fate(at, kind)
        world, hub, execution = await scenario(make, fate, place)
        reached = max(reached, fate.count)
        [id] = hub.alive()
        assert hub.starts == [id] == [f"{execution}:d:1"], at
        assert sorted({value for _, value in hub.instances[id].signals}) == [1, 2], at
        hub.end(id, "done")
        await survive(world, hub, fate, 4)
        view = await world.view(execution)
        assert (view.status, view.output) == ("COMPLETED", "done"), at
        assert hub.alive() == [], at
        await world.verified(execution)
        await world.close()
        at += STRIDE
    assert reached > 6


@pytest.mark.parametrize("place", ["before", "after"])
async def test_a_cancelled_one_is_terminated_whatever_dies(make: MakeWorld, place: str) -> None:
    """Struck at a call of the cancel, or of what follows."""
    at, reached = 1 if place == "before" else 2, STRIDE
    while at <= reached:
        fate = Fate(10**9, Crash)
        world, hub, execution = await scenario(make, fate, place)
        fate.count, fate.at = 0, at
        try:
            await control.act(world.engine, TENANT, execution, control.CANCEL, by="ada")
        except Crash:
            world.engine = hub.join(world.another("again"))
            world.engine.store = world.sqlite
            await control.act(world.engine, TENANT, execution, control.CANCEL, by="ada")
        await survive(world, hub, fate, 4)
        reached = max(reached, fate.count)
        assert [one.status in ENDED for one in hub.instances.values()] == [True], at
        assert (await world.view(execution)).status == "CANCELLED", at
        stored = await world.sqlite.read("executions", (TENANT, execution), "task:d")
        assert "sweepAt" not in stored.body, at
        await world.close()
        at += STRIDE
    assert reached > 3
