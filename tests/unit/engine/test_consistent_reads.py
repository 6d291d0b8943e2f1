"""An execution with a running map is two reads, and two reads are no snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.domain.topology import EXECUTIONS, ORCHESTRATION_QUEUE, TASKS_STANDARD_QUEUE
from orchestrator.engine import aggregate as aggregates
from orchestrator.engine import documents, orchestrate
from orchestrator.engine.incoming import Incoming
from orchestrator.ports import Unavailable
from tests.support.definitions import flow, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


class _Interrupted:
    """A store in which `between` happens after an execution was read and before its chunks are."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.between: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read_many(self, container: str, partition: Any, ids: Any) -> Any:
        """Like the store's."""
        if self.between is not None and any(id.startswith("map:") for id in ids):
            between, self.between = self.between, None
            await between()
        return await self._store.read_many(container, partition, ids)


async def _half_done(make: MakeWorld) -> tuple[World, str, list[Any]]:
    """A map of six, two at a time, of which the messages of two results are held back."""
    world = await make(noop=lambda call: call.item)
    do = task("noop")
    await world.publish(
        flow(
            m={"type": "map", "items": "${input}", "maxConcurrency": 2, "do": do},
            output="${tasks.m.output}",
        )
    )
    started = await world.start("flow", list(range(6)))
    await world.deliver(world.transport.take(world.clock.now()))
    await world.deliver(world.transport.take(world.clock.now(), TASKS_STANDARD_QUEUE))
    return world, started.id, world.transport.take(world.clock.now(), ORCHESTRATION_QUEUE)


async def test_a_commit_between_the_two_reads_of_a_map_is_not_taken_for_corruption(
    make: MakeWorld,
) -> None:
    """Found with kill -9 under load: old counts with new items dispatched items twice, which the
    state machine refuses, and the messages became dead letters."""
    world, id, (first, second) = await _half_done(make)
    other = world.another("other")
    store = _Interrupted(world.sqlite)
    world.engine.store = store

    async def commit() -> None:
        await orchestrate.handle(other, [Incoming(body=first.body)])

    world.engine.aggregates.drop((TENANT, id))
    store.between = commit
    await orchestrate.handle(world.engine, [Incoming(body=second.body)])
    assert store.between is None
    assert world.engine.metrics.value("weft_dead_letters_total", "message") == 0
    await world.settle()
    assert (await world.view(id)).output == list(range(6))
    await world.verified(id)


async def test_a_reader_between_two_commits_of_a_map_sees_one_of_them(make: MakeWorld) -> None:
    """The API must not show five items of which seven are done."""
    world, id, (first, _) = await _half_done(make)
    other = world.another("other")
    store = _Interrupted(world.sqlite)
    world.engine.store = store

    async def commit() -> None:
        await orchestrate.handle(other, [Incoming(body=first.body)])

    store.between = commit
    loaded = await aggregates.load(world.engine, (TENANT, id), fresh=True)
    assert loaded is not None
    state = loaded.state.maps[0]
    assert (state.completed, state.items.count(b"C")) == (1, 1)


async def test_an_execution_that_never_stands_still_is_unavailable_not_corrupt(
    make: MakeWorld,
) -> None:
    """Its messages are handed back; they are no dead letters."""
    world, id, (first, _) = await _half_done(make)
    partition = (TENANT, id)
    await orchestrate.handle(world.engine, [Incoming(body=first.body)])
    chunk = await world.sqlite.read(EXECUTIONS, partition, documents.map_id("m", 0))
    await world.sqlite.replace(EXECUTIONS, partition, {**chunk.body, "items": "CCQQQP"})

    class Moving:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.sqlite, name)

        async def read(self, container: str, partition: Any, id: str) -> Any:
            found = await world.sqlite.read(container, partition, id)
            await world.sqlite.replace(container, partition, found.body)
            return found

    async def no_wait(ms: int) -> None:
        pass

    world.engine.store = Moving()  # type: ignore[assignment]
    world.clock.sleep = no_wait  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="faster than it can be read"):
        await aggregates.load(world.engine, partition, fresh=True)


@pytest.mark.parametrize("items", ["CCQQQP", "CCQQ", None])
async def test_chunks_that_do_not_fit_although_nobody_commits_are_corrupt(
    make: MakeWorld, items: str | None
) -> None:
    """Trying again would never end."""
    world, id, (first, _) = await _half_done(make)
    partition = (TENANT, id)
    await orchestrate.handle(world.engine, [Incoming(body=first.body)])
    chunk = await world.sqlite.read(EXECUTIONS, partition, documents.map_id("m", 0))
    if items is None:
        await world.sqlite.delete(EXECUTIONS, partition, chunk.id)
    else:
        await world.sqlite.replace(EXECUTIONS, partition, {**chunk.body, "items": items})

    async def no_wait(ms: int) -> None:
        pass

    world.clock.sleep = no_wait  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"items|chunks"):
        await aggregates.load(world.engine, partition, fresh=True)
