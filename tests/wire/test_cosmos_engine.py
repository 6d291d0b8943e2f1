"""The real engine on the Cosmos store: storms of conflicts, throttling, answers lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.azure.cosmos_store import CosmosStore
from orchestrator.adapters.local.system import SystemClock
from orchestrator.domain.topology import EXECUTIONS, ORCHESTRATION_QUEUE
from orchestrator.engine import orchestrate, verify
from orchestrator.engine.core import Engine
from orchestrator.engine.incoming import Incoming
from orchestrator.ports import OutMessage, Query, Where
from tests.support.definitions import flow, task
from tests.support.world import TENANT, FakeActivities, World
from tests.wire.cosmos import CosmosServer
from tests.wire.cosmos.opening import DATABASE, KEY, wire_store


class CosmosWorld(World):
    """The world of the engine's tests, but on Cosmos and in real time: the network does not wait
    for a clock that stands still."""

    def __init__(
        self, folder: Path, activities: FakeActivities, server: CosmosServer, store: CosmosStore
    ) -> None:
        self.server, self.cosmos = server, store
        super().__init__(folder, activities, wrap_store=lambda _: store)
        self.clock = SystemClock()  # type: ignore[assignment]
        self.engine = self.another("worker-1")

    async def competing(self, count: int, stack: AsyncExitStack) -> list[Engine]:
        """Orchestrators with clients and caches of their own, as in as many processes."""
        engines = []
        for n in range(count):
            store = CosmosStore(self.server.endpoint, DATABASE, KEY)
            await store.open()
            stack.push_async_callback(store.close)
            self._wrap_store = lambda _, store=store: store
            engines.append(self.another(f"rival-{n}"))
        return engines

    async def outboxes(self) -> int:
        query = Query(where=(Where("type", "=", "outbox"),), limit=1_000)
        return len(await self.cosmos.query(EXECUTIONS, query))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[CosmosWorld]:
    activities = FakeActivities(noop=lambda call: call.item)
    async with wire_store() as (server, store):
        made = CosmosWorld(tmp_path, activities, server, store)
        await made.open()
        yield made
        await made.close()


def incoming(message: OutMessage) -> Incoming:
    return Incoming(body=message.body, message_id=message.message_id, properties=message.properties)


def wide(width: int) -> dict[str, Any]:
    tasks: dict[str, Any] = {f"t{n}": task("noop", input=n) for n in range(width)}
    return flow(**tasks, last=task("noop", *tasks))


async def test_412_storm_of_20_orchestrators_on_one_execution_loses_nothing(
    world: CosmosWorld,
) -> None:
    """20 processes, each with the result of another task, decide on the same document at once."""
    await world.publish(wide(20))
    started = await world.start("flow")
    async with AsyncExitStack() as stack:
        rivals = await world.competing(20, stack)
        while due := world.transport.take(world.clock.now()):
            work = [message for message in due if message.queue != ORCHESTRATION_QUEUE]
            await world.deliver(work)
            storm = [message for message in due if message.queue == ORCHESTRATION_QUEUE]
            await asyncio.gather(
                *(
                    orchestrate.handle(rivals[n % len(rivals)], [incoming(message)])
                    for n, message in enumerate(storm)
                )
            )
            for rival in rivals:
                await rival.drain()
        conflicts = sum(one.metrics.value("weft_commit_conflicts_total") for one in rivals)
        assert conflicts > 19
        assert not any(one.metrics.value("weft_deadletters_total") for one in rivals)
        assert all(one.store.meter.throttled.total() == 0 for one in rivals)  # type: ignore[attr-defined]
    assert (await world.view(started.id)).status == "COMPLETED"
    assert set((await world.statuses(started.id)).values()) == {"COMPLETED"}
    assert len(world.activities.calls) == 21
    assert (await verify.verify(world.engine, TENANT, started.id)).ok
    assert await world.outboxes() == 0
    assert world.server.counters.statuses["batch 207"] >= conflicts


async def test_429_ten_times_during_a_result_commit_does_not_run_the_activity_again(
    world: CosmosWorld,
) -> None:
    """microsoft/planetary-computer-tasks#98: the result is kept and committed; no failed attempt
    is recorded because of 429."""

    def work(call: Any) -> int:
        world.server.faults.add("batch", status=429, retry_after_ms=5, times=10)
        return 7

    world.activities.functions["slow"] = work
    await world.publish(flow(a=task("slow")))
    started = await world.start("flow")
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert len(world.activities.calls) == 1
    assert world.server.counters.statuses["batch 429"] == 10
    document = await world.cosmos.read(EXECUTIONS, (TENANT, started.id), "task:a")
    assert [attempt.get("error") for attempt in document.body["attempts"]] == [None]


@pytest.mark.parametrize("kind", ["batch", "create", "replace", "delete"])
async def test_commits_whose_answers_are_lost_are_recognised_as_ours(
    world: CosmosWorld, kind: str
) -> None:
    """Every third write of a kind is applied and its connection cut: nothing is done twice."""
    await world.publish(wide(4))
    for skip in range(0, 12, 3):
        world.server.faults.add(kind, drop=True, applied=True, skip=skip)
    started = await world.start("flow", key="once")
    await world.run_until_quiet()
    for _ in range(3):
        await world.sweep()
        await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert sorted(call.task for call in world.activities.calls) == ["last", "t0", "t1", "t2", "t3"]
    assert (await verify.verify(world.engine, TENANT, started.id)).ok


async def test_mixed_bad_weather_ends_with_everything_done(world: CosmosWorld) -> None:
    """Throttling, moved ranges, refusals and lost answers, all along."""
    await world.publish(flow(m={"type": "map", "items": "${input}", "do": task("noop")}))
    faults = world.server.faults
    for n in range(6):
        faults.add("batch", "create", "replace", status=429, retry_after_ms=2, skip=n * 3)
        faults.add("read", status=410, sub_status=1002, skip=n * 5)
        faults.add("batch", status=503, applied=n % 2 == 0, skip=n * 4)
        faults.add("replace", drop=True, applied=n % 2 == 1, skip=n * 4)
        faults.add("batch", status=449, operation=0, skip=n * 2)
    started = [await world.start("flow", [1, 2, 3, n]) for n in range(3)]
    await world.run_until_quiet()
    faults.clear()
    for _ in range(3):
        await world.sweep()
        await world.run_until_quiet()
    for one in started:
        assert (await world.view(one.id)).status == "COMPLETED"
        assert (await verify.verify(world.engine, TENANT, one.id)).ok
    assert len(world.activities.calls) == 12
    assert faults.fired > 15
