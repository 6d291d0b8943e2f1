"""Cases from the field about workers, running versions and joins, proven on the real engine."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.topology import EXECUTIONS, ORCHESTRATION_QUEUE, TASKS_STANDARD_QUEUE
from orchestrator.engine import catalog, inspect, sweep
from orchestrator.engine.leases import LeaseKeeper
from orchestrator.engine.outbox import out_message
from orchestrator.ports import ActivityCall
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld


async def _begin_and_die(world: World, *, engine: Any = None) -> None:
    """Deliver the due task message to a worker that dies in the activity: its process is gone, so
    neither its lease is renewed nor its result written."""
    engine = engine or world.another("doomed")
    [message] = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    running = asyncio.create_task(world.deliver([message], engine))
    await quiesce()
    await engine.part(LeaseKeeper).close()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_killed_worker_is_taken_over_within_lease_and_one_sweep(make: MakeWorld) -> None:
    """PrefectHQ/prefect#16746: the worker dies by OOM, the run is RUNNING for ever."""
    never = asyncio.Event()

    async def work(call: ActivityCall) -> int:
        if call.attempt == 1:
            await never.wait()
        return call.attempt

    world = await make(work=work)
    await world.publish(flow(a=task("work", retry=retry(2)), output="${tasks.a.output}"))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    await _begin_and_die(world)
    await world.clock.advance(world.tunables.lease_ms - 1)
    assert (await world.sweep()).tasks == 0
    await world.clock.advance(1)
    assert (await world.sweep()).tasks == 1
    view = await world.view(started.id)
    assert (view.status, view.output) == ("COMPLETED", 2)
    detail = await inspect.task(world.engine, TENANT, started.id, "a")
    assert [one.error and one.error.type for one in detail.attempts] == ["LEASE_EXPIRED", None]
    keys = {call.idempotency_key for call in world.activities.calls}
    assert len(keys) == 1


async def test_killed_worker_on_the_last_attempt_fails_the_task(make: MakeWorld) -> None:
    """The attempt counts: a task that kills its worker must not do so for ever."""
    never = asyncio.Event()

    async def work(call: ActivityCall) -> None:
        await never.wait()

    world = await make(work=work)
    await world.publish(flow(a=task("work", retry=retry(1))))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    await _begin_and_die(world)
    await world.clock.advance(world.tunables.lease_ms)
    await world.sweep()
    view = await world.view(started.id)
    assert view.status == "FAILED"
    assert view.error is not None
    assert view.error.type == "LEASE_EXPIRED"


async def test_four_sweepers_see_one_dead_task_and_one_attempt_is_counted(
    make: MakeWorld,
) -> None:
    """apache/airflow#24906: attempts counted twice, retry turns into failure."""
    never = asyncio.Event()

    async def work(call: ActivityCall) -> int:
        if call.attempt == 1:
            await never.wait()
        return call.attempt

    world = await make(work=work)
    await world.publish(flow(a=task("work", retry=retry(2)), output="${tasks.a.output}"))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    await _begin_and_die(world)
    await world.clock.advance(world.tunables.lease_ms)
    engines = [world.another(f"sweeper-{number}") for number in range(4)]
    await asyncio.gather(*(sweep.sweep(engine) for engine in engines))
    due = world.transport.take(world.clock.now())
    assert len(due) == 4
    await asyncio.gather(
        *(world.deliver([one], engine) for one, engine in zip(due, engines, strict=True))
    )
    await world.settle()
    assert (await world.view(started.id)).output == 2
    assert [call.attempt for call in world.activities.calls] == [1, 2]


async def test_late_result_of_a_lost_lease_cannot_overwrite_the_next_attempt(
    make: MakeWorld,
) -> None:
    """One timed-out or frozen worker comes back after another took over."""
    gate = asyncio.Event()

    async def work(call: ActivityCall) -> str:
        if call.attempt == 1:
            await gate.wait()
        return f"attempt {call.attempt}"

    world = await make(work=work)
    await world.publish(flow(a=task("work", retry=retry(3)), output="${tasks.a.output}"))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    frozen = world.another("frozen")
    [message] = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    late = asyncio.create_task(world.deliver([message], frozen))
    await quiesce()
    await frozen.part(LeaseKeeper).close()  # its process stands still
    await world.clock.advance(world.tunables.lease_ms)
    await world.sweep()
    gate.set()
    await late
    await world.settle()
    assert (await world.view(started.id)).output == "attempt 2"
    assert frozen.metrics.value("weft_late_results_total") == 1
    await world.verified(started.id)


async def test_an_activity_that_hangs_past_its_timeout_is_a_failed_attempt(
    make: MakeWorld,
) -> None:
    """It ends at its timeout, is retried, and the flag to stop is set."""
    never = asyncio.Event()

    async def work(call: ActivityCall) -> str:
        if call.attempt == 1:
            await never.wait()
        return "second"

    world = await make(work=work)
    await world.publish(
        flow(a=task("work", timeout="10ms", retry=retry(2)), output="${tasks.a.output}")
    )
    started = await world.start("flow")
    await world.run_until_quiet()
    assert (await world.view(started.id)).output == "second"
    detail = await inspect.task(world.engine, TENANT, started.id, "a")
    assert [one.error and one.error.type for one in detail.attempts] == ["TIMEOUT", None]
    assert world.activities.calls[0].cancelled


@pytest.mark.parametrize("seed", range(15))
async def test_join_is_dispatched_once_when_200_branches_finish_at_once(
    make: MakeWorld, seed: int
) -> None:
    """Netflix/conductor#1957: two finishes raced, and the join never came. The 10,000 seeds of
    the pure core are in tests/unit/core; here eight orchestrators compete for real."""
    rng = random.Random(seed)
    world = await make(noop=lambda call: None)
    branches = {f"b{n}": task("noop") for n in range(200)}
    join = task("noop", *branches)
    await world.publish({"name": "flow", "tasks": {**branches, "join": join}})
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    await world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE))
    finished = world.transport.take(world.clock.now(), ORCHESTRATION_QUEUE)
    assert len(finished) == 200
    rng.shuffle(finished)
    engines = [world.another(f"orchestrator-{number}") for number in range(8)]

    async def orchestrate(engine: Any) -> None:
        while finished:
            batch = [finished.pop() for _ in range(min(len(finished), rng.randint(1, 32)))]
            await world.deliver(batch, engine)

    await asyncio.gather(*(orchestrate(engine) for engine in engines), _ticking(world, finished))
    await world.settle()
    view = await world.view(started.id)
    assert view.status == "COMPLETED"
    joins = [call for call in world.activities.calls if call.task == "join"]
    assert len(joins) == 1
    await world.verified(started.id)
    assert sum(engine.metrics.value("weft_commit_conflicts_total") for engine in engines) > 0


async def _ticking(world: World, left: list[Any]) -> None:
    while left:
        await quiesce(5)
        await world.clock.advance(5)
    for _ in range(400):
        await quiesce(5)
        await world.clock.advance(5)


@pytest.mark.parametrize("seed", range(5))
async def test_losing_most_messages_loses_nothing(make: MakeWorld, seed: int) -> None:
    """DESIGN 1: state says what is due, and the sweeper sends it again."""
    world = await make(noop=lambda call: call.item)
    await world.publish(
        flow(
            a=task("noop"),
            m={"type": "map", "needs": ["a"], "items": "${[1, 2, 3]}", "do": task("noop")},
            w={"type": "wait", "needs": ["m"], "duration": "30s"},
            z=task("noop", "w"),
        )
    )
    started = await world.start("flow")
    rng = random.Random(seed)
    for _ in range(1_000):
        for message in world.transport.take(world.clock.now() + 10**9):  # scheduled ones, too
            if rng.random() < 0.4:  # the broker's file was deleted again and again
                await world.deliver([message])
        await world.clock.advance(world.tunables.silence_ms)
        await sweep.sweep(world.engine)
        if (await world.view(started.id)).status == "COMPLETED":
            break
    assert (await world.view(started.id)).status == "COMPLETED"
    await world.verified(started.id)
    tasks = [(call.task, call.item) for call in world.activities.calls]
    assert len(tasks) == len(set(tasks)) == 5


async def test_silence_doubles_while_a_long_task_runs_and_nothing_is_repaired(
    make: MakeWorld,
) -> None:
    """A healthy execution that just takes long must not be sent again every minute."""
    gate = asyncio.Event()

    async def slow(call: ActivityCall) -> None:
        await gate.wait()

    world = await make(slow=slow)
    await world.publish(flow(a=task("slow", timeout="20m")))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    running = asyncio.create_task(
        world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE))
    )
    await quiesce()
    checks = 0
    for _ in range(90):  # 15 minutes
        await world.clock.advance(10_000)
        checks += (await world.sweep()).executions
    gate.set()
    await running
    await world.settle()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert checks == 4  # after 1, 3, 7 and 15 minutes
    assert world.engine.metrics.value("weft_repairs_total", "task") == 0
    assert len(world.activities.calls) == 1


async def test_editing_a_definition_does_not_change_runs_in_flight(make: MakeWorld) -> None:
    """apache/airflow#41452: v2 is published during v1; archive does not stop it either."""
    outcomes = iter([ConnectionError("once"), None, None])

    def flaky(call: ActivityCall) -> None:
        error = next(outcomes)
        if error:
            raise error

    world = await make(flaky=flaky, other=lambda call: None)
    await world.publish(flow(a=task("flaky", retry=retry(2, "1m")), b=task("flaky", "a")))
    first = await world.start("flow")
    await world.settle()
    await world.publish(flow(a=task("other", retry=retry(1)), c=task("other", "a")))
    second = await world.start("flow")
    await catalog.archive(world.engine, TENANT, "flow")
    await world.run_until_quiet()
    assert (await world.view(first.id)).version == 1
    assert await world.statuses(first.id) == {"a": "COMPLETED", "b": "COMPLETED"}
    assert (await world.view(second.id)).version == 2
    assert await world.statuses(second.id) == {"a": "COMPLETED", "c": "COMPLETED"}


async def test_failing_fast_gives_back_what_waits_for_a_retry_and_runs_handlers(
    make: MakeWorld,
) -> None:
    """A task between two attempts must not hold the failure up until its next attempt."""

    def fail(call: ActivityCall) -> None:
        raise ValueError("no")

    world = await make(fail=fail, note=lambda call: call.input)
    await world.publish(
        flow(
            slow=task("fail", retry=retry(9, "1h")),
            bad=task("fail", retry=retry(1)),
            never=task("note", "slow"),
            tidy=task("note", "slow", "bad", runWhen="allDone", input="${tasks.bad.error.type}"),
        )
    )
    started = await world.start("flow")
    begin = world.clock.now()
    await world.settle()
    assert await world.statuses(started.id) == {
        "slow": "CANCELLED",
        "bad": "DEAD_LETTERED",
        "never": "CANCELLED",
        "tidy": "COMPLETED",
    }
    view = await world.view(started.id)
    assert view.status == "FAILED"
    assert view.error is not None
    assert view.error.task == "bad"
    assert world.clock.now() == begin
    tidy = await inspect.task(world.engine, TENANT, started.id, "tidy")
    assert tidy.output == "ValueError"


async def test_stale_replica_does_not_drop_a_dispatch_or_a_result(make: MakeWorld) -> None:
    """Session consistency: another process may read the execution as it was before the commit."""
    stale: dict[str, Any] = {}

    class Lagging:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def read_many(self, container: str, partition: Any, ids: Any) -> Any:
            found = await self._store.read_many(container, partition, ids)
            return {id: stale.get(id, doc) for id, doc in found.items()}

    world = await make(noop=lambda call: None, wrap_store=Lagging)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    before = await world.sqlite.read(EXECUTIONS, (TENANT, started.id), started.id)
    await world.deliver(world.transport.take(world.clock.now()))
    stale[started.id] = before
    await world.settle()
    assert world.activities.calls == []  # the worker saw PENDING, and handed its message back
    stale.clear()
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert len(world.activities.calls) == 1


async def test_message_for_an_unknown_task_or_item_is_settled(make: MakeWorld) -> None:
    """It will not become known by being delivered again."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    await world.settle()
    for name, item in (("nope", None), ("a", 3)):
        message = Message(MessageType.RUN_TASK, TENANT, started.id, name, item)
        await world.deliver([out_message(message, world.ids.new())])
    assert world.transport.messages == []
    assert len(world.activities.calls) == 1
