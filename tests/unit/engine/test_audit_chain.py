"""The audit's chain: whatever is done to it behind its back is found, at the first bad record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.domain import audit_chain
from orchestrator.domain.topology import AUDIT
from orchestrator.engine import audit, audit_reads
from orchestrator.engine.audit_reads import AuditFilter
from orchestrator.engine.core import Engine, Tunables
from orchestrator.ports import NotFound, Query, Throttled, Unavailable
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld

DAY_MS = 86_400_000


async def note(engine: Engine, action: str = "cancel", **more: Any) -> None:
    await audit.record(engine, TENANT, **{"action": action, "execution": "e1", "by": "eve", **more})


async def stored(world: World) -> list[dict[str, Any]]:
    found = await world.sqlite.query(AUDIT, Query(partition=(TENANT,), order_by="n", limit=10_000))
    return [doc.body for doc in found if doc.body["type"] == "audit"]


async def check(world: World, **options: Any) -> tuple[int, str] | None:
    """The finding, if there is any."""
    found = (await audit_reads.verify(world.engine, TENANT, **options)).finding
    return None if found is None else (found.n, found.fault.value)


async def chain(make: MakeWorld, length: int = 5, days: int = 0) -> World:
    world = await make(tunables=Tunables(audit_days=days))
    for number in range(length):
        await note(world.engine, reason=f"reason {number}")
    assert await check(world) is None
    return world


async def overwrite(world: World, body: dict[str, Any]) -> None:
    await world.sqlite.upsert(AUDIT, (TENANT,), body)


async def test_records_are_numbered_and_linked_without_gaps(make: MakeWorld) -> None:
    world = await chain(make)
    records = await stored(world)
    assert [one["n"] for one in records] == [1, 2, 3, 4, 5]
    assert [one["prev"] for one in records] == ["", *(one["hash"] for one in records[:-1])]
    found = await audit_reads.verify(world.engine, TENANT)
    assert (found.checked, found.first, found.last, found.next) == (5, 1, 5, None)
    assert (found.head, found.head_hash) == (5, records[-1]["hash"])


async def test_no_audit_at_all_is_whole(make: MakeWorld) -> None:
    world = await make()
    assert await check(world) is None
    assert await check(world, known=(3, "a" * 64)) == (1, "MISSING")


CHANGES: dict[str, Any] = {
    "at": 1,
    "action": "resume",
    "resource": "execution:e2",
    "execution": "e2",
    "by": "mallory",
    "reason": "",
    "prev": "0" * 64,
    "hash": "0" * 64,
    "task": "added",
    "v": 0,
}


@pytest.mark.parametrize("field", CHANGES)
@pytest.mark.parametrize("n", [1, 3, 5])
async def test_a_change_of_any_field_of_any_record_is_found(
    make: MakeWorld, field: str, n: int
) -> None:
    world = await chain(make)
    record = (await stored(world))[n - 1]
    await overwrite(world, {**record, field: CHANGES[field]})
    assert await check(world) == (n, "ALTERED")


@pytest.mark.parametrize("n", [1, 3, 5])
async def test_a_changed_record_with_a_new_hash_is_found_by_its_neighbour(
    make: MakeWorld, n: int
) -> None:
    world = await chain(make)
    record = {**(await stored(world))[n - 1], "by": "mallory"}
    await overwrite(world, {**record, "hash": audit_chain.hash_of(record)})
    assert await check(world) == (n, "BROKEN")


@pytest.mark.parametrize("n", [1, 3, 5])
async def test_a_removed_record_is_found(make: MakeWorld, n: int) -> None:
    world = await chain(make)
    await world.sqlite.delete(AUDIT, (TENANT,), (await stored(world))[n - 1]["id"])
    assert await check(world) == (n, "MISSING")


async def test_reordered_records_are_found(make: MakeWorld) -> None:
    world = await chain(make)
    second, third = (await stored(world))[1:3]
    await overwrite(world, {**second, "n": 3})
    await overwrite(world, {**third, "n": 2})
    assert await check(world) == (2, "ALTERED")


@pytest.mark.parametrize(("n", "bad"), [(3, 3), (6, 6), (0, 0), (2.5, 2)])
async def test_an_inserted_record_is_found(make: MakeWorld, n: float, bad: int) -> None:
    world = await chain(make)
    last = (await stored(world))[-1]
    extra = {**last, "id": "zz", "n": n, "prev": last["hash"]}
    await overwrite(world, {**extra, "hash": audit_chain.hash_of(extra)})
    assert await check(world) == (bad, "INSERTED")


async def test_a_removed_head_is_found(make: MakeWorld) -> None:
    world = await chain(make)
    await world.sqlite.delete(AUDIT, (TENANT,), "head")
    assert await check(world) == (1, "INSERTED")


async def test_a_chain_that_was_cut_together_with_its_head_needs_a_hash_kept_elsewhere(
    make: MakeWorld,
) -> None:
    world = await chain(make)
    records = await stored(world)
    kept = (5, records[4]["hash"])
    assert await check(world, known=kept) is None
    head = await world.sqlite.read(AUDIT, (TENANT,), "head")
    await world.sqlite.delete(AUDIT, (TENANT,), records[4]["id"])
    await overwrite(world, {**head.body, "n": 4, "hash": records[3]["hash"]})
    assert await check(world) is None
    assert await check(world, known=kept) == (5, "MISSING")
    await note(world.engine, "another")
    assert await check(world, known=kept) == (5, "BROKEN")


async def test_a_long_chain_is_checked_in_parts(make: MakeWorld) -> None:
    world = await chain(make, 10)
    starts, start = [], 1
    while start is not None:
        starts.append(start)
        part = await audit_reads.verify(world.engine, TENANT, start=start, limit=3)
        assert part.ok
        assert part.checked == min(3, 11 - start), start
        start = part.next
    assert starts == [1, 4, 7, 10]


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("n", range(1, 8))
async def test_no_fault_hides_between_two_parts(make: MakeWorld, n: int, limit: int) -> None:
    world = await chain(make, 7)
    record = {**(await stored(world))[n - 1], "by": "mallory"}
    await overwrite(world, {**record, "hash": audit_chain.hash_of(record)})
    start: int | None = 1
    while start is not None:
        part = await audit_reads.verify(world.engine, TENANT, start=start, limit=limit)
        start = part.next
    assert part.finding is not None
    assert part.finding.n == n


async def test_what_has_expired_may_be_missing_at_the_beginning(make: MakeWorld) -> None:
    world = await chain(make, 3, days=30)
    await world.clock.advance(20 * DAY_MS)
    await note(world.engine, "later")
    await world.clock.advance(11 * DAY_MS)
    assert [one["n"] for one in await stored(world)] == [4]
    found = await audit_reads.verify(world.engine, TENANT)
    assert (found.ok, found.first, found.checked) == (True, 4, 1)
    await world.clock.advance(30 * DAY_MS)
    assert await stored(world) == []
    assert await check(world) is None
    await note(world.engine, "after a long silence")
    assert [one["n"] for one in await stored(world)] == [5]
    assert await check(world) is None


async def test_what_has_not_expired_may_not_be_missing(make: MakeWorld) -> None:
    world = await chain(make, 3, days=30)
    await world.clock.advance(20 * DAY_MS)
    first, second, _ = await stored(world)
    await world.sqlite.delete(AUDIT, (TENANT,), first["id"])
    assert await check(world) == (1, "MISSING")
    await overwrite(world, first)
    await world.sqlite.delete(AUDIT, (TENANT,), second["id"])
    assert await check(world) == (2, "MISSING")


async def test_a_shorter_retention_lets_no_later_record_expire_first(make: MakeWorld) -> None:
    world = await chain(make, 2, days=30)
    world.tunables = Tunables(audit_days=1)
    world.engine = world.another("short")
    await note(world.engine, "short")
    await world.clock.advance(2 * DAY_MS)
    assert [one["n"] for one in await stored(world)] == [1, 2, 3]
    await world.clock.advance(28 * DAY_MS)
    assert await stored(world) == []
    assert await check(world) is None


async def test_writers_of_two_processes_make_one_chain(make: MakeWorld) -> None:
    world = await make()
    engines = [world.engine, world.another("second"), world.another("third")]
    writing = [
        asyncio.ensure_future(note(engine, f"{at}.{number}"))
        for number in range(80)
        for at, engine in enumerate(engines)
    ]
    for _ in range(400):
        await quiesce()
        if all(one.done() for one in writing):
            break
        await world.clock.advance(10)
    await asyncio.gather(*writing)
    records = await stored(world)
    assert [one["n"] for one in records] == list(range(1, 241))
    assert len({one["action"] for one in records}) == 240
    assert await check(world) is None
    assert world.engine.metrics.value("weft_audit_failures_total") == 0


def fail_once(
    world: World, raised: Callable[[], BaseException], *, before: bool, good: int = 0
) -> None:
    """A batch of the audit raises, after `good` others; before or after it is applied."""
    batch, left = world.sqlite.batch, iter([False] * good + [True])

    async def failing(name: str, *args: Any) -> Any:
        bad = name == AUDIT and next(left, False)
        if bad and before:
            raise raised()
        result = await batch(name, *args)
        if bad:
            raise raised()
        return result

    world.sqlite.batch = failing  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("kind", "before"), [(Throttled, True), (Unavailable, True), (Unavailable, False)]
)
async def test_a_record_whose_write_is_unclear_is_chained_once(
    make: MakeWorld, kind: type[Exception], before: bool
) -> None:
    world = await chain(make, 2)
    fail_once(world, lambda: kind("not now"), before=before)
    writing = [asyncio.ensure_future(note(world.engine, f"new {at}")) for at in range(3)]
    await quiesce()
    await world.clock.advance(5_000)
    await asyncio.gather(*writing)
    assert [one["n"] for one in await stored(world)] == [1, 2, 3, 4, 5]
    assert await check(world) is None


@pytest.mark.parametrize("before", [True, False])
async def test_who_waits_behind_a_writer_that_was_stopped_is_written_once(
    make: MakeWorld, before: bool
) -> None:
    world = await make()
    fail_once(world, asyncio.CancelledError, before=before, good=1)
    writing = [asyncio.ensure_future(note(world.engine, f"new {at}")) for at in range(4)]
    done = await asyncio.gather(*writing, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in done] == [False, True, False, False]
    actions = [one["action"] for one in await stored(world)]
    # The first was alone; the second wrote for the others, too.
    assert actions == ["new 0", *([] if before else ["new 1"]), "new 2", "new 3"]
    assert await check(world) is None


async def test_a_record_with_an_id_of_its_own_is_chained_once(make: MakeWorld) -> None:
    world = await make()
    for _ in range(2):
        await note(world.engine, "replay", id="replay:x")
    await asyncio.gather(*(note(world.engine, "replay", id="replay:y") for _ in range(3)))
    await note(world.engine, "last")
    assert [one["id"] for one in await stored(world)][:2] == ["replay:x", "replay:y"]
    assert [one["n"] for one in await stored(world)] == [1, 2, 3]
    assert await check(world) is None


async def test_a_store_that_is_away_is_not_waited_for_by_one_after_the_other(
    make: MakeWorld,
) -> None:
    world = await make()

    async def away(name: str, *args: Any) -> Any:
        raise Unavailable("down")

    batch, world.sqlite.batch = world.sqlite.batch, away  # type: ignore[method-assign]
    began = world.clock.now()
    writing = [asyncio.ensure_future(note(world.engine)) for _ in range(10)]
    while not all(one.done() for one in writing):
        await quiesce()
        await world.clock.advance(1_000)
    # What was being written, then all that had come meanwhile.
    assert world.clock.now() - began <= 2 * world.tunables.throttle_budget_ms
    assert world.engine.metrics.value("weft_audit_failures_total") == 10
    world.sqlite.batch = batch  # type: ignore[method-assign]
    await note(world.engine)
    assert [one["n"] for one in await stored(world)] == [1]


async def test_a_head_of_newer_code_is_left_alone(make: MakeWorld) -> None:
    world = await chain(make, 1)
    head = await world.sqlite.read(AUDIT, (TENANT,), "head")
    await overwrite(world, {**head.body, "v": 2})
    await note(world.engine)
    assert world.engine.metrics.value("weft_audit_failures_total") == 1
    assert len(await stored(world)) == 1


async def test_the_audit_is_listed_newest_first_and_by_filters(make: MakeWorld) -> None:
    world = await make()
    await note(world.engine, "pause")
    await world.clock.advance(1_000)
    middle = world.clock.now()
    await note(world.engine, "cancel", by="ann")
    await world.clock.advance(1_000)
    await note(world.engine, "trigger.put", execution="", resource="trigger:x")

    async def found(limit: int = 10, after: Any = None, **wanted: Any) -> tuple[list[int], Any]:
        items, more = await audit_reads.page(
            world.engine, TENANT, AuditFilter(**wanted), limit=limit, after=after
        )
        return [one.n for one in items], more

    assert await found() == ([3, 2, 1], None)
    assert await found(by="eve") == ([3, 1], None)
    assert await found(action="cancel") == ([2], None)
    assert await found(resource="trigger:x") == ([3], None)
    assert await found(execution="e1") == ([2, 1], None)
    assert await found(since=middle) == ([3, 2], None)
    assert await found(until=middle) == ([2, 1], None)
    first, more = await found(limit=2)
    assert (first, await found(limit=2, after=more)) == ([3, 2], ([1], None))


async def test_another_tenant_has_a_chain_of_its_own(make: MakeWorld) -> None:
    world = await chain(make, 2)
    await audit.record(world.engine, "other", action="pause", execution="x", by="eve")
    items, _ = await audit_reads.page(world.engine, "other", AuditFilter(), limit=9, after=None)
    assert [(one.n, one.action) for one in items] == [(1, "pause")]
    with pytest.raises(NotFound):
        await world.sqlite.read(AUDIT, ("third",), "head")
