"""`concurrency`: groups of executions of which only so many run at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.domain.errors import ConflictError, InvalidError
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.topology import CONTROL
from orchestrator.engine import control, letters_bulk, outbox, replay
from orchestrator.engine.places import LOOK_MS
from orchestrator.ports import Query, Throttled, Unavailable, Where
from tests.support.definitions import flow, task
from tests.support.faults import FaultyStore, times
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld


def _flow(policy: str = "queue", limit: int = 1, **more: Any) -> dict[str, Any]:
    """A wait that only time ends: an execution that has begun stays RUNNING."""
    group = {"limit": limit, "policy": policy} | more
    return flow(w={"type": "wait", "duration": "1h"}) | {"concurrency": group}


async def _states(world: World, *ids: str) -> list[str]:
    return [(await world.view(id)).status.value for id in ids]


async def _start(world: World, count: int, input: Any = None) -> list[str]:
    found: list[str] = []
    for _ in range(count):
        found.append((await world.start("flow", input)).id)
        await world.settle()
    return found


async def _end(world: World, id: str) -> None:
    await control.act(world.engine, TENANT, id, control.CANCEL, by="me")
    await world.settle()


async def test_those_that_find_no_place_wait_and_go_in_the_order_in_which_they_came(
    make: MakeWorld,
) -> None:
    """PENDING until then, and the view says why."""
    world = await make()
    await world.publish(_flow(limit=2))
    a, b, c, d = await _start(world, 4)
    assert await _states(world, a, b, c, d) == ["RUNNING", "RUNNING", "PENDING", "PENDING"]
    assert [(await world.view(id)).waiting_for for id in (a, c)] == [None, "concurrency"]
    await _end(world, b)
    assert await _states(world, a, b, c, d) == ["RUNNING", "CANCELLED", "RUNNING", "PENDING"]
    await world.run_until_quiet()
    assert await _states(world, a, c, d) == ["COMPLETED"] * 3
    for id in (a, b, c, d):
        await world.verified(id)


async def test_one_that_has_ended_elsewhere_takes_no_place_not_even_for_a_moment(
    make: MakeWorld,
) -> None:
    """This process remembers it as it was: waiting. Others would be kept out, and called again."""
    world = await make()
    other = world.another("worker-2")
    await world.publish(_flow())
    ids = await _start(world, 2)
    assert await _states(world, *ids) == ["RUNNING", "PENDING"]
    for id in reversed(ids):
        await control.act(other, TENANT, id, control.CANCEL, by="me")
        await world.settle(other)
    assert await _states(world, *ids) == ["CANCELLED", "CANCELLED"]
    query = Query(where=(Where("type", "=", "place"),), limit=10)
    [before] = await world.sqlite.query(CONTROL, query)
    message = Message(MessageType.EXECUTION_STARTED, TENANT, ids[1])
    await world.deliver([outbox.out_message(message, "again")])
    assert await world.sqlite.query(CONTROL, query) == [before]


async def test_the_key_makes_groups_of_their_own(make: MakeWorld) -> None:
    world = await make()
    await world.publish(_flow(key="${input.customer}"))
    one, other = {"customer": "a"}, {"customer": 1}
    ids = [(await world.start("flow", given)).id for given in (one, other, one, {"customer": "1"})]
    await world.settle()
    assert await _states(world, *ids) == ["RUNNING", "RUNNING", "PENDING", "RUNNING"]


async def test_a_key_that_cannot_be_evaluated_is_refused_and_nothing_is_stored(
    make: MakeWorld,
) -> None:
    world = await make()
    await world.publish(_flow(key="${input.customer}"))
    with pytest.raises(InvalidError) as refused:
        await world.start("flow", {}, key="k")
    assert refused.value.details[0].field == "$.concurrency.key"
    assert (await world.start("flow", {"customer": 1}, key="k")).created


@pytest.mark.parametrize(
    ("group", "field"),
    [
        ({"limit": 0}, "$.concurrency.limit"),
        ({"limit": 501}, "$.concurrency.limit"),
        ({"policy": "drop"}, "$.concurrency.policy"),
        ({"key": "${tasks.w.output}"}, "$.concurrency.key"),
        ({"key": "${secrets.K}"}, "$.concurrency.key"),
        ({"key": "${input."}, "$.concurrency.key"),
        ({"max": 1}, "$.concurrency.max"),
    ],
)
async def test_what_a_group_may_not_say(make: MakeWorld, group: dict[str, Any], field: str) -> None:
    world = await make()
    with pytest.raises(InvalidError) as refused:
        await world.publish(_flow() | {"concurrency": group})
    assert [one.field for one in refused.value.details] == [field]


async def test_the_limit_of_the_newest_version_holds_for_all(make: MakeWorld) -> None:
    """From when the first of its executions comes; also for older ones, that wait."""
    world = await make()
    await world.publish(_flow(limit=3))
    ids = await _start(world, 5)
    await world.publish(_flow(limit=1))
    ids += await _start(world, 2)
    assert await _states(world, *ids) == ["RUNNING"] * 3 + ["PENDING"] * 4
    for ended, running in ((0, 2), (1, 1), (2, 1), (3, 1)):
        await _end(world, ids[ended])
        assert (await _states(world, *ids)).count("RUNNING") == running
    await world.publish(_flow(limit=2))
    ids += await _start(world, 1)
    assert await _states(world, *ids[4:]) == ["RUNNING", "RUNNING", "PENDING", "PENDING"]
    old = (await world.start("flow", version=1)).id
    await world.settle()
    assert await _states(world, *ids[4:], old) == ["RUNNING"] * 2 + ["PENDING"] * 3


async def test_skip_ends_at_once_and_says_why(make: MakeWorld) -> None:
    world = await make()
    await world.publish(_flow("skip"))
    a, b = await _start(world, 2)
    assert await _states(world, a, b) == ["RUNNING", "CANCELLED"]
    events = await world.engine.store.read_many("executions", (TENANT, b), ["events:0000000001"])
    (cancelled,) = events["events:0000000001"].body["events"]
    assert (cancelled["by"], "skipped" in cancelled["reason"]) == ("concurrency", True)
    assert await world.statuses(b) == {"w": "CANCELLED"}
    await _end(world, a)
    (c,) = await _start(world, 1)
    assert await _states(world, c) == ["RUNNING"]


async def test_cancel_previous_ends_those_before_and_then_runs(make: MakeWorld) -> None:
    """Also those that only waited."""
    world = await make()
    await world.publish(_flow("cancelPrevious"))
    a, b, c = await _start(world, 3)
    assert await _states(world, a, b, c) == ["CANCELLED", "CANCELLED", "RUNNING"]
    for id in (a, b, c):
        await world.verified(id)


async def test_a_paused_holder_keeps_its_place(make: MakeWorld) -> None:
    world = await make()
    await world.publish(_flow())
    a, b = await _start(world, 2)
    await control.act(world.engine, TENANT, a, control.PAUSE, by="me")
    await world.clock.advance(3_600_000)
    await world.sweep()
    assert await _states(world, a, b) == ["PAUSED", "PENDING"]
    await _end(world, a)
    assert await _states(world, b) == ["RUNNING"]


async def test_one_that_waits_for_a_place_cannot_be_paused(make: MakeWorld) -> None:
    """A pause begins it, and it would run without a place when it is resumed."""
    world = await make()
    await world.publish(_flow())
    _, b = await _start(world, 2)
    with pytest.raises(ConflictError, match="place") as refused:
        await control.act(world.engine, TENANT, b, control.PAUSE, by="me")
    assert refused.value.code == "CANNOT_PAUSE"
    assert await _states(world, b) == ["PENDING"]


async def test_one_that_is_cancelled_while_it_waits_takes_no_place(make: MakeWorld) -> None:
    world = await make()
    await world.publish(_flow())
    a, b, c = await _start(world, 3)
    await _end(world, b)
    await _end(world, a)
    assert await _states(world, b, c) == ["CANCELLED", "RUNNING"]


async def test_a_failed_one_that_is_taken_up_again_counts(make: MakeWorld) -> None:
    """It runs at once, an operator wants it; but no further one starts beside it."""
    failing = [True]

    def work(call: Any) -> Any:
        if failing[0]:
            raise ValueError("no")
        return 1

    world = await make(work=work)
    definition = flow(a=task("work"), w={"type": "wait", "duration": "1h", "needs": ["a"]})
    await world.publish(definition | {"concurrency": {"limit": 1}})
    (a,) = await _start(world, 1)
    await world.run_until_quiet(60_000)
    assert await _states(world, a) == ["FAILED"]
    failing[0] = False
    await letters_bulk.retry_execution(world.engine, TENANT, a, by="me")
    await world.settle()
    (b,) = await _start(world, 1)
    assert await _states(world, a, b) == ["RUNNING", "PENDING"]
    await _end(world, a)
    assert await _states(world, b) == ["RUNNING"]


async def test_a_replay_stands_in_its_group_too(make: MakeWorld) -> None:
    world = await make()
    await world.publish(_flow(key="${input.k}"))
    (a,) = await _start(world, 1, {"k": 1})
    await _end(world, a)
    (b,) = await _start(world, 1, {"k": 1})
    again = await replay.replay(world.engine, TENANT, a, by="me")
    await world.settle()
    assert await _states(world, b, again.id) == ["RUNNING", "PENDING"]


async def test_lost_word_of_a_free_place_is_found_by_whoever_looks(make: MakeWorld) -> None:
    """Neither the end's message nor the call to the next one arrives."""
    world = await make()
    await world.publish(_flow())
    a, b = await _start(world, 2)
    await control.act(world.engine, TENANT, a, control.CANCEL, by="me")
    world.transport.messages.clear()
    await world.clock.advance(max(LOOK_MS, world.tunables.silence_ms) + 20_000)
    await world.sweep()
    assert await _states(world, b) == ["RUNNING"]


async def test_a_doubled_end_frees_nothing_twice(make: MakeWorld) -> None:
    world = await make()
    await world.publish(_flow())
    a, b, c = await _start(world, 3)
    await control.act(world.engine, TENANT, a, control.CANCEL, by="me")
    due = world.transport.take(world.clock.now())
    for _ in range(3):
        await world.deliver(due)
    await world.settle()
    assert await _states(world, b, c) == ["RUNNING", "PENDING"]


async def test_a_process_that_remembers_an_execution_as_pending_asks_for_no_place_when_it_has_ended(
    make: MakeWorld,
) -> None:
    """A copy of the message that began it: nobody has to make room for it."""
    world = await make()
    await world.publish(_flow("cancelPrevious"))
    await _start(world, 1)
    b = (await world.start("flow")).id
    begins = world.transport.take(world.clock.now())
    other = world.another("other")
    await world.deliver(begins, other)
    await world.settle()
    assert await _states(world, b) == ["RUNNING"]
    remembered = other.aggregates.get((TENANT, b))
    assert remembered is not None
    assert remembered.state.status.value == "PENDING"
    await _end(world, b)
    (c,) = await _start(world, 1)
    await world.deliver(begins, other)
    await world.settle()
    assert await _states(world, b, c) == ["CANCELLED", "RUNNING"]


@pytest.mark.parametrize("lost", range(12))
@pytest.mark.parametrize("policy", ["queue", "cancelPrevious"])
async def test_an_answer_that_is_lost_anywhere_doubles_and_stops_nothing(
    make: MakeWorld, policy: str, lost: int
) -> None:
    world = await make(wrap_store=FaultyStore)
    await world.publish(_flow(policy))
    (a,) = await _start(world, 1)
    count = [0]

    def rule(name: str, args: tuple[Any, ...]) -> Any:
        if name in ("create", "replace", "batch"):
            count[0] += 1
            return Unavailable("lost") if count[0] - 1 == lost else None
        return None

    world.engine.store.after = rule  # pyright: ignore[reportAttributeAccessIssue]
    started = asyncio.create_task(world.start("flow"))
    b = await _awaited(world, started)
    await _quiet(world)
    expected = ["RUNNING", "PENDING"] if policy == "queue" else ["CANCELLED", "RUNNING"]
    assert await _states(world, a, b) == expected


async def test_throttling_of_the_group_delays_and_loses_nothing(make: MakeWorld) -> None:
    world = await make(wrap_store=FaultyStore)
    await world.publish(_flow())
    (a,) = await _start(world, 1)
    store: Any = world.engine.store
    store.before = times(10, lambda: Throttled("busy", retry_after_ms=500), "replace")
    started = await world.start("flow")
    await _quiet(world)
    assert await _states(world, a, started.id) == ["RUNNING", "PENDING"]


async def test_many_that_start_at_once_through_several_processes_never_exceed_the_limit(
    make: MakeWorld,
) -> None:
    running, most = [0], [0]

    async def work(call: Any) -> Any:
        running[0] += 1
        most[0] = max(most[0], running[0])
        for _ in range(3):
            await asyncio.sleep(0)
        running[0] -= 1
        return None

    world = await make(work=work)
    await world.publish(flow(a=task("work")) | {"concurrency": {"limit": 3}})
    engines = [world.engine, *(world.another(f"w{number}") for number in range(3))]
    ids = [(await world.start("flow")).id for _ in range(40)]
    for _ in range(400):
        due = world.transport.take(world.clock.now())
        if not due:
            break
        shares = [due[at::4] for at in range(4)]
        both = zip(shares, engines, strict=True)
        work = asyncio.gather(*(world.deliver(share, engine) for share, engine in both))
        await _through(world, work)
    assert await _states(world, *ids) == ["COMPLETED"] * 40
    assert 1 < most[0] <= 3


async def _awaited(world: World, started: asyncio.Task[Any]) -> str:
    await _through(world, started)
    return started.result().id


async def _quiet(world: World) -> None:
    """Settle while the clock runs (what waits for the store goes on), and sweep once."""
    await _through(world, asyncio.create_task(world.settle()))
    await world.clock.advance(70_000)
    await _through(world, asyncio.create_task(world.sweep()))


async def _through(world: World, work: asyncio.Future[Any]) -> None:
    for _ in range(1_000):
        await quiesce()
        if work.done():
            break
        await world.clock.advance(250)
    await work
