"""Several schedulers, wrong clocks, stale leaders, crashes at each write: every tick once."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from orchestrator.domain.topology import CATALOG, CONTROL
from orchestrator.engine import catalog, schedule, schedule_docs, schedule_reads, schedules
from orchestrator.engine.core import Engine
from orchestrator.engine.leadership import ID, PARTITION, Leadership
from orchestrator.ports import PreconditionFailed, StoreError, Unavailable
from tests.support.definitions import flow, task
from tests.support.faults import FaultyStore
from tests.support.schedules import (
    HOUR,
    MINUTE,
    PERIOD,
    SECOND,
    SkewedClock,
    outcomes,
    passes,
    scheduled,
    skewed,
    started,
)
from tests.support.world import START, TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld


async def new(make: MakeWorld) -> World:
    return await make(noop=lambda call: None)


async def lease(world: World) -> dict[str, Any]:
    return (await world.sqlite.read(CONTROL, PARTITION, ID)).body


async def stored(world: World) -> dict[str, Any]:
    doc = await schedule_docs.read(world.engine, TENANT, "s")
    assert doc
    return doc.body


async def crash(engine: Engine) -> None:
    """The process is gone: nothing is handed back."""
    engine.parts.clear()


# --- the lease ------------------------------------------------------------------------------------


async def test_a_second_one_leads_only_after_a_whole_lease_without_renewal(
    make: MakeWorld,
) -> None:
    world = await new(make)
    first, second = world.another("a"), world.another("b")
    assert await first.part(Leadership).hold() == 1
    for _ in range(20):
        await world.clock.advance(PERIOD)
        assert await second.part(Leadership).hold() is None
        assert await first.part(Leadership).hold() == 1
    await crash(first)
    waited = 0
    while await second.part(Leadership).hold() is None:
        await world.clock.advance(PERIOD)
        waited += PERIOD
    assert 30 * SECOND <= waited <= 40 * SECOND
    assert (await lease(world))["token"] == 2


@pytest.mark.parametrize("ahead", [45 * SECOND, -45 * SECOND, 24 * HOUR, -24 * HOUR])
async def test_case_a_wrong_clock_takes_no_live_lease(make: MakeWorld, ahead: int) -> None:
    """B's clock differs by more than the lease: it is not compared with A's."""
    world = await new(make)
    a, b = world.another("a"), skewed(world, "b", ahead)
    for _ in range(30):
        assert await a.part(Leadership).hold() == 1
        assert await b.part(Leadership).hold() is None
        await world.clock.advance(PERIOD)


async def test_a_clock_that_is_set_forward_gains_one_step(make: MakeWorld) -> None:
    world = await new(make)
    a, b = world.another("a"), skewed(world, "b", 0)
    await a.part(Leadership).hold()
    assert await b.part(Leadership).hold() is None
    clock = b.clock
    assert isinstance(clock, SkewedClock)
    clock.ahead += HOUR
    assert await b.part(Leadership).hold() is None
    assert await b.part(Leadership).hold() is None


async def test_a_leader_that_stops_hands_over_at_once(make: MakeWorld) -> None:
    world = await new(make)
    a, b = world.another("a"), world.another("b")
    assert await a.part(Leadership).hold() == 1
    await a.part(Leadership).close()
    assert await b.part(Leadership).hold() == 2
    assert await a.part(Leadership).hold() is None


async def test_two_that_want_it_at_once_get_different_answers(make: MakeWorld) -> None:
    world = await new(make)
    engines = [world.another(name) for name in "abcd"]
    found = await asyncio.gather(*(engine.part(Leadership).hold() for engine in engines))
    assert sorted(found, key=str) == [1, None, None, None]


async def test_a_renewal_whose_answer_is_lost_is_known_as_ones_own(make: MakeWorld) -> None:
    world = await new(make)
    engine = world.another("a")
    store = FaultyStore(world.sqlite)
    engine.store = store  # type: ignore[assignment]
    lost = [0]

    def after(name: str, args: tuple[Any, ...]) -> StoreError | None:
        if name in ("create", "replace") and lost[0] < 2:
            lost[0] += 1
            return Unavailable("no answer, but applied")
        return None

    store.after = after
    held = asyncio.create_task(engine.part(Leadership).hold())
    while not held.done():
        await quiesce()
        await world.clock.advance(100)
    assert await held == 1


# --- two schedulers -------------------------------------------------------------------------------


async def test_case_a_stale_leaders_write_is_refused_and_the_tick_has_one_execution(
    make: MakeWorld,
) -> None:
    """A is slow in the middle of a tick; B (45 s ahead) leads with token n+1; A writes with n."""
    world = await new(make)
    await scheduled(world, cron="* * * * *")
    a, b = world.another("a"), skewed(world, "b", 45 * SECOND)
    await passes(world, 55 * SECOND, a, b)
    gate = asyncio.Event()
    store = FaultyStore(world.sqlite)
    real = world.sqlite.replace

    async def slow(container: str, *args: Any, **more: Any) -> str:
        if container == CATALOG:
            await gate.wait()
        return await real(container, *args, **more)

    store.replace = slow  # type: ignore[method-assign]
    a.store = store  # type: ignore[assignment]
    await world.clock.advance(5 * SECOND)
    stuck = asyncio.create_task(schedule.run_due(a))
    await quiesce()
    assert await started(world) == [MINUTE]  # started, and not yet moved on
    await passes(world, 50 * SECOND, b)
    body = await stored(world)
    assert body["fence"] == 2
    assert body["cursor"] >= START + MINUTE
    gate.set()
    report = await stuck
    assert (report.leading, a.metrics.value("weft_scheduler_deposed_total")) == (False, 1)
    assert await stored(world) == body
    await passes(world, 2 * MINUTE, a, b)
    assert await started(world) == [n * MINUTE for n in (1, 2, 3, 4)]  # by B's clock
    assert await outcomes(world) == [("started", n * MINUTE, 1) for n in (1, 2, 3, 4)]


async def test_an_older_token_is_refused_although_the_etag_is_right(make: MakeWorld) -> None:
    world = await new(make)
    await scheduled(world, cron="@hourly")
    found = await schedule_docs.read(world.engine, TENANT, "s")
    assert found
    newer = await schedule_docs.write_fenced(world.engine, found, dict(found.body), 7)
    with pytest.raises(schedule_docs.Deposed):
        await schedule_docs.write_fenced(world.engine, newer, dict(newer.body), 6)
    with pytest.raises(PreconditionFailed):
        await schedule_docs.write_fenced(world.engine, found, dict(found.body), 7)
    await schedules.pause(world.engine, TENANT, "s")
    assert (await stored(world))["fence"] == 7  # a user's edit keeps it


async def test_a_lease_that_was_deleted_does_not_begin_again_below_its_writes(
    make: MakeWorld,
) -> None:
    world = await new(make)
    await scheduled(world, cron="* * * * *")
    found = await schedule_docs.read(world.engine, TENANT, "s")
    assert found
    await schedule_docs.write_fenced(world.engine, found, dict(found.body), 41)
    await passes(world, 3 * MINUTE)
    assert (await lease(world))["token"] == 42
    assert (await started(world))[-1] == 3 * MINUTE


@pytest.mark.parametrize("seed", range(12))
async def test_skewed_schedulers_that_stall_and_crash_lose_no_tick_and_double_none(
    make: MakeWorld, seed: int
) -> None:
    """Four processes with clocks up to half a minute apart, called at random; one crashes now and
    then. Every tick is started once, and the history has each once."""
    world = await new(make)
    chance = random.Random(seed)
    await scheduled(world, cron="* * * * *", misfire={"catchUp": 100}, misfireGrace="1s")
    engines = [skewed(world, f"w{n}", chance.randint(-30, 30) * SECOND) for n in range(4)]
    for _ in range(300):
        await world.clock.advance(chance.randint(1, 10) * SECOND)
        chosen = [engine for engine in engines if chance.random() < 0.6]
        await asyncio.gather(*(schedule.run_due(engine) for engine in chosen))
        if chance.random() < 0.05:
            await crash(chance.choice(engines))
    for engine in engines:
        engine.clock = world.clock
    await passes(world, 2 * MINUTE, *engines)
    ticks = await started(world)
    assert ticks == [(n + 1) * MINUTE for n in range(len(ticks))]
    assert len(ticks) >= (world.clock.now() - START) // MINUTE - 1
    view = await schedule_reads.get(world.engine, TENANT, "s")
    assert view.counts == {"started": len(ticks)}


# --- crashes at each write ------------------------------------------------------------------------


class Died(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("write", range(1, 9))
@pytest.mark.parametrize("backlog", [False, True])
async def test_a_crash_at_any_write_starts_each_tick_once(
    make: MakeWorld, write: int, applied: bool, backlog: bool
) -> None:
    """The n-th write of the pass does not happen, or happens and is the last thing that does."""
    world = await new(make)
    await scheduled(world, cron="* * * * *", misfire={"catchUp": 3})
    await world.clock.advance(5 * MINUTE if backlog else MINUTE)
    doomed = world.another("doomed")
    store = FaultyStore(world.sqlite)
    doomed.store = store  # type: ignore[assignment]
    count = [0]

    def strike(name: str, args: tuple[Any, ...]) -> StoreError | None:
        if name in ("create", "replace", "batch", "delete"):
            count[0] += 1
            if count[0] == write:
                raise Died
        return None

    if applied:
        store.after = strike
    else:
        store.before = strike
    try:
        await schedule.run_due(doomed)
    except Died:
        await crash(doomed)
    await passes(world, 50 * SECOND)
    expected = [3, 4, 5] if backlog else [1]
    assert await started(world) == [n * MINUTE for n in expected]
    assert [one for one in await outcomes(world) if one[0] == "started"] == [
        ("started", n * MINUTE, 1) for n in expected
    ]
    await world.sweep()


async def test_a_store_that_fails_for_one_schedule_holds_up_no_other(make: MakeWorld) -> None:
    world = await new(make)
    await scheduled(world, cron="* * * * *")
    await schedules.create(
        world.engine, TENANT, {"name": "other", "workflow": "flow", "cron": "* * * * *"}
    )
    engine = world.another("a")
    store = FaultyStore(world.sqlite)
    engine.store = store  # type: ignore[assignment]

    def before(name: str, args: tuple[Any, ...]) -> StoreError | None:
        bad = name == "replace" and args[0] == CATALOG and args[2]["name"] == "s"
        return StoreError("broken") if bad else None

    store.before = before
    await world.clock.advance(MINUTE)
    report = await schedule.run_due(engine)
    assert (report.started, report.failed) == (1, 1)
    assert (await schedule_reads.get(world.engine, TENANT, "other")).counts == {"started": 1}
    store.before = lambda name, args: None
    await schedule.run_due(engine)
    assert await started(world) == [MINUTE, MINUTE]
    assert (await schedule_reads.get(world.engine, TENANT, "s")).counts == {"started": 1}


async def test_a_users_edit_in_the_middle_of_a_tick_is_kept(make: MakeWorld) -> None:
    world = await new(make)
    await scheduled(world, cron="* * * * *")
    engine = world.another("a")
    store = FaultyStore(world.sqlite)
    engine.store = store  # type: ignore[assignment]
    real = world.sqlite.replace
    edits = [0]

    async def replace(container: str, *args: Any, **more: Any) -> str:
        if container == CATALOG and not edits[0]:
            edits[0] += 1
            raw = {"workflow": "flow", "cron": "* * * * *", "tags": {"a": "b"}}
            await schedules.update(world.engine, TENANT, "s", raw)
        return await real(container, *args, **more)

    store.replace = replace  # type: ignore[method-assign]
    await world.clock.advance(MINUTE)
    await schedule.run_due(engine)
    body = await stored(world)
    assert (body["revision"], body["counts"]) == (2, {"started": 1})
    assert await started(world) == [MINUTE]


async def test_a_call_while_another_runs_does_nothing(make: MakeWorld) -> None:
    world = await new(make)
    await scheduled(world, cron="* * * * *")
    await world.clock.advance(MINUTE)
    reports = await asyncio.gather(*(schedule.run_due(world.engine) for _ in range(3)))
    assert sorted(one.started for one in reports) == [0, 0, 1]


async def test_more_due_than_a_page_of_several_tenants_are_all_started(make: MakeWorld) -> None:
    """Ids and times are equal in all tenants: none is left out between the pages."""
    world = await new(make)
    for number in range(120):
        tenant = f"t{number:03}"
        await catalog.publish(world.engine, tenant, flow(a=task("noop")))
        raw = {"name": "s", "workflow": "flow", "cron": "* * * * *"}
        await schedules.create(world.engine, tenant, raw)
    await world.clock.advance(MINUTE)
    assert (await schedule.run_due(world.engine)).started == 120
