"""Circuit breakers, the sweeper and the store: what looks lost and is not, what it costs, what
happens while the store or a clock is in trouble."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.domain.breakers import Verdict
from orchestrator.domain.topology import CONTROL, TASKS_STANDARD_QUEUE
from orchestrator.engine import (
    breaker_docs,
    breakers_act,
    control,
    inspect,
    letters_act,
    letters_list,
)
from orchestrator.engine.breaker_docs import breaker_id
from orchestrator.engine.breakers import Breakers
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.ports import Throttled, TransportError
from tests.support.breakers import (
    FEW,
    PAY,
    Service,
    attempts,
    http,
    later,
    opened,
    publish,
    shown,
    start,
)
from tests.support.definitions import flow, retry, task
from tests.support.faults import FaultyStore
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld

# --- what looks lost and is not -------------------------------------------------------------------


async def hours(world: World, count: int) -> None:
    for _ in range(count * 240):
        await later(world, 15_000)
        await world.sweep()


async def test_hours_of_an_open_breaker_are_no_loss_and_breed_no_copies(make: MakeWorld) -> None:
    """Neither the sweeper nor the check of an execution sends a postponed task again."""
    service = Service()
    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world, a=http(retry=retry(9)))
    await breakers_act.open_(world.engine, TENANT, "slow.example", by="eve")
    [id] = await start(world)
    await later(world, 3_500)  # four attempts: it opens while the task waits for its fifth
    assert (await shown(world)).status == "open"
    await breakers_act.open_(world.engine, TENANT, PAY, by="eve")
    [fresh] = await start(world)
    await hours(world, 2)
    assert len(world.transport.messages) == 2
    assert world.engine.metrics.value("weft_repairs_total", "task") == 0
    history, _ = await inspect.history(world.engine, TENANT, fresh, limit=100, after=None)
    assert "tasksRequeued" not in {event.type for event in history}
    service.down = False
    await breakers_act.close(world.engine, TENANT, PAY, by="eve")
    await later(world, 90_000)
    for one in (id, fresh):
        assert (await world.view(one)).status.value == "COMPLETED"
    assert (await attempts(world, id), await attempts(world, fresh)) == (5, 1)


async def test_an_edited_input_that_calls_another_host_waits_for_that_ones_breaker(
    make: MakeWorld,
) -> None:
    """The sweeper went by the host of the definition, and sent a copy every minute."""
    service = Service()
    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world, a=http("https://a.example/", retry=retry(1)))
    [id] = await start(world)
    await world.settle()
    await breakers_act.open_(world.engine, TENANT, "b.example", by="eve")
    edited = {"url": "https://b.example/", "method": "GET"}
    found, _ = await letters_list.page(world.engine, TENANT, LetterFilter(), limit=1, after=None)
    wish = Wish(action=Action.RETRY, by="eve", value=edited, edited=True)
    await letters_act.act(world.engine, TENANT, found[0].id, wish)
    for _ in range(4 * 30):
        await later(world, 15_000)
        await world.sweep()
    assert len(world.transport.messages) == 1
    assert not [name for name in world.engine.metrics.counters if "repairs" in name]
    service.down = False
    await breakers_act.close(world.engine, TENANT, "b.example", by="eve")
    await later(world, 120_000)
    assert (await world.view(id)).status.value == "COMPLETED"


async def test_a_postponed_message_that_is_really_lost_is_sent_again_once_closed(
    make: MakeWorld,
) -> None:
    service = Service()
    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world)
    await opened(world)
    [id] = await start(world)
    await world.settle()
    world.transport.messages.clear()
    service.down = False
    await hours(world, 1)
    assert (await world.view(id)).status.value == "COMPLETED"


async def test_copies_of_a_postponed_task_are_settled(make: MakeWorld) -> None:
    world = await make(tunables=FEW, **{"weft.http": Service()})
    await publish(world)
    await opened(world)
    await start(world)
    await world.deliver(world.transport.take(world.clock.now()))
    [message] = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    await world.deliver([message, message, message])
    await world.deliver([message])
    assert len(world.transport.messages) == 1


async def test_resuming_sends_postponed_tasks_whose_messages_were_dropped(make: MakeWorld) -> None:
    service = Service()
    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world)
    await opened(world)
    [id] = await start(world)
    await world.settle()
    await control.act(world.engine, TENANT, id, control.PAUSE, by="eve")
    await later(world, 50_000)
    assert world.transport.messages == []
    service.down = False
    await control.act(world.engine, TENANT, id, control.RESUME, by="eve")
    await later(world, 1_000)
    assert (await world.view(id)).status.value == "COMPLETED"


async def test_resuming_while_it_is_still_open_leaves_one_message(make: MakeWorld) -> None:
    """Not settled as a copy of the one that was dropped while the execution was paused."""
    world = await make(tunables=FEW, **{"weft.http": Service()})
    await publish(world)
    await breakers_act.open_(world.engine, TENANT, PAY, by="eve")
    [id] = await start(world)
    await world.settle()
    await control.act(world.engine, TENANT, id, control.PAUSE, by="eve")
    due = world.transport.messages[0].due_at or 0
    await later(world, due - world.clock.now())
    assert world.transport.messages == []
    await control.act(world.engine, TENANT, id, control.RESUME, by="eve")
    await world.settle()
    assert len(world.transport.messages) == 1


async def test_the_retry_of_a_failed_probe_is_no_copy(make: MakeWorld) -> None:
    service = Service()
    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world, a=http(retry=retry(9)))
    other = world.another("worker-2")
    [id] = await start(world)
    await later(world, 3_500)
    assert (await shown(world)).status == "open"
    assert len(world.transport.messages) == 1
    for _ in range(3):
        for engine in (world.engine, other):  # whoever is asked
            due = min(one.due_at or 0 for one in world.transport.messages)
            await world.clock.advance(max(0, due - world.clock.now()))
            await world.settle(engine)
            assert len(world.transport.messages) == 1
    service.down = False
    await later(world, 600_000)
    assert (await world.view(id)).status.value == "COMPLETED"


async def test_a_message_that_could_not_be_postponed_is_no_copy_of_itself(make: MakeWorld) -> None:
    world = await make(tunables=FEW, **{"weft.http": Service()})
    await publish(world)
    await opened(world)
    await start(world)
    await world.deliver(world.transport.take(world.clock.now()))
    [message] = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    world.transport.failing = True
    with pytest.raises(TransportError):
        await world.deliver([message])
    world.transport.failing = False
    await world.deliver([message])
    assert len(world.transport.messages) == 1


@pytest.mark.parametrize("end", ["cancel", "timeout", "deadline"])
async def test_a_postponed_task_ends_with_its_execution(make: MakeWorld, end: str) -> None:
    world = await make(tunables=FEW, **{"weft.http": Service()})
    await publish(world)
    await opened(world)
    limits = {"timeout": "10s"} if end != "deadline" else {}
    a = http(deadline="10s") if end == "deadline" else http()
    await world.publish(flow("short", a=a, **limits))
    started = await world.start("short", {"id": "1"})
    await world.settle()
    if end == "cancel":
        await control.act(world.engine, TENANT, started.id, control.CANCEL, by="eve")
    await later(world, 10_001)
    view = await world.view(started.id)
    assert view.status.value == ("CANCELLED" if end == "cancel" else "FAILED")
    errors = {"timeout": "EXECUTION_TIMEOUT", "deadline": "DEADLINE_EXCEEDED"}
    assert (view.error.type if view.error else None) == errors.get(end)
    await later(world, 60_000)
    assert world.transport.messages == [], "its message is dropped, not postponed for ever"


# --- the store ------------------------------------------------------------------------------------


def troubled(store: FaultyStore) -> None:
    def rule(name: str, args: tuple[Any, ...]) -> Any:
        return Throttled("429") if args and args[0] == CONTROL else None

    store.before = rule


async def test_while_the_store_throttles_breakers_tasks_run(make: MakeWorld) -> None:
    stores: list[FaultyStore] = []

    def wrap(store: Any) -> Any:
        stores.append(FaultyStore(store))
        return stores[-1]

    service = Service()
    world = await make(tunables=FEW, wrap_store=wrap, **{"weft.http": service})
    await publish(world)
    await opened(world)
    await world.clock.advance(1_000)
    troubled(stores[0])
    service.down = False
    [id] = await start(world)
    await world.settle()
    assert (await world.view(id)).status.value == "COMPLETED"
    assert world.engine.metrics.value("weft_breaker_trouble_total") > 0


async def test_a_damaged_breaker_lets_tasks_run(make: MakeWorld) -> None:
    service = Service()
    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world)
    await opened(world)
    id = breaker_id(TENANT, PAY)
    for damage in ({"status": "ajar"}, {"v": 99}):
        doc = (await world.sqlite.read(CONTROL, (id,), id)).body
        await world.sqlite.upsert(CONTROL, (id,), {**doc, **damage})
        await world.clock.advance(1_000)
        service.down = False
        [execution] = await start(world)
        await world.settle()
        assert (await world.view(execution)).status.value == "COMPLETED"
        await world.sqlite.upsert(CONTROL, (id,), doc)


async def test_a_healthy_dependency_costs_a_read_a_second_and_no_write(make: MakeWorld) -> None:
    """Compared with the same work that has no dependency at all."""
    stores: list[FaultyStore] = []
    seen: list[tuple[str, Any]] = []

    def wrap(store: Any) -> Any:
        faulty = FaultyStore(store)
        faulty.before = lambda name, args: seen.append((name, args[0]))
        stores.append(faulty)
        return faulty

    world = await make(wrap_store=wrap, work=lambda call: 1, call=lambda call: 1)
    world.activities.dependencies["call"] = "warehouse"
    found: dict[str, list[tuple[str, Any]]] = {}
    for activity in ("work", "call"):
        await world.publish(flow(activity, a=task(activity)))
        await world.start(activity)
        await world.settle()
        await world.clock.advance(1_000)
        seen.clear()
        for _ in range(50):
            await world.start(activity)
            await world.settle()
        found[activity] = list(seen)
    assert not [one for one in found["work"] if one[1] == CONTROL]
    extra = [one for one in found["call"] if one[1] == CONTROL]
    assert extra == [("read", CONTROL)]
    found["call"].remove(extra[0])
    assert found["call"] == found["work"]


async def test_many_failures_at_once_cost_few_writes(make: MakeWorld) -> None:
    writes: list[str] = []

    def wrap(store: Any) -> Any:
        faulty = FaultyStore(store)

        def before(name: str, args: tuple[Any, ...]) -> None:
            if args[0] == CONTROL and name in ("create", "replace", "upsert", "batch"):
                writes.append(name)

        faulty.before = before
        return faulty

    world = await make(wrap_store=wrap, **{"weft.http": Service()})
    await publish(world)
    await start(world, 200)
    await world.settle()
    assert (await shown(world)).status == "open"
    assert len(writes) <= 6


async def test_clocks_that_differ_still_open_probe_and_close(make: MakeWorld) -> None:
    service = Service()
    world = await make(tunables=FEW, **{"weft.http": service})
    ahead = world.another("ahead")

    class Skewed:
        def now(self) -> int:
            return world.clock.now() + 3_600_000

        async def sleep(self, ms: int) -> None:
            await world.clock.sleep(ms)

    ahead.clock = Skewed()
    await publish(world)
    for _ in range(4):
        await ahead.part(Breakers).report(TENANT, PAY, Verdict.FAILURE, error="TIMEOUT")
    assert (await shown(world)).status == "open"
    service.down = False
    [id] = await start(world)
    await later(world, 60_000)
    assert (await world.view(id)).status.value == "COMPLETED", "an hour ahead is not waited for"
    assert (await shown(world)).status == "closed"


async def test_the_list_is_bounded_and_what_is_open_stays_on_it(
    make: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts that data names push names out; an open breaker that nobody finds is a riddle."""
    monkeypatch.setattr(breaker_docs, "MAX_LISTED", 3)
    world = await make()
    await breakers_act.open_(world.engine, TENANT, "pay.example", by="eve")

    async def listed() -> list[str]:
        found = await breakers_act.listing(world.engine, TENANT)
        return [one.dependency for one in found.items]

    for number in range(4):
        name = f"h{number}.example"
        await breakers_act.open_(world.engine, TENANT, name, by="eve")
        await breakers_act.close(world.engine, TENANT, name, by="eve")
    assert await listed() == ["h3.example", "h2.example", "pay.example"]
    await breakers_act.open_(world.engine, TENANT, "h0.example", by="eve")
    assert await listed() == ["h0.example", "h3.example", "pay.example"]


async def test_the_list_is_latest_first(make: MakeWorld) -> None:
    world = await make()
    for number in range(3):
        await breakers_act.open_(world.engine, TENANT, f"h{number}.example", by="eve")
    found = await breakers_act.listing(world.engine, TENANT)
    assert [one.dependency for one in found.items] == ["h2.example", "h1.example", "h0.example"]
