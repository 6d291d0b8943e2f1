"""The real engine on the real SDK and a broker with duplicate detection, locks and bad weather.

The store is SQLite and the clock is the test's, the broker's too. In every case: nothing lost, and
nothing run twice that was recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.domain.topology import (
    EXECUTIONS,
    ORCHESTRATION_QUEUE,
    QUEUES,
    TASKS_STANDARD_QUEUE,
)
from orchestrator.engine import execute, orchestrate, sweep
from orchestrator.engine.core import Engine
from orchestrator.engine.incoming import Incoming
from orchestrator.ports import ActivityCall, MessageLockLost, Received, StoreError, Unavailable
from tests.support.definitions import flow, retry, task
from tests.support.faults import FaultyStore
from tests.support.world import START, TENANT, Fake, FakeActivities, World, quiesce
from tests.wire.servicebus import ServiceBusBroker
from tests.wire.servicebus_support import ServiceBusPair

pytestmark = pytest.mark.asyncio(loop_scope="session")

FAR_FUTURE = 4_000_000_000_000
"""Epoch ms, in 2096: the SDK compares locks with the machine's clock."""


class BusWorld(World):
    """`World` with Service Bus in place of its broker in memory."""

    def __init__(self, folder: Path, pair: ServiceBusPair, **functions: Fake) -> None:
        self.faulty: FaultyStore | None = None

        def wrap(store: object) -> FaultyStore:
            self.faulty = FaultyStore(store)  # type: ignore[arg-type]
            return self.faulty

        super().__init__(folder, FakeActivities(**functions), wrap_store=wrap)  # type: ignore[arg-type]
        self.pair = pair
        self.clock.jump(FAR_FUTURE - START)
        self.transport = pair.transport  # type: ignore[assignment]
        self.engine = self.another("worker-1")
        pair.reset(self.clock)

    @property
    def broker(self) -> ServiceBusBroker:
        """The broker behind the pair."""
        assert self.pair.broker is not None
        return self.pair.broker

    async def take(self, queue: str) -> list[Received]:
        """What can be received now, locked."""
        return await self.pair.receive(queue, 32, 0)

    async def work(self, engine: Engine | None = None) -> None:
        """As the host does: receive, hand over, settle; until nothing can be received."""
        engine = engine or self.engine
        while True:
            batch = await self.take(ORCHESTRATION_QUEUE)
            if batch:
                await orchestrate.handle(engine, [incoming(message) for message in batch])
            tasks = await self.take(TASKS_STANDARD_QUEUE)
            await asyncio.gather(*(execute.handle(engine, incoming(one)) for one in tasks))
            await self.pair.complete_many([*batch, *tasks])
            await engine.drain()
            if not batch and not tasks:
                return

    async def attempts(self, execution: str, task: str) -> list[int]:
        """Numbers of the recorded attempts."""
        doc = await self.sqlite.read(EXECUTIONS, (TENANT, execution), f"task:{task}")
        return [entry["attempt"] for entry in doc.body["attempts"]]

    async def outboxes(self, execution: str) -> int:
        """Outbox documents that wait to be sent or deleted."""
        page = await self.sqlite.changes(EXECUTIONS, None, 1_000)
        return sum(doc.body.get("type") == "outbox" for doc in page.documents)


def incoming(message: Received) -> Incoming:
    """As a trigger hands it over."""
    return Incoming(
        body=message.body,
        message_id=message.message_id,
        delivery_count=message.delivery_count,
        properties=message.properties,
    )


MakeBusWorld = Callable[..., Awaitable[BusWorld]]


@pytest_asyncio.fixture(loop_scope="session")
async def make(servicebus_links: ServiceBusPair, tmp_path: Path) -> AsyncIterator[MakeBusWorld]:
    worlds: list[BusWorld] = []

    async def build(**functions: Fake) -> BusWorld:
        world = BusWorld(tmp_path, servicebus_links, **functions)
        worlds.append(world)
        await world.open()
        await world.pair.transport.warm_up()
        return world

    yield build
    for world in worlds:
        await world.close()


async def finished(world: BusWorld, execution: str, runs: int) -> None:
    """Completed, with so many runs of activities, and the history agrees."""
    view = await world.view(execution)
    assert view.status == "COMPLETED"
    assert len(world.activities.calls) == runs
    await world.verified(execution)
    for queue in (ORCHESTRATION_QUEUE, TASKS_STANDARD_QUEUE):
        counts = world.broker.counts(queue)
        assert (counts.active, counts.locked, counts.dead) == (0, 0, 0)


async def test_a_workflow_runs_through_service_bus(make: MakeBusWorld) -> None:
    world = await make(a=lambda call: "a", b=lambda call: "b")
    await world.publish(flow(a=task("a"), b=task("b", "a"), c=task("b", "a")))
    started = await world.start("flow")
    await world.work()
    await finished(world, started.id, 3)
    assert world.engine.metrics.value("weft_fast_path_failures_total") == 0


async def test_delivered_twice_is_recorded_once(make: MakeBusWorld) -> None:
    """Two copies of the task's message, at once, at two workers."""
    world = await make(a=lambda call: "a")
    await world.publish(flow(a=task("a")))
    started = await world.start("flow")
    await orchestrate.handle(
        world.engine, [incoming(one) for one in await world.take(ORCHESTRATION_QUEUE)]
    )
    assert world.broker.faults.deliver_again(TASKS_STANDARD_QUEUE) == 1
    assert world.broker.faults.deliver_again(ORCHESTRATION_QUEUE) == 1
    world.broker.faults.lose_locks(ORCHESTRATION_QUEUE)
    one, two = await world.take(TASKS_STANDARD_QUEUE)
    assert one.message_id == two.message_id
    other = world.another("worker-2")
    await asyncio.gather(
        execute.handle(world.engine, incoming(one)), execute.handle(other, incoming(two))
    )
    await world.pair.complete_many([one, two])
    await other.drain()
    await world.work()
    await finished(world, started.id, 1)
    assert await world.attempts(started.id, "a") == [1]


async def test_delivered_again_after_lock_loss_runs_nothing_and_is_recorded_once(
    make: MakeBusWorld,
) -> None:
    """Azure/azure-functions-host#2796: the lock ends while the activity still runs; the second
    delivery finds a fresh lease and is settled. Whoever was first cannot settle any more."""
    gate = asyncio.Event()

    async def slow(call: ActivityCall) -> str:
        await gate.wait()
        return "done"

    world = await make(slow=slow)
    await world.publish(flow(a=task("slow", timeout="10m")))
    started = await world.start("flow")
    batch = await world.take(ORCHESTRATION_QUEUE)
    await orchestrate.handle(world.engine, [incoming(one) for one in batch])
    await world.pair.complete_many(batch)
    [first] = await world.take(TASKS_STANDARD_QUEUE)
    running = asyncio.create_task(execute.handle(world.engine, incoming(first)))
    while not world.activities.calls:
        await quiesce()
    assert world.broker.faults.lose_locks(TASKS_STANDARD_QUEUE) == 1
    [second] = await world.take(TASKS_STANDARD_QUEUE)
    assert (second.message_id, second.delivery_count) == (first.message_id, 2)
    await execute.handle(world.another("worker-2"), incoming(second))
    await world.pair.complete(second)
    gate.set()
    await running
    with pytest.raises(MessageLockLost):
        await world.pair.complete(first)
    await world.work()
    await finished(world, started.id, 1)
    assert await world.attempts(started.id, "a") == [1]


async def test_retries_are_never_dropped_by_duplicate_detection_nor_count_as_deliveries(
    make: MakeBusWorld,
) -> None:
    """Particular/NServiceBus.AzureServiceBus#201, Azure/azure-functions-servicebus-extension#161:
    fresh ids within the duplicate window, delays by scheduled messages."""
    begun: list[int] = []
    deliveries: list[int] = []

    def flaky(call: ActivityCall) -> str:
        begun.append(world.clock.now())
        if call.attempt < 3:
            raise ConnectionError("outage")
        return "ok"

    world = await make(flaky=flaky)
    await world.publish(flow(a=task("flaky", retry=retry(5, "10s"))))
    started = await world.start("flow")
    for _ in range(3):
        await world.work()
        deliveries += [one.deliveries for one in world.broker.messages(TASKS_STANDARD_QUEUE)]
        await world.clock.advance(10_000)
    assert [at - begun[0] for at in begun] == [0, 10_000, 20_000]
    assert deliveries == [0, 0]
    assert world.broker.operations().get("duplicates", 0) == 0
    await finished(world, started.id, 3)


@pytest.mark.usefixtures("sdk_at_its_own_pace")
async def test_a_start_after_ten_idle_minutes_stays_on_the_fast_path(make: MakeBusWorld) -> None:
    """Azure/azure-sdk-for-python#38627, #10127, #15749: the first send after an idle detach."""
    world = await make(a=lambda call: "a")
    await world.publish(flow(a=task("a")))
    assert world.broker.faults.detach(publishers_only=True) == len(QUEUES)
    started = await world.start("flow")
    await world.engine.drain()
    assert world.engine.metrics.value("weft_fast_path_failures_total") == 0
    assert await world.outboxes(started.id) == 0
    await world.work()
    await finished(world, started.id, 1)


async def test_a_start_while_the_broker_refuses_is_kept_and_sent_later(make: MakeBusWorld) -> None:
    world = await make(a=lambda call: "a")
    await world.publish(flow(a=task("a")))
    world.broker.faults.reject_sends = 1
    started = await world.start("flow")
    assert world.engine.metrics.value("weft_fast_path_failures_total") == 1
    assert await world.outboxes(started.id) == 1
    await world.clock.advance(world.tunables.outbox_grace_ms)
    await sweep.sweep(world.engine)
    assert world.engine.metrics.value("weft_repairs_total", "outbox") == 1
    await world.work()
    await finished(world, started.id, 1)


async def test_a_process_that_dies_between_send_and_delete_sends_again_for_nothing(
    make: MakeBusWorld,
) -> None:
    """The outbox stays, the sweeper sends it again, the broker drops what it knows."""

    def dying(name: str, args: tuple[object, ...]) -> StoreError | None:
        return Unavailable("the process died") if name == "delete" else None

    world = await make(a=lambda call: "a")
    await world.publish(flow(a=task("a")))
    assert world.faulty is not None
    world.faulty.before = dying
    started = await world.start("flow")
    await world.work()
    left = await world.outboxes(started.id)
    assert left > 0
    world.faulty.before = lambda name, args: None
    await world.clock.advance(world.tunables.outbox_grace_ms)
    await sweep.sweep(world.engine)
    assert world.broker.operations()["duplicates"] == left
    assert await world.outboxes(started.id) == 0
    await world.work()
    await finished(world, started.id, 1)


async def test_a_lost_answer_does_not_run_a_task_twice(make: MakeBusWorld) -> None:
    """The connection breaks after the broker took the message: it is sent again and dropped."""
    world = await make(a=lambda call: "a")
    await world.publish(flow(a=task("a")))
    world.broker.faults.disconnect_on_send = "after"
    started = await world.start("flow")
    await world.work()
    assert world.broker.operations()["duplicates"] == 1
    await finished(world, started.id, 1)
