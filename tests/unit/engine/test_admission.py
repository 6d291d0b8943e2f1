"""Limits at admission: what is refused, when, what the refusal says, and what it leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from orchestrator.domain.errors import LimitError
from orchestrator.domain.tenant_limits import TenantLimits
from orchestrator.domain.topology import CATALOG, CONTROL, EXECUTIONS
from orchestrator.engine import catalog, replay, schedules, submit
from orchestrator.engine.core import Engine, Tunables
from orchestrator.ports import Query, Throttled, Unavailable, Where
from tests.support.definitions import flow, task
from tests.support.faults import FaultyStore, times
from tests.support.lists import catch_up
from tests.support.schedules import MINUTE, SECOND, fires, passes, scheduled
from tests.support.schedules import started as ticks
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld

FLOW = flow(a=task("weft.transform", input="${input}"))
OTHER = "beta"


def limited(**limits: Any) -> Tunables:
    return Tunables(limits=TenantLimits(**limits))


async def new(make: MakeWorld, **limits: Any) -> World:
    world = await make(
        tunables=limited(**limits), wrap_store=FaultyStore, noop=lambda call: call.input
    )
    for tenant in (TENANT, OTHER):
        await catalog.publish(world.engine, tenant, FLOW)
    return world


async def executions(world: World, tenant: str = TENANT) -> int:
    where = (Where("type", "=", "execution"), Where("tenantId", "=", tenant))
    return len(await world.sqlite.query(EXECUTIONS, Query(where=where, limit=1_000)))


async def start(world: World, engine: Engine | None = None, tenant: str = TENANT, **more: Any):
    return await submit.start(engine or world.engine, tenant, "flow", None, **more)


async def refused(work: Awaitable[Any], limit: str) -> LimitError:
    """The refusal."""
    with pytest.raises(LimitError) as caught:
        await work
    error = caught.value
    assert (error.code, error.limit, error.details[0].field) == ("LIMIT_EXCEEDED", limit, limit)
    assert error.retry_after_ms > 0
    return error


# --- each limit: below, at, above -----------------------------------------------------------------

STARTS = "startsPerSecond"


async def _open(world: World) -> None:
    await start(world)


async def _definition(world: World) -> None:
    name = f"d{world.ids.new()}"
    await catalog.publish(world.engine, TENANT, {**FLOW, "name": name})


async def _schedule(world: World) -> None:
    raw = {"name": f"s{world.ids.new()}", "workflow": "flow", "cron": "@daily"}
    await schedules.create(world.engine, TENANT, raw)


@pytest.mark.parametrize(
    ("name", "limits", "there", "more"),
    [
        ("startsPerSecond", {"starts_per_second": 0.5, "starts_burst": 3}, 0, _open),
        ("openExecutions", {"open_executions": 3}, 0, _open),
        ("storedDefinitions", {"stored_definitions": 3}, 1, _definition),
        ("schedules", {"schedules": 3}, 0, _schedule),
    ],
)
async def test_below_at_and_above(
    make: MakeWorld,
    name: str,
    limits: dict[str, Any],
    there: int,
    more: Callable[[World], Awaitable[None]],
) -> None:
    world = await new(make, **limits)
    for _ in range(there, 3):
        await more(world)
    before = await rows(world)
    error = await refused(more(world), name)
    assert await rows(world) == before  # nothing half-written
    assert world.engine.metrics.counters[f"weft_limited_total{{{name}}}"] == 1
    assert name in error.message
    await start(world, tenant=OTHER)  # others are not affected


async def rows(world: World) -> dict[str, int]:
    found = {}
    for container in (EXECUTIONS, CATALOG):
        found[container] = len(await world.sqlite.query(container, Query(limit=1_000)))
    return found


async def test_zero_open_executions_stop_a_tenant(make: MakeWorld) -> None:
    world = await new(make, open_executions=0)
    error = await refused(start(world), "openExecutions")
    assert error.details[0].message == "0 allowed, now 0"
    assert 5_000 <= error.retry_after_ms <= 7_500


# --- the rate -------------------------------------------------------------------------------------


async def test_four_processes_share_one_bucket(make: MakeWorld) -> None:
    """20 starts at once on 4 processes, at a burst of 10: 10 are admitted."""
    world = await new(make, starts_per_second=1, starts_burst=10)
    engines = [world.engine, *(world.another(f"w{n}") for n in range(3))]
    found = await asyncio.gather(
        *(start(world, engines[n % 4]) for n in range(20)), return_exceptions=True
    )
    assert sum(isinstance(one, LimitError) for one in found) == 10
    assert await executions(world) == 10
    world.clock.jump(2_000)
    found = await asyncio.gather(
        *(start(world, engines[n % 4]) for n in range(20)), return_exceptions=True
    )
    assert await executions(world) == 12
    for engine in engines[1:]:
        await engine.close()


async def test_the_refusal_says_when_to_come_again(make: MakeWorld) -> None:
    world = await new(make, starts_per_second=0.25, starts_burst=1)
    await start(world)
    world.clock.jump(1_000)
    error = await refused(start(world), STARTS)
    assert 3_000 <= error.retry_after_ms <= 4_500
    world.clock.jump(error.retry_after_ms)
    await start(world)


async def test_a_steady_stream_writes_four_times_a_second(make: MakeWorld) -> None:
    world = await new(make, starts_per_second=100, starts_burst=100)
    store: Any = world.engine.store
    await start(world)
    store.calls.clear()
    writes: list[str] = []
    store.before = lambda name, args: writes.append(name) if args[0] == CONTROL else None
    for _ in range(100):
        world.clock.jump(10)
        await start(world)
    assert writes == ["replace"] * 4


async def admitted(world: World, most: int = 20) -> int:
    """How many starts go through one after the other."""
    for count in range(most):
        try:
            await start(world)
        except LimitError:
            return count
    return most


async def test_tokens_that_were_not_used_in_time_are_void(make: MakeWorld) -> None:
    world = await new(make, starts_per_second=8, starts_burst=4)
    await start(world)  # a block of two was taken: one is left in the process
    world.clock.jump(1_000)
    assert await admitted(world) == 4  # the burst, and not one more


async def test_a_refusal_asks_the_store_once(make: MakeWorld) -> None:
    world = await new(make, starts_per_second=1, starts_burst=2)
    await admitted(world)
    store: Any = world.engine.store
    asked: list[str] = []
    store.before = lambda name, args: asked.append(name) if args[0] == CONTROL else None
    for _ in range(5):
        await refused(start(world), STARTS)
    assert asked == []


async def test_a_repeat_costs_no_token_and_is_never_refused(make: MakeWorld) -> None:
    world = await new(make, starts_per_second=0.01, starts_burst=2)
    first = await start(world, key="k")
    for _ in range(5):
        assert await start(world, key="k") == first.model_copy(
            update={"created": False, "status": first.status}
        )
    named = await start(world, id="e1")  # the second token
    assert named.created
    for _ in range(3):
        assert not (await start(world, id="e1")).created
        assert not (await start(world, key="k")).created
    await refused(start(world, key="other"), STARTS)


async def test_a_repeat_by_id_gives_its_token_back(make: MakeWorld) -> None:
    world = await new(make, starts_per_second=0.01, starts_burst=3)
    await start(world, id="e1")
    for _ in range(5):
        assert not (await start(world, id="e1")).created
    await start(world)
    await start(world)
    await refused(start(world), STARTS)


async def test_a_wrong_request_costs_no_token(make: MakeWorld) -> None:
    world = await new(make, starts_per_second=0.01, starts_burst=1)
    for _ in range(3):
        with pytest.raises(Exception, match="no version 7"):
            await start(world, version=7)
    await start(world)


async def test_a_start_that_the_store_refuses_gives_back_what_it_held(make: MakeWorld) -> None:
    world = await make(
        tunables=Tunables(
            limits=TenantLimits(starts_per_second=0.01, starts_burst=1, open_executions=1),
            throttle_budget_ms=0,
        ),
        wrap_store=FaultyStore,
    )
    await world.publish(FLOW)
    store: Any = world.engine.store
    store.before = times(1, lambda: Throttled("busy"), "batch")
    with pytest.raises(Throttled):
        await start(world)
    assert (await start(world)).created


@pytest.mark.parametrize("operation", ["read", "create"])
async def test_trouble_with_tokens_refuses_nobody(make: MakeWorld, operation: str) -> None:
    world = await new(make, starts_per_second=0.01, starts_burst=1)
    store: Any = world.engine.store

    def away(name: str, args: tuple[Any, ...]) -> Any:
        return Unavailable("away") if name == operation and args[0] == CONTROL else None

    store.before = away
    for _ in range(3):
        assert (await start(world)).created
    # Within a second of it nobody waits for the store again.
    assert world.engine.metrics.counters["weft_limits_trouble_total"] == 1
    world.clock.jump(1_000)
    store.before = lambda name, args: None
    assert (await start(world)).created
    await refused(start(world), STARTS)


# --- open executions ------------------------------------------------------------------------------


async def test_what_has_ended_makes_room(make: MakeWorld) -> None:
    world = await new(make, open_executions=2)
    await start(world)
    await start(world)
    await refused(start(world), "openExecutions")
    await world.settle()  # they end
    await catch_up(world)
    world.clock.jump(1_000)
    assert (await start(world)).created


async def test_what_the_read_model_does_not_show_yet_counts(make: MakeWorld) -> None:
    world = await new(make, open_executions=2)
    await start(world)
    await start(world)
    for _ in range(5):
        world.clock.jump(1_000)
        await refused(start(world), "openExecutions")
    other = world.another("other")  # it cannot know: the overshoot that is stated
    assert (await start(world, other)).created
    await catch_up(world)
    world.clock.jump(1_000)
    error = await refused(start(world), "openExecutions")
    assert error.details[0].message == "2 allowed, now 3"
    await other.close()


async def test_far_below_the_limit_it_is_counted_every_ten_seconds(make: MakeWorld) -> None:
    world = await new(make, open_executions=1_000)
    store: Any = world.engine.store
    for _ in range(20):
        await start(world)
        world.clock.jump(1_000)
    assert store.calls.count("count") == 2 * 4  # each of the four statuses, twice


async def test_trouble_with_counting_refuses_nobody(make: MakeWorld) -> None:
    world = await new(make, open_executions=1)
    store: Any = world.engine.store
    store.before = lambda name, args: Throttled("busy") if name == "count" else None
    assert (await start(world)).created
    await refused(start(world), "openExecutions")  # what it started itself it knows


# --- what counts as a start -----------------------------------------------------------------------

ONE = {"starts_per_second": 0.01, "starts_burst": 1}


async def test_a_replay_is_a_start(make: MakeWorld) -> None:
    world = await new(make, starts_per_second=0.01, starts_burst=2)
    first = await start(world)
    await world.settle()
    again = await replay.replay(world.engine, TENANT, first.id, key="k")
    assert again.created
    assert not (await replay.replay(world.engine, TENANT, first.id, key="k")).created
    before = await rows(world)
    await refused(replay.replay(world.engine, TENANT, first.id, start_at="a"), STARTS)
    assert await rows(world) == before


async def test_a_manual_run_is_a_start(make: MakeWorld) -> None:
    world = await new(make, **ONE)
    await scheduled(world, cron="@daily")
    run = await schedules.run(world.engine, TENANT, "s", key="k")
    assert not (await schedules.run(world.engine, TENANT, "s", key="k")).created
    await refused(schedules.run(world.engine, TENANT, "s"), STARTS)
    assert run.created


async def test_children_are_never_refused(make: MakeWorld) -> None:
    world = await new(make, open_executions=1, **ONE)
    child = {"type": "workflow", "workflow": "flow"}
    await world.publish(flow("parent", c=child, d=child))
    parent = await world.start("parent")
    await world.run_until_quiet(60_000)
    assert (await world.view(parent.id)).status.value == "COMPLETED"
    assert await executions(world) == 3


async def test_a_tick_at_the_limit_is_late_and_not_lost(make: MakeWorld) -> None:
    world = await new(make, open_executions=1)
    await scheduled(world, interval="1m")
    held = await start(world)
    await catch_up(world)
    await passes(world, 2 * MINUTE + 5 * SECOND)
    assert await ticks(world) == []
    await world.settle()
    await catch_up(world)
    await passes(world, 30 * SECOND)
    assert await ticks(world) == [MINUTE]
    assert [one.outcome for one in await fires(world)] == ["started"]
    assert (await world.view(held.id)).status.value == "COMPLETED"


# --- definitions and schedules --------------------------------------------------------------------


async def test_versions_and_repeats_need_no_room(make: MakeWorld) -> None:
    world = await new(make, stored_definitions=1, schedules=1)
    again = await catalog.publish(world.engine, TENANT, FLOW)
    assert (again.version, again.created) == (1, False)
    next_one = await catalog.publish(world.engine, TENANT, {**FLOW, "description": "new"})
    assert (next_one.version, next_one.created) == (2, True)
    raw = {"name": "s", "workflow": "flow", "cron": "@daily"}
    assert (await schedules.create(world.engine, TENANT, raw))[1]
    assert not (await schedules.create(world.engine, TENANT, raw))[1]
    await refused(schedules.create(world.engine, TENANT, {**raw, "name": "t"}), "schedules")
    await schedules.delete(world.engine, TENANT, "s")
    assert (await schedules.create(world.engine, TENANT, {**raw, "name": "t"}))[1]


async def test_without_limits_a_start_costs_no_more(make: MakeWorld) -> None:
    world = await new(make)
    store: Any = world.engine.store
    await start(world)
    store.calls.clear()
    await start(world)
    assert sorted(set(store.calls) & {"count", "replace", "create"}) == []
    assert store.calls.count("read_many") == 0
