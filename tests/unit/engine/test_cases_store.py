"""Cases from the field about the store (CASES.md, section Store), proven on the real engine."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from orchestrator.domain.topology import EXECUTIONS, MAX_ERROR_BYTES
from orchestrator.engine import inspect, relay, submit
from orchestrator.engine.inspect import ExecutionFilter
from orchestrator.ports import (
    ActivityCall,
    Create,
    Document,
    Query,
    Replace,
    StoreError,
    Throttled,
    TransportError,
    Unavailable,
    Where,
)
from tests.support.definitions import flow, retry, task
from tests.support.faults import FaultyStore, faulty, times, touching
from tests.support.lists import catch_up
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld


async def _outboxes(world: World) -> list[Document]:
    query = Query(where=(Where("type", "=", "outbox"),), limit=1_000)
    return await world.sqlite.query(EXECUTIONS, query)


async def _with_time(world: World, work: Any) -> Any:
    """Await `work` while time passes."""
    running = asyncio.ensure_future(work)
    for _ in range(10_000):
        await quiesce(5)
        if running.done():
            break
        await world.clock.advance(100)
    return await running


async def test_relay_that_raised_for_a_minute_loses_nothing_with_the_feed_not_replaying(
    make: MakeWorld,
) -> None:
    """Azure/azure-webjobs-sdk-extensions#837: the checkpoint moves although the function raised."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    world.transport.failing = True
    started = []
    for _ in range(6):
        started.append(await world.start("flow"))
        docs = [doc.body for doc in await _outboxes(world)]
        assert await relay.relay_documents(world.engine, docs) == 0  # caught per document
        await world.clock.advance(10_000)
    world.transport.failing = False
    await world.clock.advance(world.tunables.outbox_grace_ms)
    assert (await world.sweep()).outboxes == 6
    assert {(await world.view(one.id)).status for one in started} == {"COMPLETED"}
    assert await _outboxes(world) == []


async def test_kill_after_three_of_ten_messages_delivers_all_ten_and_records_each_once(
    make: MakeWorld,
) -> None:
    """SIGKILL with the checkpoint already advanced: the sweeper alone must be enough."""
    world = await make(noop=lambda call: call.item)
    await world.publish(flow(m={"type": "map", "items": "${input}", "do": task("noop")}))
    started = await world.start("flow", list(range(10)))

    async def three_then_die(messages: Any) -> None:
        await type(world.transport).send(world.transport, messages[:3])
        raise TransportError("killed")

    orchestration = world.transport.take(world.clock.now())
    world.transport.send = three_then_die  # type: ignore[method-assign]
    await world.deliver(orchestration)
    del world.transport.send
    await world.settle()
    assert len(world.activities.calls) == 3
    await world.clock.advance(world.tunables.outbox_grace_ms)
    await world.sweep()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert sorted(call.item or 0 for call in world.activities.calls) == list(range(10))


async def test_a_poisoned_outbox_document_never_blocks_its_neighbours(make: MakeWorld) -> None:
    """A document that cannot be read is passed over, counted, and stays for a person."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    world.transport.failing = True
    await world.start("flow")
    world.transport.failing = False
    docs = [{"type": "outbox", "id": "outbox:x"}, *(d.body for d in await _outboxes(world))]
    assert await relay.relay_documents(world.engine, docs) == 1
    assert world.engine.metrics.value("weft_relay_poisoned_total") == 1


async def test_same_feed_batch_twice_after_its_rows_are_gone_changes_nothing(
    make: MakeWorld,
) -> None:
    """Azure/azure-documentdb-changefeedprocessor-dotnet#124: two hosts get the same batch."""
    world = await make(noop=lambda call: None)
    await world.publish(flow(a=task("noop")))
    world.transport.failing = True
    started = await world.start("flow")
    world.transport.failing = False
    docs = [doc.body for doc in await _outboxes(world)]
    assert await relay.relay_documents(world.engine, docs) == 1
    assert await relay.relay_documents(world.engine, docs) == 1
    await world.settle()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert len(world.activities.calls) == 1
    assert await _outboxes(world) == []


async def test_throttling_of_a_result_commit_does_not_run_the_activity_again(
    make: MakeWorld,
) -> None:
    """microsoft/planetary-computer-tasks#98: 429 reaches the caller after the SDK's retries."""
    world = await make(noop=lambda call: "kept", wrap_store=FaultyStore)
    await world.publish(flow(a=task("noop"), output="${tasks.a.output}"))
    started = await world.start("flow")
    left = [10]

    def throttle(name: str, args: tuple[Any, ...]) -> StoreError | None:
        if name == "batch" and touching("task", args[2]) and left[0]:
            left[0] -= 1
            return Throttled("too many requests", retry_after_ms=500)
        return None

    faulty(world.engine).before = throttle
    await _with_time(world, world.settle())
    view = await world.view(started.id)
    assert (view.status, view.output) == ("COMPLETED", "kept")
    assert left == [0]
    assert len(world.activities.calls) == 1
    detail = await inspect.task(world.engine, TENANT, started.id, "a")
    assert [(one.attempt, one.error) for one in detail.attempts] == [(1, None)]


@pytest.mark.parametrize("kind", ["execution", "task", "events"])
async def test_a_write_whose_answer_was_lost_is_recognised_as_ones_own(
    make: MakeWorld, kind: str
) -> None:
    """DESIGN 8: a 409 or 412 on retry first asks "was that mine?"."""
    world = await make(noop=lambda call: 1, wrap_store=FaultyStore)
    await world.publish(flow(a=task("noop"), b=task("noop", "a")))

    def lose(name: str, args: tuple[Any, ...]) -> StoreError | None:
        if name != "batch" or not touching(kind, args[2]):
            return None
        written = tuple(getattr(operation, "body", {}).get("id") for operation in args[2])
        if written in lost:
            return None
        lost.add(written)
        return Unavailable("connection reset")

    lost: set[Any] = set()
    faulty(world.engine).after = lose
    started = await _with_time(world, world.start("flow"))
    assert started.created
    await _with_time(world, world.settle())
    view = await world.view(started.id)
    assert view.status == "COMPLETED"
    await world.verified(started.id)
    assert len(world.activities.calls) == 2
    assert world.engine.metrics.value("weft_store_unavailable_total") > 0


async def test_a_claim_whose_answer_was_lost_is_used(make: MakeWorld) -> None:
    """Else the task would wait for its own lease to expire."""
    world = await make(noop=lambda call: 1, wrap_store=FaultyStore)
    await world.publish(flow(a=task("noop")))
    started = await world.start("flow")
    faulty(world.engine).after = times(1, lambda: Unavailable("reset"), "create")
    await _with_time(world, world.settle())
    assert (await world.view(started.id)).status == "COMPLETED"
    assert len(world.activities.calls) == 1


async def test_listing_never_shows_another_tenants_rows_even_if_the_adapter_does(
    make: MakeWorld,
) -> None:
    """Azure/azure-sdk-for-python#37638: prefix queries returned other partitions' rows."""

    class Leaky:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def query(self, container: str, query: Query) -> list[Document]:
            found = await self._store.query(container, query)
            if query.partition == ("t",) and query.order_by == "createdAt":
                foreign = Query(
                    where=(Where("type", "=", "execution"),),
                    order_by="createdAt",
                    descending=True,
                    limit=query.limit,
                )
                found = await self._store.query(container, foreign)
            return found

    world = await make(noop=lambda call: None, wrap_store=Leaky)
    from orchestrator.engine import catalog

    for tenant in ("t", "t2", "t_x"):
        await catalog.publish(world.engine, tenant, flow(a=task("noop")))
        await submit.start(world.engine, tenant, "flow", None)
    await catch_up(world)
    items, _ = await inspect.executions(world.engine, "t", ExecutionFilter(), limit=100, after=None)
    assert len(items) == 1
    assert world.engine.metrics.value("weft_foreign_rows_total") == 2


async def test_a_three_megabyte_error_is_cut_to_the_limit_and_the_task_becomes_final(
    make: MakeWorld,
) -> None:
    """Azure/azure-functions-durable-extension#502: huge error text is refused deep in a run."""

    def fail(call: ActivityCall) -> None:
        raise ValueError("x" * 3_000_000)

    world = await make(fail=fail)
    await world.publish(flow(a=task("fail", retry=retry(2))))
    started = await world.start("flow")
    await world.run_until_quiet()
    view = await world.view(started.id)
    assert view.status == "FAILED"
    assert view.error is not None
    assert len(view.error.message.encode()) <= MAX_ERROR_BYTES
    assert view.error.message.endswith("[truncated]")
    detail = await inspect.task(world.engine, TENANT, started.id, "a")
    assert len(detail.attempts) == 2


async def test_nul_and_lone_surrogates_in_outputs_and_errors_become_final_and_readable(
    make: MakeWorld,
) -> None:
    """mozilla/mig#180: the insert fails, the record is lost or the task hangs."""

    def bad(call: ActivityCall) -> None:
        raise ValueError("a\0b\ud800")

    world = await make(text=lambda call: {"s": "a\0b\ud800"}, bad=bad)
    await world.publish(
        flow(
            on_failure="continue",
            a=task("text"),
            b=task("bad", retry=retry(1)),
        )
    )
    started = await world.start("flow")
    await world.run_until_quiet()
    good = await inspect.task(world.engine, TENANT, started.id, "a")
    assert good.output == {"s": "a\0b\ufffd"}
    failed = await inspect.task(world.engine, TENANT, started.id, "b")
    assert failed.error is not None
    assert failed.error.message == "a\0b\ufffd"


async def test_nan_in_an_output_fails_at_once_naming_the_path(make: MakeWorld) -> None:
    """PrefectHQ/prefect#6439: NaN leaves Python as invalid JSON."""
    world = await make(
        bad=lambda call: {"x": math.nan, "note": "NaN: fine"},
        fine=lambda call: {"note": "NaN: fine"},
    )
    await world.publish(flow(on_failure="continue", a=task("bad"), b=task("fine")))
    started = await world.start("flow")
    await world.run_until_quiet()
    failed = await inspect.task(world.engine, TENANT, started.id, "a")
    assert failed.error is not None
    assert failed.error.type == "OUTPUT_NOT_JSON"
    assert "$.x" in failed.error.message
    assert len(failed.attempts) == 1
    fine = await inspect.task(world.engine, TENANT, started.id, "b")
    assert fine.output == {"note": "NaN: fine"}


async def test_outputs_over_64_kib_are_kept_by_reference_and_readable_by_later_tasks(
    make: MakeWorld,
) -> None:
    """coinbase/step#42: a run dies when its payload passes a limit."""
    text = "x" * 65_535  # with its quotes: 65,537 bytes
    world = await make(big=lambda call: text, length=lambda call: len(call.input))
    await world.publish(
        flow(
            a=task("big"),
            b=task("length", "a", input="${tasks.a.output}"),
            output="${tasks.b.output}",
        )
    )
    started = await world.start("flow")
    await world.settle()
    assert (await world.view(started.id)).output == 65_535
    doc = await world.sqlite.read(EXECUTIONS, (TENANT, started.id), "task:a")
    assert doc.body["output"]["bytes"] == 65_537
    assert "ref" in doc.body["output"]


@pytest.mark.timeout(180)
async def test_a_map_of_500_large_results_stays_small_and_one_of_1000_fails_clearly(
    make: MakeWorld,
) -> None:
    """Step Functions limits: 29 MiB in total are fine, 59 MiB are a failure others can see."""
    item = "x" * (60 * 1024)
    world = await make(big=lambda call: item, length=lambda call: len(call.input), note=str)
    await world.publish(
        flow(
            m={"type": "map", "items": "${input}", "do": task("big")},
            n=task("length", "m", input="${tasks.m.output}"),
            failed=task("note", "m", runWhen="anyFailed"),
            output="${tasks.n.output}",
        )
    )
    started = await world.start("flow", list(range(500)))
    await world.settle()
    assert (await world.view(started.id)).output == 500
    doc = await world.sqlite.read(EXECUTIONS, (TENANT, started.id), started.id)
    assert len(str(doc.body)) < 1024 * 1024
    over = await world.start("flow", list(range(1_000)))
    await world.settle()
    view = await world.view(over.id)
    assert view.status == "FAILED"
    assert view.error is not None
    assert view.error.type == "PAYLOAD_TOO_LARGE"
    assert (await world.statuses(over.id))["failed"] == "COMPLETED"


async def test_a_decision_of_any_width_stays_within_one_batch(make: MakeWorld) -> None:
    """DESIGN 2: a 1,000-wide fan-out is 12 operations; 10,000 tasks still fit."""
    sizes: list[int] = []

    class Counting:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def batch(self, container: str, partition: Any, operations: Any) -> Any:
            if any(isinstance(operation, Replace) for operation in operations):
                sizes.append(len(operations))
            return await self._store.batch(container, partition, operations)

    world = await make(noop=lambda call: None, wrap_store=Counting)
    wide = {f"t{n}": task("noop") for n in range(1_000)}
    await world.publish({"name": "wide", "tasks": wide})
    await world.start("wide")
    await world.deliver(world.transport.take(world.clock.now()))
    assert sizes == [12]
    widest = {f"t{n}": task("noop") for n in range(10_000)}
    await world.publish({"name": "widest", "tasks": widest})
    await world.start("widest")
    sizes.clear()
    await world.deliver(world.transport.take(world.clock.now(), "orchestration"))
    assert len(sizes) == 1
    assert sizes[0] <= 100
    assert all(isinstance(op, type) for op in (Create, Replace))
