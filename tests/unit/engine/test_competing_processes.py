"""Several processes on one execution, each remembering what it saw last: a remembered state may be
old, and a write whose answer is lost may be somebody else's."""

from __future__ import annotations

import asyncio
from typing import Any

from orchestrator.domain.topology import EXECUTIONS, ORCHESTRATION_QUEUE, TASKS_STANDARD_QUEUE
from orchestrator.engine import health, sweep
from orchestrator.engine.leases import LeaseKeeper
from orchestrator.ports import ActivityCall, Document, NotFound, Unavailable
from tests.support.definitions import flow, retry, task
from tests.support.faults import FaultyStore, faulty, times, touching
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld


def _finished(world: World) -> list[Any]:
    return world.transport.take(world.clock.now(), ORCHESTRATION_QUEUE)


async def _run_tasks(world: World) -> None:
    await world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE))


async def test_nothing_to_do_is_believed_of_a_fresh_read_only(make: MakeWorld) -> None:
    """This process remembers `b` as PENDING; another one has dispatched it since."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop"), b=task("noop", "a")))
    started = await world.start("flow")
    begin = world.clock.now()
    await world.deliver(_finished(world))  # this process dispatches `a`, and remembers
    await _run_tasks(world)
    await world.deliver(_finished(world), world.another("other"))  # dispatches `b`
    await _run_tasks(world)
    await world.deliver(_finished(world))
    assert world.transport.messages == []  # not given back, not lost
    assert (await world.view(started.id)).status == "COMPLETED"
    assert world.clock.now() == begin


async def test_a_conflict_leads_to_a_fresh_read_and_a_second_decision(make: MakeWorld) -> None:
    """Two results at two processes, both of which remember the state before."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop"), b=task("noop"), z=task("noop", "a", "b")))
    started = await world.start("flow")
    await world.deliver(_finished(world))
    await _run_tasks(world)
    first, second = _finished(world)
    await world.deliver([first], world.another("other"))
    await world.deliver([second])
    assert world.engine.metrics.value("weft_commit_conflicts_total") == 1
    assert world.engine.metrics.value("weft_handed_back_total", "Outdated") == 0
    await world.settle()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert len(world.activities.calls) == 3
    await world.verified(started.id)


async def test_a_result_that_was_not_applied_is_not_taken_for_ones_own(make: MakeWorld) -> None:
    """No answer, then a conflict: the write that stands there is of the one who took over."""
    gate = asyncio.Event()

    async def work(call: ActivityCall) -> str:
        if call.attempt == 1:
            await gate.wait()
        return f"attempt {call.attempt}"

    world = await make(work=work, wrap_store=FaultyStore)
    await world.publish(flow(a=task("work", retry=retry(3)), output="${tasks.a.output}"))
    started = await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    frozen = world.another("frozen")
    running = asyncio.create_task(
        world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE), frozen)
    )
    await quiesce()
    await frozen.part(LeaseKeeper).close()
    await world.clock.advance(world.tunables.lease_ms)
    faulty(frozen).before = times(1, lambda: Unavailable("no answer, not applied"), "batch")
    gate.set()
    await quiesce()  # it waits, to write its result again
    await world.sweep()  # somebody takes over and is done
    assert (await world.view(started.id)).output == "attempt 2"
    await world.clock.advance(1_000)
    await running
    assert frozen.metrics.value("weft_late_results_total") == 1
    assert (await world.view(started.id)).output == "attempt 2"


async def test_sending_again_is_no_progress_so_the_next_check_comes_later(make: MakeWorld) -> None:
    """Behind a long backlog nothing was lost, and each round would only make it longer."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    await world.start("flow")
    await world.deliver(world.transport.take(world.clock.now()))
    waits: list[int] = []
    for _ in range(4):  # the workers are busy: nobody takes the task's messages
        await world.clock.advance(world.tunables.silence_ms // 2)
        waited = 1
        while not (await sweep.sweep(world.engine)).executions:
            await world.clock.advance(world.tunables.silence_ms // 2)
            waited += 1
        waits.append(waited)
        await world.deliver(_finished(world))
    assert waits == [2, 4, 8, 16]


async def test_a_worker_whose_replica_does_not_know_the_execution_looks_again(
    make: MakeWorld,
) -> None:
    """Settled, the task would wait for a silence and a sweep."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    begin = world.clock.now()
    await world.deliver(_finished(world))
    lagging = world.another("lagging")

    async def nothing(container: str, partition: Any, ids: Any) -> dict[str, Document]:
        return {}

    lagging.store = FaultyStore(world.sqlite)  # type: ignore[assignment]
    lagging.store.read_many = nothing  # type: ignore[method-assign]
    await world.deliver(world.transport.take(world.clock.now()), lagging)
    assert world.activities.calls == []
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert world.clock.now() - begin < 1_000


async def test_what_a_lost_race_left_behind_is_not_shown_to_a_handler(make: MakeWorld) -> None:
    """An orchestrator wrote that a wait is over and then lost its commit to a failure, which
    cancelled the wait: for expressions it is cancelled, whatever its document says."""

    def fail(call: ActivityCall) -> None:
        raise ValueError("no")

    world = await make(fail=fail, noop=lambda call: call.input)
    await world.publish(
        flow(
            w={"type": "wait", "duration": "1m"},
            bad=task("fail", retry=retry(1)),
            tidy=task("noop", "w", "bad", runWhen="allDone", input="${tasks.w.status}"),
        )
    )
    started = await world.start("flow")
    await world.deliver(_finished(world))
    await _run_tasks(world)
    base = {"tenantId": TENANT, "executionId": started.id, "v": 1}
    await world.sqlite.create(
        EXECUTIONS,
        (TENANT, started.id),
        {
            **base,
            "id": "task:w",
            "type": "task",
            "task": "w",
            "status": "COMPLETED",
            "attempt": 0,
            "attempts": [],
            "output": {"text": "null", "size": 4},
        },
    )
    await world.settle()
    assert await world.statuses(started.id) == {
        "w": "CANCELLED",
        "bad": "DEAD_LETTERED",
        "tidy": "COMPLETED",
    }
    [tidy] = [call for call in world.activities.calls if call.task == "tidy"]
    assert tidy.input == "CANCELLED"


async def test_a_claim_that_was_not_applied_is_not_taken_for_ones_own(make: MakeWorld) -> None:
    """No answer, then a conflict with another worker's claim: only that one runs."""
    world = await make(noop=lambda call: call.attempt)
    await world.publish(flow(a=task("noop"), output="${tasks.a.output}"))
    started = await world.start("flow")
    await world.deliver(_finished(world))
    [message] = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    slow = world.another("slow")
    store = FaultyStore(world.sqlite)
    store.before = times(1, lambda: Unavailable("no answer, not applied"), "create")
    slow.store = store  # type: ignore[assignment]
    running = asyncio.create_task(world.deliver([message], slow))
    await quiesce()
    await world.deliver([message])
    await world.clock.advance(1_000)
    await running
    await world.settle()
    assert len(world.activities.calls) == 1
    assert (await world.view(started.id)).output == 1


async def test_a_store_that_fails_for_good_in_a_commit_hands_the_messages_back(
    make: MakeWorld,
) -> None:
    """The execution goes on when the store is back, without the sweeper."""
    world = await make(noop=lambda call: None, wrap_store=FaultyStore)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")

    def refuse(name: str, args: tuple[Any, ...]) -> Any:
        commit = name == "batch" and touching("execution", args[2])
        return NotFound("a lagging primary") if commit else None

    faulty(world.engine).before = refuse
    running = asyncio.create_task(world.deliver(_finished(world)))
    while not running.done():
        await quiesce()
        await world.clock.advance(100)
    assert world.engine.metrics.value("weft_handed_back_total", "Outdated") == 1
    faulty(world.engine).before = lambda name, args: None
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"


async def test_a_second_delivery_after_the_result_and_before_its_news_is_settled(
    make: MakeWorld,
) -> None:
    """The execution still says QUEUED; the task's document knows better."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    await world.deliver(_finished(world))
    [message] = world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE)
    await world.deliver([message])
    await world.deliver([message])
    assert len(world.activities.calls) == 1
    assert world.engine.metrics.value("weft_claims_refused_total", "finished") == 1
    assert world.engine.metrics.value("weft_dead_letters_total", "message") == 0
    await world.settle()
    assert (await world.view(started.id)).status == "COMPLETED"


async def test_a_result_that_reaches_a_lagging_orchestrator_is_given_back(
    make: MakeWorld,
) -> None:
    """Its replica shows the execution as it was before the task was dispatched."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    begin = world.clock.now()
    before = await world.sqlite.read(EXECUTIONS, (TENANT, started.id), started.id)
    await world.deliver(_finished(world))
    await _run_tasks(world)
    lagging = world.another("lagging")
    real = world.sqlite.read

    async def read(container: str, partition: Any, id: str) -> Document:
        return before if id == started.id else await real(container, partition, id)

    lagging.store = FaultyStore(world.sqlite)  # type: ignore[assignment]
    lagging.store.read = read  # type: ignore[method-assign]
    await world.deliver(_finished(world), lagging)
    [again] = world.transport.messages
    assert again.properties["type"] == "taskFinished"
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert world.clock.now() - begin < 1_000


async def test_many_hung_activities_show_in_the_health(make: MakeWorld) -> None:
    """Silence would be worse: the process seems fine and does less and less."""
    world = await make(noop=lambda call: None)
    for stuck, status in ((0, "ok"), (7, "ok"), (8, "degraded"), (40, "degraded")):
        world.activities.stuck = lambda stuck=stuck: stuck  # type: ignore[method-assign]
        found = await health.check(world.engine)
        assert (found.status, found.checks["activities"].ok) == (status, status == "ok")
        assert (str(stuck) in found.checks["activities"].detail) == bool(stuck)
