"""Circuit breakers on the real engine: who waits, who probes, who is not touched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.domain.breakers import BreakerRules, BreakerStatus, Verdict
from orchestrator.domain.failure import Failure
from orchestrator.domain.topology import CONTROL, TASKS_STANDARD_QUEUE
from orchestrator.engine import breakers_act, inspect
from orchestrator.engine.breakers import Breakers
from orchestrator.engine.core import Engine, Tunables
from orchestrator.engine.leases import LeaseKeeper
from orchestrator.ports import ActivityCall, ActivityFailed, Throttled
from tests.support.definitions import flow, retry, task
from tests.support.faults import FaultyStore
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld

PAY = "pay.example"
FEW = Tunables(breaker=BreakerRules(failures=4))


class Service:
    """A dependency that can be down."""

    def __init__(self) -> None:
        self.down = True
        self.calls: list[ActivityCall] = []

    def __call__(self, call: ActivityCall) -> Any:
        self.calls.append(call)
        if self.down:
            raise ActivityFailed(Failure(type="HttpServerError", message="503"))
        return {"status": 200}


def http(url: str = f"https://{PAY}/charges/${{input.id}}", **more: Any) -> dict[str, Any]:
    return {"type": "http", "request": {"method": "POST", "url": url}, **more}


async def publish(world: World, **tasks: Any) -> None:
    await world.publish(flow(**(tasks or {"a": http(retry=retry(1))})))


async def start(world: World, count: int = 1) -> list[str]:
    return [(await world.start("flow", {"id": str(n)})).id for n in range(count)]


async def shown(world: World, name: str = PAY, engine: Engine | None = None) -> Any:
    return await breakers_act.show(engine or world.engine, TENANT, name)


async def opened(world: World, failures: int = 4) -> None:
    """Fail so often that it opens."""
    await start(world, failures)
    await world.settle()
    assert (await shown(world)).status == BreakerStatus.OPEN


async def later(world: World, ms: int) -> None:
    """Let `ms` pass, and everything that falls due in it happen in its order."""
    end = world.clock.now() + ms
    while True:
        await world.settle()
        due = [one.due_at for one in world.transport.messages if (one.due_at or end + 1) <= end]
        await world.clock.advance(max(0, (min(due) if due else end) - world.clock.now()))
        if not due:
            return await world.settle()


async def attempts(world: World, execution: str) -> int:
    return (await inspect.task(world.engine, TENANT, execution, "a")).attempt


async def test_it_opens_after_failures_in_two_processes_that_share_the_store(
    make: MakeWorld,
) -> None:
    world = await make(tunables=FEW, **{"weft.http": Service()})
    other = world.another("worker-2")
    await publish(world)
    for engine in (world.engine, other, world.engine, other):
        await start(world)
        await world.settle(engine)
        await world.clock.advance(1_000)
    found = await shown(world)
    assert (found.status, found.failures, found.errors) == ("open", 4, ["HttpServerError"])
    assert found.until == world.clock.now() + 30_000
    total = [
        e.metrics.value("weft_breaker_transitions_total", "open") for e in (world.engine, other)
    ]
    assert sum(total) == 1
    assert world.engine.metrics.value("weft_breaker_state", f"{TENANT}:{PAY}") == 2


async def test_a_postponed_task_uses_no_attempt_and_has_no_document(make: MakeWorld) -> None:
    service = Service()
    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world)
    await opened(world)
    [id] = await start(world)
    await world.settle()
    assert len(service.calls) == 4
    assert await attempts(world, id) == 0
    assert world.engine.metrics.value("weft_postponed_total", "breaker") == 1
    [waiting] = world.transport.messages
    until = (await shown(world)).until
    assert until is not None
    assert until < (waiting.due_at or 0) <= until + 15_000
    found = await inspect.task(world.engine, TENANT, id, "a")
    assert (found.status.value, found.attempts) == ("QUEUED", [])


async def test_a_probe_that_succeeds_closes_it_and_the_postponed_run(make: MakeWorld) -> None:
    service = Service()
    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world)
    await opened(world)
    ids = await start(world, 20)
    await world.settle()
    dues = {one.due_at for one in world.transport.messages}
    assert len(dues) > 15, "no thundering herd"
    service.down = False
    await later(world, 120_000)
    assert [(await world.view(id)).status.value for id in ids] == ["COMPLETED"] * 20
    assert {await attempts(world, id) for id in ids} == {1}
    assert (await shown(world)).status == "closed"


async def test_one_task_probes_and_the_others_stay_postponed(make: MakeWorld) -> None:
    gate, calls = asyncio.Event(), []

    async def service(call: ActivityCall) -> Any:
        calls.append(call)
        if len(calls) > 4:
            await gate.wait()
            return 1
        raise ActivityFailed(Failure(type="HttpTimeout", message=""))

    world = await make(tunables=FEW, **{"weft.http": service})
    other = world.another("worker-2")
    await publish(world)
    await opened(world)
    await start(world, 6)
    await world.settle()
    await world.clock.advance(46_000)
    due = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    assert len(due) == 6
    running = [
        asyncio.create_task(world.deliver([one], engine))
        for one, engine in zip(due, [world.engine, other] * 3, strict=True)
    ]
    for _ in range(30):
        await quiesce()
    assert len(calls) == 5
    assert (await shown(world)).status == "halfOpen"
    gate.set()
    await asyncio.gather(*running)
    assert (await shown(world)).status == "closed"
    await later(world, 60_000)
    assert len(calls) == 10


async def test_a_probe_that_fails_opens_it_for_twice_as_long(make: MakeWorld) -> None:
    service = Service()
    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world)
    await opened(world)
    ids = await start(world, 5)
    await later(world, 50_000)
    assert len(service.calls) == 5, "one probe"
    found = await shown(world)
    assert found.status == "open"
    assert found.opened_at is not None
    assert found.until == found.opened_at + 60_000
    assert sorted([await attempts(world, id) for id in ids]) == [0, 0, 0, 0, 1]


async def test_a_killed_probe_frees_the_place_after_its_time(make: MakeWorld) -> None:
    never, calls = asyncio.Event(), []

    async def service(call: ActivityCall) -> Any:
        calls.append(call)
        if len(calls) == 5:
            await never.wait()
        if len(calls) > 5:
            return 1
        raise ActivityFailed(Failure(type="HttpConnectError", message=""))

    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world, a=http(retry=retry(2, interval="1h")))
    await opened(world)
    ids = await start(world, 2)
    await world.settle()
    await world.clock.advance(46_000)
    doomed = world.another("doomed")
    first, second = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    running = asyncio.create_task(world.deliver([first], doomed))
    await quiesce(200)
    assert len(calls) == 5
    await doomed.part(LeaseKeeper).close()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await world.deliver([second])
    assert len(calls) == 5, "the place is taken until the probe's time is over"
    for _ in range(12):
        await later(world, 15_000)
        await world.sweep()
    assert {(await world.view(id)).status.value for id in ids} == {"COMPLETED"}
    assert (await shown(world)).status == "closed"


async def test_a_probe_that_never_reached_the_dependency_is_given_back(make: MakeWorld) -> None:
    service = Service()
    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world)
    await opened(world)
    bad = http(f"https://{PAY}/x/${{input.nothing}}")
    await world.publish(flow("bad", a=bad))
    started = await world.start("bad", {})
    await later(world, 50_000)
    assert (await world.view(started.id)).status.value == "FAILED"
    assert (await shown(world)).status == "halfOpen"
    service.down = False
    [id] = await start(world)
    await world.settle()
    assert (await world.view(id)).status.value == "COMPLETED"
    assert (await shown(world)).status == "closed"


async def test_a_client_error_is_an_answer(make: MakeWorld) -> None:
    def service(call: ActivityCall) -> Any:
        raise ActivityFailed(Failure(type="HttpClientError", message="404", retryable=False))

    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world)
    await start(world, 30)
    await world.settle()
    assert (await breakers_act.listing(world.engine, TENANT)).items == []


async def test_manual_opening_and_closing(make: MakeWorld) -> None:
    service = Service()
    service.down = False
    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world)
    first = await breakers_act.open_(world.engine, TENANT, PAY, by="eve", reason="maintenance")
    assert (first.status, first.until, first.manual, first.by) == ("open", None, True, "eve")
    await world.clock.advance(10)
    again = await breakers_act.open_(world.engine, TENANT, PAY, by="eve", reason="maintenance")
    assert again == first
    [id] = await start(world)
    await later(world, 3_600_000)
    assert service.calls == []
    closed = await breakers_act.close(world.engine, TENANT, PAY, by="adam", reason="done")
    assert (closed.status, closed.by) == ("closed", "adam")
    await breakers_act.close(world.engine, TENANT, PAY, by="adam", reason="done")
    await later(world, 90_000)
    assert (await world.view(id)).status.value == "COMPLETED"
    from orchestrator.ports import Query

    audited = await world.sqlite.query("audit", Query(partition=(TENANT,)))
    assert [(one.body["action"], one.body["dependency"]) for one in audited] == [
        ("openBreaker", PAY),
        ("closeBreaker", PAY),
    ]


async def test_a_manual_opening_for_a_time_ends_in_a_probe(make: MakeWorld) -> None:
    service = Service()
    service.down = False
    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world)
    await breakers_act.open_(world.engine, TENANT, PAY, by="eve", for_ms=600_000)
    [id] = await start(world)
    await later(world, 590_000)
    assert service.calls == []
    await later(world, 100_000)
    assert (await world.view(id)).status.value == "COMPLETED"


async def test_failures_before_a_manual_closing_do_not_count_any_more(make: MakeWorld) -> None:
    world = await make(tunables=FEW, **{"weft.http": Service()})
    await publish(world)
    await opened(world)
    await breakers_act.close(world.another("api"), TENANT, PAY, by="eve")
    await world.clock.advance(1_000)
    await start(world, 3)
    await world.settle()
    assert (await shown(world)).status == "closed"
    await start(world, 1)
    await world.settle()
    assert (await shown(world)).status == "open"


async def test_dependencies_and_tenants_do_not_affect_each_other(make: MakeWorld) -> None:
    service = Service()
    ship: list[ActivityCall] = []
    world = await make(tunables=FEW, **{"weft.http": service, "ship": ship.append})
    world.activities.dependencies["ship"] = "warehouse"
    await publish(world)
    await opened(world)
    await world.publish(flow("other", a=http("https://other.example/x"), b=task("ship")))
    service.down = False
    started = await world.start("other")
    await world.settle()
    assert (await world.view(started.id)).status.value == "COMPLETED"
    assert len(ship) == 1
    for tenant, expected in ((TENANT, "open"), ("globex", None)):
        found = await world.engine.part(Breakers).state(tenant, PAY)
        assert found is not None
        assert (found.status.value if found.updated_at else None) == expected
    assert (await breakers_act.listing(world.engine, "globex")).items == []


async def test_an_activity_names_its_dependency(make: MakeWorld) -> None:
    def pack(call: ActivityCall) -> None:
        raise ConnectionRefusedError("no")

    world = await make(tunables=FEW, pack=pack)
    world.activities.dependencies["pack"] = "warehouse"
    await world.publish(flow(a=task("pack", retry=retry(50))))
    [id] = await start(world)
    await later(world, 20_000)
    assert (await shown(world, "warehouse")).status == "open"
    assert await attempts(world, id) == 4


async def test_a_host_that_an_expression_makes_is_known_before_the_claim(make: MakeWorld) -> None:
    service = Service()
    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world, a=http("${input.url}", retry=retry(1)))
    for number in range(5):
        await world.start("flow", {"url": f"https://{PAY}/{number}"})
        await world.settle()
    assert len(service.calls) == 4
    service.down = False
    fine = await world.start("flow", {"url": "https://fine.example/"})
    await world.settle()
    assert (await world.view(fine.id)).status.value == "COMPLETED"


async def test_items_of_a_map_are_postponed_one_by_one(make: MakeWorld) -> None:
    service = Service()
    world = await make(tunables=FEW, **{"weft.http": service})
    await publish(world)
    await opened(world)
    await world.publish(flow("many", m={"type": "map", "items": "${input}", "do": http()}))
    started = await world.start("many", [1, 2, 3])
    await world.settle()
    assert len(world.transport.messages) == 3
    service.down = False
    await later(world, 120_000)
    # `input.id` of a list is an expression failure: they were run, once each.
    assert (await world.view(started.id)).status.value == "FAILED"


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
    from orchestrator.engine import control

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


@pytest.mark.parametrize("end", ["cancel", "timeout"])
async def test_a_postponed_task_ends_with_its_execution(make: MakeWorld, end: str) -> None:
    from orchestrator.engine import control

    world = await make(tunables=FEW, **{"weft.http": Service()})
    await publish(world)
    await opened(world)
    await world.publish(flow("short", a=http(), timeout="10s"))
    started = await world.start("short", {"id": "1"})
    await world.settle()
    if end == "cancel":
        await control.act(world.engine, TENANT, started.id, control.CANCEL, by="eve")
    await later(world, 10_001)
    assert (await world.view(started.id)).status.value in ("CANCELLED", "FAILED")
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
    from orchestrator.engine.breaker_docs import breaker_id

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


async def test_the_list_is_bounded_and_latest_first(make: MakeWorld) -> None:
    world = await make()
    for number in range(3):
        await breakers_act.open_(world.engine, TENANT, f"h{number}.example", by="eve")
    found = await breakers_act.listing(world.engine, TENANT)
    assert [one.dependency for one in found.items] == ["h2.example", "h1.example", "h0.example"]
