"""Retention, restoring, erasing and starting under the same key, at the same moment."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from orchestrator.domain.errors import ConflictError
from orchestrator.domain.retention import DAY_MS, Retention
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import archive, erase, restoring, retain
from orchestrator.engine.archive import ArchiveFilter
from orchestrator.engine.core import Tunables
from orchestrator.ports import Query
from tests.support.archives import archived
from tests.support.definitions import flow, task
from tests.support.faults import FaultyStore
from tests.support.lists import catch_up
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld

LARGE = "x" * 70_000


class Meanwhile:
    """A store that lets something else happen once, before the call `name` on an execution."""

    def __init__(self, store: Any, name: str, then: Callable[[], Awaitable[Any]]) -> None:
        self._store, self._name, self._then = store, name, then
        self.happened = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            if name == self._name and args[0] == EXECUTIONS and not self.happened:
                self.happened = True
                await self._then()
            return await real(*args, **kwargs)

        return call


def meanwhile(world: World, name: str, then: Callable[[], Awaitable[Any]]) -> Meanwhile:
    """Put such a store into the engine."""
    store: Any = Meanwhile(world.sqlite, name, then)
    world.engine.store = store
    return store


async def ended(make: MakeWorld, **options: Any) -> tuple[World, str]:
    """An execution with a large payload, under the key `k`."""
    world = await make(work=lambda call: LARGE + str(call.input), **options)
    put = world.payloads.put

    async def by_content(tenant: str, execution: str, name: str, data: bytes) -> str:
        return await put(tenant, execution, f"{name}:{hashlib.sha256(data).hexdigest()}", data)

    world.payloads.put = by_content  # type: ignore[method-assign]
    await world.publish(flow(a=task("work", input="${input}")) | {"output": "${tasks.a.output}"})
    id = (await world.start("flow", "1", key="k")).id
    await world.settle()
    return world, id


async def stored(world: World, id: str) -> dict[str, Any]:
    found = await world.sqlite.query(EXECUTIONS, Query(partition=(TENANT, id), limit=1_000))
    bodies = {doc.id: doc.body for doc in found}
    bodies.get(id, {}).pop("restoredAt", None)
    return bodies


async def test_a_start_under_the_key_while_it_is_restored_finds_it(make: MakeWorld) -> None:
    """It must not become a new execution in a partition that old documents are written to."""
    world, id = await ended(make)
    was = await stored(world, id)
    key = await archived(world.engine, TENANT, id)
    creates = 0

    async def start() -> None:
        nonlocal creates
        creates += 1
        again = await world.start("flow", "1", key="k")
        assert again.id == id
        assert not again.created

    class AfterFirst(Meanwhile):
        def __getattr__(self, name: str) -> Any:
            call = super().__getattr__(name)

            async def counted(*args: Any, **kwargs: Any) -> Any:
                result = await call(*args, **kwargs)
                if name == "create" and args[0] == EXECUTIONS and not creates:
                    await start()
                return result

            return counted

    store: Any = AfterFirst(world.sqlite, "", start)
    world.engine.store = store
    await restoring.restore(world.engine, TENANT, key, by="me")
    assert creates == 1
    await world.settle()
    assert await stored(world, id) == was
    await world.verified(id)


async def test_what_a_pass_is_removing_is_not_restored_under_its_hands(make: MakeWorld) -> None:
    """Else the archive would be forgotten, and then the pass would remove the rest."""
    world, id = await ended(make)
    was = await stored(world, id)
    await world.clock.advance(31 * DAY_MS)
    await catch_up(world)
    refused: list[str] = []

    async def restore() -> None:
        found, _ = await archive.page(world.engine, TENANT, ArchiveFilter(), limit=9, after=None)
        with pytest.raises(ConflictError) as error:
            await restoring.restore(world.engine, TENANT, found[0].id, by="me")
        refused.append(error.value.code)

    store = meanwhile(world, "delete", restore)
    assert (await retain.run(world.engine)).archived == 1
    assert store.happened
    assert refused == ["ARCHIVED"]
    found, _ = await archive.page(world.engine, TENANT, ArchiveFilter(), limit=9, after=None)
    await restoring.restore(world.engine, TENANT, found[0].id, by="me")
    assert await stored(world, id) == was


async def test_a_pass_leaves_alone_what_is_being_restored(make: MakeWorld) -> None:
    world, id = await ended(make)
    was = await stored(world, id)
    await world.clock.advance(31 * DAY_MS)
    key = await archived(world.engine, TENANT, id)

    async def run() -> None:
        await catch_up(world)
        assert (await retain.run(world.engine)).archived == 0

    class Second(Meanwhile):
        seen = 0

        def __getattr__(self, name: str) -> Any:
            if name == "create":
                self.seen += 1
                if self.seen < 3:
                    return getattr(self._store, name)
            return super().__getattr__(name)

    store: Any = Second(world.sqlite, "create", run)
    world.engine.store = store
    await restoring.restore(world.engine, TENANT, key, by="me")
    assert store.happened
    assert await stored(world, id) == was


async def test_a_restore_that_died_goes_on_or_is_taken_back(make: MakeWorld) -> None:
    world, id = await ended(make)
    was = await stored(world, id)
    key = await archived(world.engine, TENANT, id)

    async def dies() -> None:
        store = FaultyStore(world.sqlite)
        seen: list[str] = []

        def rule(name: str, args: tuple[Any, ...]) -> Any:
            if name == "create" and args[0] == EXECUTIONS:
                seen.append(args[2]["id"])
                if len(seen) > 2:
                    raise asyncio.CancelledError
            return None

        store.before = rule
        faulty: Any = store
        world.engine.store = faulty
        with pytest.raises(asyncio.CancelledError):
            await restoring.restore(world.engine, TENANT, key, by="me")
        world.engine.store = world.sqlite

    await dies()
    await restoring.restore(world.engine, TENANT, key, by="me")
    assert await stored(world, id) == was

    key = await archived(world.engine, TENANT, id)
    await dies()
    await world.clock.advance(31 * DAY_MS)
    await catch_up(world)
    assert (await retain.run(world.engine)).archived == 1
    assert await stored(world, id) == {}
    await restoring.restore(world.engine, TENANT, key, by="me")
    assert await stored(world, id) == was
    await world.verified(id)


async def test_an_archive_that_goes_leaves_the_payloads_to_a_later_one(make: MakeWorld) -> None:
    """Both are of one id, because the key was used again."""
    world, id = await ended(make)
    first = await archived(world.engine, TENANT, id)
    await world.clock.advance(1)
    assert (await world.start("flow", "2", key="k")).id == id
    await world.settle()
    second = await archived(world.engine, TENANT, id)
    await archive.delete(world.engine, TENANT, first, by="me")
    assert any("/task:a" in ref for ref in world.payloads.data)
    view = await restoring.restore(world.engine, TENANT, second, by="me")
    assert view.output == LARGE + "2"


async def test_two_passes_at_once_keep_one_whole_archive(make: MakeWorld) -> None:
    world, id = await ended(make)
    was = await stored(world, id)
    await world.clock.advance(31 * DAY_MS)
    await catch_up(world)
    reports = await asyncio.gather(retain.run(world.engine), retain.run(world.engine))
    assert sum(one.failed for one in reports) == 0
    found, _ = await archive.page(world.engine, TENANT, ArchiveFilter(), limit=9, after=None)
    assert [one.execution for one in found] == [id]
    await restoring.restore(world.engine, TENANT, found[0].id, by="me")
    assert await stored(world, id) == was


async def test_no_copy_is_kept_of_what_was_to_be_erased(make: MakeWorld) -> None:
    """Somebody asked for it to be erased, and the process died before it was done."""
    world, id = await ended(make)
    store = FaultyStore(world.sqlite)
    dying: Any = store
    world.engine.store = dying
    seen: list[str] = []

    def rule(name: str, args: tuple[Any, ...]) -> Any:
        if name == "replace":
            seen.append(name)
            if len(seen) > 1:
                raise asyncio.CancelledError
        return None

    store.before = rule
    with pytest.raises(asyncio.CancelledError):
        await erase.erase(world.engine, TENANT, id, by="me")
    world.engine.store = world.sqlite
    await world.clock.advance(31 * DAY_MS)
    await catch_up(world)
    report = await retain.run(world.engine)
    assert (report.archived, report.removed) == (0, 1)
    assert await stored(world, id) == {}
    assert not world.payloads.data


async def test_what_is_being_archived_is_not_erased_beside_its_copy(make: MakeWorld) -> None:
    """The text of the archive has been written by then, with everything in it."""
    world, id = await ended(make)
    await world.clock.advance(31 * DAY_MS)
    await catch_up(world)
    refused: list[str] = []

    async def erases() -> None:
        with pytest.raises(ConflictError) as error:
            await erase.erase(world.engine, TENANT, id, by="me")
        refused.append(error.value.code)

    meanwhile(world, "delete", erases)
    assert (await retain.run(world.engine)).archived == 1
    assert refused == ["ARCHIVED"]


async def test_without_archives_the_payloads_of_an_older_archive_stay(make: MakeWorld) -> None:
    """The setting was changed, and the key used again."""
    world, id = await ended(make)
    first = await archived(world.engine, TENANT, id)
    await world.clock.advance(1)
    await world.start("flow", "2", key="k")
    await world.settle()
    world.engine.tunables = Tunables(retention=Retention(archive=False))
    await world.clock.advance(31 * DAY_MS)
    await catch_up(world)
    assert (await retain.run(world.engine)).removed == 1
    assert (await restoring.restore(world.engine, TENANT, first, by="me")).output == LARGE + "1"
