"""Cases from the field: misfires, pauses, edits, overlaps, recycled hosts."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.domain.errors import NotFoundError, ThrottledError
from orchestrator.engine import catalog, schedule, schedule_reads, schedules, submit
from orchestrator.engine.views import StartResult
from tests.support.schedules import (
    HOUR,
    MINUTE,
    SECOND,
    fires,
    outcomes,
    passes,
    scheduled,
    started,
)
from tests.support.world import START, TENANT, World
from tests.unit.engine.conftest import MakeWorld

SKIP: dict[str, Any] = {"misfire": "skip"}
LATEST: dict[str, Any] = {"misfire": "fireOnce"}
THREE: dict[str, Any] = {"misfire": {"catchUp": 3}}


async def new(make: MakeWorld) -> World:
    return await make(noop=lambda call: call.input)


async def test_a_tick_starts_one_execution_that_says_where_it_comes_from(make: MakeWorld) -> None:
    world = await new(make)
    created = await scheduled(
        world, cron="@hourly", input={"at": "${tick}"}, tags={"kind": "nightly"}
    )
    assert (created.status, created.next_at) == ("ACTIVE", START + HOUR)
    await passes(world, HOUR - 5 * SECOND)
    assert await started(world) == []
    await passes(world, 10 * SECOND)
    assert await started(world) == [HOUR]
    (fired,) = await fires(world)
    assert fired.execution is not None
    await world.settle()
    view = await world.view(fired.execution)
    assert (view.status, view.started_by, view.schedule) == ("COMPLETED", "schedule:s", "s")
    assert (view.scheduled_for, view.tags) == (START + HOUR, {"kind": "nightly"})
    assert view.input == {"at": "2027-01-15T09:00:00.000Z"}
    await world.verified(fired.execution)


@pytest.mark.parametrize(("policy", "minutes"), [(SKIP, []), (LATEST, [7]), (THREE, [5, 6, 7])])
async def test_case_timer_late_and_then_three_times_in_a_second(
    make: MakeWorld, policy: dict[str, Any], minutes: list[int]
) -> None:
    """Silent 10:00:30-10:07:10, minutely; then called thrice: nothing extra."""
    world = await new(make)
    await scheduled(world, cron="* * * * *", **policy)
    await passes(world, 30 * SECOND)
    await world.clock.advance(6 * MINUTE + 40 * SECOND)
    for _ in range(3):
        await schedule.run_due(world.engine)
        await world.clock.advance(300)
    assert await started(world) == [n * MINUTE for n in minutes]
    await passes(world, MINUTE)
    assert await started(world) == [n * MINUTE for n in (*minutes, 8)]
    counts = (await schedule_reads.get(world.engine, TENANT, "s")).counts
    assert counts.get("missed", 0) == 7 - len(minutes)


@pytest.mark.parametrize(("policy", "hours"), [(SKIP, []), (LATEST, [6]), (THREE, [4, 5, 6])])
async def test_case_catchup_after_a_pause(
    make: MakeWorld, policy: dict[str, Any], hours: list[int]
) -> None:
    """Hourly, paused 08:05, resumed 14:20: no run, the one of 14:00, or the last three in order."""
    world = await new(make)
    await scheduled(world, cron="@hourly", **policy)
    await passes(world, 5 * MINUTE)
    paused = await schedules.pause(world.engine, TENANT, "s")
    assert (paused.status, paused.next_at) == ("PAUSED", None)
    await passes(world, 6 * HOUR + 15 * MINUTE, every=MINUTE)
    assert await started(world) == []
    await schedules.resume(world.engine, TENANT, "s")
    await passes(world, 10 * SECOND)
    assert await started(world) == [n * HOUR for n in hours]
    done = [one.tick for one in await fires(world) if one.outcome == "started"]
    assert done == [START + n * HOUR for n in hours]  # in this order
    await passes(world, 40 * MINUTE, every=MINUTE)
    assert await started(world) == [n * HOUR for n in (*hours, 7)]


async def test_case_skip_starts_nothing_on_unpause_however_short_the_pause(make: MakeWorld) -> None:
    """Paused over the full hour for 20 seconds: within the grace, and still part of the pause."""
    world = await new(make)
    await scheduled(world, cron="@hourly")
    await passes(world, HOUR - 10 * SECOND, every=10 * SECOND)
    await schedules.pause(world.engine, TENANT, "s")
    await world.clock.advance(20 * SECOND)
    await schedules.resume(world.engine, TENANT, "s")
    await passes(world, MINUTE)
    assert await started(world) == []
    assert await outcomes(world) == [("missed", HOUR, 1)]


async def test_case_created_paused_and_resumed_later_starts_nothing(make: MakeWorld) -> None:
    world = await new(make)
    view = await scheduled(world, cron="@hourly", paused=True)
    assert view.status == "PAUSED"
    await passes(world, 3 * HOUR, every=MINUTE)
    await schedules.resume(world.engine, TENANT, "s")
    await passes(world, 10 * SECOND)
    assert await started(world) == []


async def test_case_editing_the_cron_does_not_catch_up_for_the_new_pattern(make: MakeWorld) -> None:
    world = await new(make)
    await scheduled(world, cron="@daily", **THREE)
    await passes(world, 90 * MINUTE, every=MINUTE)
    raw = {"workflow": "flow", "cron": "*/10 * * * *", **THREE}
    await schedules.update(world.engine, TENANT, "s", raw)
    await passes(world, 15 * MINUTE, every=MINUTE)
    assert await started(world) == [100 * MINUTE]


async def test_a_tick_that_was_due_when_the_cron_was_edited_is_not_lost(make: MakeWorld) -> None:
    world = await new(make)
    await scheduled(world, cron="@hourly")
    await passes(world, HOUR - 5 * SECOND)
    await world.clock.advance(8 * SECOND)  # due for 3 s, not yet seen by the scheduler
    await schedules.update(world.engine, TENANT, "s", {"workflow": "flow", "cron": "@daily"})
    await passes(world, 10 * SECOND)
    assert await started(world) == [HOUR]


async def test_case_year_long_outage(make: MakeWorld) -> None:
    """Minutely, catchUp 300 (1,000 are computed in test_schedule_backlog.py, starting them takes
    longer than a test should): the latest 300 in order, the others counted."""
    world = await new(make)
    await scheduled(world, cron="* * * * *", misfire={"catchUp": 300})
    await passes(world, 10 * SECOND)
    await world.clock.advance(365 * 24 * HOUR - 10 * SECOND)
    await schedule.run_due(world.engine)
    ticks = await started(world)
    assert ticks == [(365 * 1440 - 299 + n) * MINUTE for n in range(300)]
    view = await schedule_reads.get(world.engine, TENANT, "s")
    assert view.counts == {"missed": 365 * 1440 - 300, "started": 300}
    assert len(await fires(world)) == 50


async def test_case_thirty_restarts_within_the_minute_of_a_tick(make: MakeWorld) -> None:
    """Two instances that are recycled all the time: one execution; a manual run is another."""
    world = await new(make)
    await scheduled(world, cron="@hourly")
    await passes(world, HOUR - 30 * SECOND, every=30 * SECOND)
    for number in range(30):
        for name in ("a", "b"):
            engine = world.another(f"{name}{number}")
            await schedule.run_due(engine)
            for part in list(engine.parts.values()):
                if hasattr(part, "close"):
                    await part.close()
        if number == 20:
            await schedules.run(world.engine, TENANT, "s", by="ann")
        await world.clock.advance(2 * SECOND)
    await passes(world, 2 * MINUTE)
    assert await started(world) == [HOUR]
    found = sorted((one.outcome, one.by) for one in await fires(world))
    assert found == [("manual", "ann"), ("started", None)]


async def test_case_next_five_are_what_happens(make: MakeWorld) -> None:
    world = await new(make)
    view = await scheduled(world, cron="7 */2 * * *", timeZone="Asia/Kolkata", jitter="3m")
    assert [one.local[-6:] for one in view.next] == ["+05:30"] * 5
    expected = [one.at - START for one in view.next]
    await passes(world, 11 * HOUR, every=MINUTE)
    assert (await started(world))[:5] == expected
    for one, fired in zip(view.next, (await fires(world))[:5], strict=True):
        assert 0 <= fired.at - one.due_at <= MINUTE
        assert one.at <= one.due_at <= one.at + 3 * MINUTE


# --- overlap --------------------------------------------------------------------------------------


async def overlapping(make: MakeWorld, overlap: str, **more: Any) -> World:
    """Every ten minutes; executions stay open until the test settles them."""
    world = await new(make)
    await scheduled(world, cron="*/10 * * * *", overlap=overlap, **more)
    await passes(world, 21 * MINUTE, every=30 * SECOND)
    return world


async def test_overlap_allow_starts_beside_it(make: MakeWorld) -> None:
    world = await overlapping(make, "allow")
    assert await started(world) == [10 * MINUTE, 20 * MINUTE]


async def test_overlap_skip_drops_the_tick_and_says_so(make: MakeWorld) -> None:
    world = await overlapping(make, "skip")
    assert await started(world) == [10 * MINUTE]
    first, second = await fires(world)
    assert (second.outcome, second.code, second.execution) == (
        "skipped",
        "OVERLAP",
        first.execution,
    )
    await world.settle()
    await passes(world, 10 * MINUTE, every=30 * SECOND)
    assert await started(world) == [10 * MINUTE, 30 * MINUTE]


async def test_overlap_queue_waits_for_the_end_of_the_one_before(make: MakeWorld) -> None:
    world = await overlapping(make, "queue")
    await passes(world, 10 * MINUTE, every=30 * SECOND)
    assert await started(world) == [10 * MINUTE]
    assert (await schedule_reads.get(world.engine, TENANT, "s")).waiting == 2
    await world.settle()
    await passes(world, 10 * SECOND)
    assert await started(world) == [10 * MINUTE, 20 * MINUTE]
    await world.settle()
    await passes(world, 10 * SECOND)
    assert await started(world) == [10 * MINUTE, 20 * MINUTE, 30 * MINUTE]


async def test_overlap_cancel_previous(make: MakeWorld) -> None:
    world = await overlapping(make, "cancelPrevious")
    assert await started(world) == [10 * MINUTE, 20 * MINUTE]
    first, second = [one.execution for one in await fires(world)]
    assert first
    assert second
    assert (await world.view(first)).status == "CANCELLED"
    await world.settle()
    assert (await world.view(second)).status == "COMPLETED"
    await world.verified(first)


async def test_the_overlap_rule_holds_for_what_is_caught_up(make: MakeWorld) -> None:
    for overlap, expected in (("skip", [5]), ("queue", [5]), ("cancelPrevious", [7])):
        world = await new(make)
        await scheduled(world, cron="* * * * *", overlap=overlap, **THREE)
        await passes(world, 10 * SECOND)
        await world.clock.advance(7 * MINUTE)
        await schedule.run_due(world.engine)
        assert await started(world) == [n * MINUTE for n in expected], overlap


# --- refused, throttled, ended --------------------------------------------------------------------


async def test_a_refused_start_is_kept_as_an_error_and_the_schedule_goes_on(
    make: MakeWorld,
) -> None:
    world = await new(make)
    await scheduled(world, cron="@hourly")
    await catalog.archive(world.engine, TENANT, "flow")
    await passes(world, 61 * MINUTE, every=MINUTE)
    (refused,) = await fires(world)
    assert (refused.outcome, refused.code) == ("refused", "WORKFLOW_ARCHIVED")
    assert "archived" in (refused.message or "")
    await world.publish({"name": "flow", "tasks": {"b": {"type": "transform", "output": 1}}})
    await passes(world, HOUR, every=MINUTE)
    assert await started(world) == [2 * HOUR]


async def test_an_input_that_does_not_fit_any_more_is_an_error_of_the_tick(make: MakeWorld) -> None:
    world = await new(make)
    await scheduled(world, cron="@hourly", input={"n": 1})
    stricter = {"type": "object", "properties": {"n": {"type": "string"}}}
    await world.publish(
        {"name": "flow", "input": stricter, "tasks": {"b": {"type": "transform", "output": 1}}}
    )
    await passes(world, 61 * MINUTE, every=MINUTE)
    (refused,) = await fires(world)
    assert (refused.outcome, refused.code) == ("refused", "INPUT_INVALID")


async def test_a_throttled_tick_waits_and_is_not_lost(
    make: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await new(make)
    await scheduled(world, cron="@hourly")
    real, left = submit.start, [3]

    async def start(*args: Any, **more: Any) -> StartResult:
        if left[0]:
            left[0] -= 1
            raise ThrottledError("too many", retry_after_ms=60_000)
        return await real(*args, **more)

    monkeypatch.setattr(submit, "start", start)
    await passes(world, HOUR + 2 * MINUTE + 50 * SECOND, every=10 * SECOND)
    assert await started(world) == []
    await passes(world, 30 * SECOND)
    assert await started(world) == [HOUR]
    assert await outcomes(world) == [("started", HOUR, 1)]


async def test_one_off_and_ended_schedules_say_so(make: MakeWorld) -> None:
    world = await new(make)
    await scheduled(world, at="2027-01-15T10:00:00+01:00")
    await passes(world, HOUR + 5 * SECOND, every=5 * SECOND)
    assert await started(world) == [HOUR]
    view = await schedule_reads.get(world.engine, TENANT, "s")
    assert (view.status, view.next, view.next_at) == ("ENDED", [], None)
    await passes(world, HOUR, every=MINUTE)
    assert await started(world) == [HOUR]


async def test_what_was_deleted_starts_nothing_more(make: MakeWorld) -> None:
    world = await new(make)
    await scheduled(world, cron="@hourly")
    await passes(world, 10 * SECOND)
    await schedules.delete(world.engine, TENANT, "s")
    await passes(world, 2 * HOUR, every=MINUTE)
    assert await started(world) == []
    with pytest.raises(NotFoundError):
        await schedules.delete(world.engine, TENANT, "s")
