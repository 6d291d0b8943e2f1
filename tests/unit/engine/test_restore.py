"""What is lost or set back and comes again: the read model, the place of the change feed, the
whole store at a point in time. Each ends with a reconciliation without gaps; nothing is doubled."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from orchestrator.domain.status import TERMINAL_EXECUTION
from orchestrator.domain.topology import EXECUTIONS, VISIBILITY
from orchestrator.engine import project, rebuild, reconcile, relay
from orchestrator.ports import Query
from tests.support.definitions import flow, retry, task
from tests.support.lists import rows, truth, wipe
from tests.support.world import CountingIds, World
from tests.unit.engine.conftest import MakeWorld

MINUTE = 60_000
HOUR = 60 * MINUTE
FLOW = flow(
    a=task("noop", input=1),
    each={
        "type": "map",
        "needs": ["a"],
        "items": "${[1, 2, 3]}",
        "do": {"type": "activity", "activity": "noop", "input": "${item}"},
    },
    rest={"type": "wait", "needs": ["a"], "duration": "20m"},
    flaky=task("flaky", "rest", input=2, retry=retry(3, "10m")),
    z=task("noop", "flaky", "each", input=3),
)


class Feed:
    """The change feed with its two functions and their place."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cursor: str | None = None

    async def catch_up(self, *, blind: bool = False) -> None:
        """Everything since the last time; `blind`: the place moves, the functions see nothing."""
        while True:
            page = await self.world.sqlite.changes(EXECUTIONS, self.cursor, 100)
            if not page.documents:
                return
            self.cursor = page.cursor
            if not blind:
                bodies = [doc.body for doc in page.documents]
                await relay.relay_documents(self.world.engine, bodies)
                await project.project_documents(self.world.engine, bodies)
                await self.world.settle()


async def build(make: MakeWorld) -> World:
    world = await make(noop=lambda call: call.input, flaky=_flaky)
    await world.publish(FLOW)
    return world


def _flaky(call: Any) -> Any:
    if call.attempt < 2:
        raise ConnectionError("not yet")
    return call.input


async def gaps(world: World) -> dict[str, int]:
    report = await reconcile.reconcile(world.engine, settle_ms=0, every=True)
    return report.kinds


async def finish(world: World) -> None:
    """Let time pass, with sweeps, until everything has ended."""
    for _ in range(200):
        await world.run_until_quiet(limit_ms=MINUTE)
        await world.clock.advance(MINUTE)
        await world.sweep()
        states = [row["status"] for row in (await truth(world)).values()]
        if all(status in TERMINAL_EXECUTION for status in states):
            return
    raise AssertionError(f"never ended: {states}")


async def everything(world: World) -> list[tuple[str, dict[str, Any]]]:
    found = await world.sqlite.query(EXECUTIONS, Query(limit=10_000))
    return sorted(((doc.id, doc.body) for doc in found), key=lambda one: (str(one[1]), one[0]))


async def test_a_lost_read_model_is_made_again_and_reconciled_to_zero(make: MakeWorld) -> None:
    world = await build(make)
    for _ in range(3):
        await world.start("flow")
    await world.settle()
    await Feed(world).catch_up()
    before = await rows(world)
    await wipe(world, VISIBILITY)
    report = await reconcile.reconcile(world.engine, settle_ms=0, mend=False)
    assert report.kinds == {"row": 3}
    assert (await rebuild.visibility(world.engine)).written == 3
    assert await rows(world) == before
    assert await gaps(world) == {}


async def test_change_feed_leases_set_back_an_hour_change_nothing_twice(make: MakeWorld) -> None:
    world = await build(make)
    feed = Feed(world)
    await world.start("flow")
    await world.settle()
    await feed.catch_up()
    hour_ago = feed.cursor
    for _ in range(2):
        await world.start("flow")
        await world.settle()
        await world.clock.advance(HOUR // 2)
        await world.settle()
        await feed.catch_up()
    before, calls, sent = await everything(world), len(world.activities.calls), world.transport.sent
    listed, sent = await rows(world), list(sent)
    for place in (hour_ago, None, hour_ago):
        feed.cursor = place
        await feed.catch_up()
    assert await everything(world) == before
    assert (len(world.activities.calls), world.transport.sent) == (calls, sent)
    assert await rows(world) == listed
    await finish(world)
    await feed.catch_up()
    assert await gaps(world) == {}


async def test_lease_rebalancing_gives_the_same_batch_to_two_hosts(make: MakeWorld) -> None:
    """azure-documentdb-changefeedprocessor-dotnet#124: at the same time, and once more when the
    outboxes of the batch are gone."""
    world = await build(make)
    world.transport.failing = True
    for _ in range(5):
        await world.start("flow")
    world.transport.failing = False
    batch = [body for _, body in await everything(world)]
    hosts = [world.engine, world.another("host-2")]

    async def both() -> None:
        for function in (relay.relay_documents, project.project_documents):
            await asyncio.gather(*(function(host, batch) for host in hosts))

    await both()
    assert not [id for id, body in await everything(world) if body["type"] == "outbox"]
    assert len(world.transport.messages) == 5  # each sent twice under one id: the broker drops one
    await world.settle()
    before, listed = await everything(world), await rows(world)
    calls = len(world.activities.calls)
    await both()
    await world.settle()
    assert await everything(world) == before
    assert (await rows(world), len(world.activities.calls)) == (listed, calls)
    await finish(world)
    assert world.engine.metrics.counters.get("weft_relay_failures_total", 0) == 0


async def test_change_feed_leases_set_forward_an_hour_lose_nothing(make: MakeWorld) -> None:
    """What the functions never saw is sent by the sweeper and listed by the reconciliation."""
    world = await build(make)
    feed = Feed(world)
    world.transport.failing = True
    ids = [(await world.start("flow")).id for _ in range(3)]  # outboxes that only the feed sees
    await feed.catch_up(blind=True)
    world.transport.failing = False
    await world.clock.advance(HOUR)
    report = await reconcile.reconcile(world.engine, settle_ms=0, mend=False)
    assert report.kinds == {"overdue": 6}  # executions and their outboxes
    await finish(world)
    await feed.catch_up(blind=True)
    found = await reconcile.reconcile(world.engine, settle_ms=0)
    assert (found.kinds, found.mended) == ({"row": 3}, 3)
    assert await gaps(world) == {}
    assert set(await rows(world)) == set(ids)


def _copy(world: World, folder: Path) -> None:
    """What a backup at this moment holds."""
    folder.mkdir()
    (file,) = world.folder.glob("*.db")
    with (
        contextlib.closing(sqlite3.connect(file)) as source,
        contextlib.closing(sqlite3.connect(folder / file.name)) as target,
    ):
        source.backup(target)


@contextlib.asynccontextmanager
async def _restored(world: World, folder: Path) -> AsyncIterator[World]:
    """The backup under a new process, an hour later, with the broker as it is now."""
    again = World(folder, world.activities)
    again.engine.ids = CountingIds("restored")
    again.transport.messages = [*world.transport.messages]
    again.transport.seen = set(world.transport.seen)
    await again.open()
    await again.clock.advance(world.clock.now() + HOUR - again.clock.now())
    try:
        yield again
    finally:
        await again.close()


async def test_point_in_time_restore_under_a_newer_broker_loses_and_doubles_nothing(
    make: MakeWorld, tmp_path: Path
) -> None:
    """Work went on after the backup, and some was started that the backup does not know. Messages
    of that future are settled without an effect."""
    repeated = 0
    for turns in (0, 4, 8, 11):
        repeated += await _restore_after(turns, await build(make), tmp_path / f"backup-{turns}")
    assert repeated  # or no backup was behind


async def _restore_after(turns: int, world: World, backup: Path) -> int:
    """Restore what was there after `turns` turns; how many attempts were made twice."""
    known = [(await world.start("flow")).id for _ in range(2)]
    for _ in range(turns):
        await _turn(world)
    _copy(world, backup)
    for _ in range(5):
        await _turn(world)
    unknown = (await world.start("flow")).id
    await _turn(world)
    assert world.transport.messages  # of the future
    keys = {_place(call): call.idempotency_key for call in world.activities.calls}
    async with _restored(world, backup) as again:
        await finish(again)
        for id in known:
            assert (await again.view(id)).status == "COMPLETED"
            await again.verified(id)
        docs = await everything(again)
        assert not [id for id, body in docs if unknown in (id, body.get("executionId"))]
        assert not [id for id, body in docs if body["type"] == "deadletter"]
        # What was done after the backup is done once more, under the same key.
        own = [call for call in again.activities.calls if call.execution in known]
        assert {_place(call): call.idempotency_key for call in own} | keys == {
            **keys,
            **{_place(call): call.idempotency_key for call in own},
        }
        runs = Counter((_place(call), call.attempt) for call in own)
        assert max(runs.values()) <= 2
        await rebuild.visibility(again.engine)
        assert await gaps(again) == {}
        return sum(number == 2 for number in runs.values())


async def _turn(world: World) -> None:
    """One message, or the time until the next."""
    due = world.transport.take(world.clock.now(), limit=1)
    if due:
        await world.deliver(due)
    elif world.transport.messages:
        at = min(message.due_at or 0 for message in world.transport.messages)
        await world.clock.advance(at - world.clock.now())


def _place(call: Any) -> tuple[str, str, int | None]:
    return (call.execution, call.task, call.item)
