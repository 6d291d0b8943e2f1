"""Circuit breakers on the real engine: who waits, who probes, who is not touched."""

from __future__ import annotations

import asyncio
from typing import Any

from orchestrator.domain.failure import Failure
from orchestrator.domain.topology import AUDIT, TASKS_STANDARD_QUEUE
from orchestrator.engine import breakers_act, inspect
from orchestrator.engine.breakers import Breakers
from orchestrator.engine.leases import LeaseKeeper
from orchestrator.ports import ActivityCall, ActivityFailed, Query, Where
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
from tests.support.world import TENANT, quiesce
from tests.unit.engine.conftest import MakeWorld


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
    assert found.until == world.clock.now() + 29_000
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
    audited = await world.sqlite.query(
        AUDIT, Query(partition=(TENANT,), where=(Where("type", "=", "audit"),), order_by="n")
    )
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
    item = http(f"https://{PAY}/${{item}}")
    await world.publish(flow("many", m={"type": "map", "items": "${input}", "do": item}))
    started = await world.start("many", [1, 2, 3])
    await world.settle()
    assert len(world.transport.messages) == 3
    service.down = False
    await later(world, 120_000)
    assert (await world.view(started.id)).status.value == "COMPLETED"
    assert len(service.calls) == 4 + 3
