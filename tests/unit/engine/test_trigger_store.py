"""Triggers as they are stored: created once, changed under an ETag, found by every process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.domain.errors import (
    ConflictError,
    InvalidError,
    NotFoundError,
    PreconditionError,
    TooLargeError,
)
from orchestrator.domain.topology import CATALOG
from orchestrator.engine import catalog, trigger_book, trigger_store, triggers
from orchestrator.engine.trigger_book import TriggerBook
from orchestrator.ports import Unavailable
from tests.support.definitions import flow, task
from tests.support.faults import FaultyStore, faulty, times
from tests.support.world import TENANT, World

RAW: dict[str, Any] = {
    "name": "orders",
    "workflow": "flow",
    "match": {"type": "order.placed"},
}
FLOW = flow(a=task("weft.transform"))


@pytest.fixture
async def world(make: Any) -> World:
    return await make()


@pytest.fixture
async def published(world: World) -> World:
    await world.publish(FLOW)
    return world


async def create(world: World, **changes: Any) -> triggers.Stored:
    return await triggers.create(world.engine, TENANT, {**RAW, **changes}, by="ann")


async def known(world: World, engine: Any = None) -> list[str]:
    """The names that a process knows."""
    book = (engine or world.engine).part(TriggerBook)
    return [trigger.name for trigger in await book.of(TENANT)]


async def test_the_same_content_again_is_the_same_trigger(published: World) -> None:
    first = await create(published)
    again = await create(published)
    assert (first.created, again.created) == (True, False)
    assert (
        first.view == again.view == (await triggers.show(published.engine, TENANT, "orders")).view
    )
    assert first.etag == again.etag
    assert first.view.updated_by == "ann"
    with pytest.raises(ConflictError) as caught:
        await create(published, filter="${event.data.x}")
    assert caught.value.code == "TRIGGER_EXISTS"


async def test_paused_is_not_part_of_the_content(published: World) -> None:
    await create(published)
    await triggers.pause(published.engine, TENANT, "orders", True)
    assert not (await create(published)).created
    assert (await triggers.show(published.engine, TENANT, "orders")).view.paused
    put = await triggers.put(published.engine, TENANT, "orders", {**RAW, "description": "x"})
    assert put.view.paused  # left out: stays
    put = await triggers.put(published.engine, TENANT, "orders", {**RAW, "paused": False})
    assert not put.view.paused


async def test_a_put_creates_changes_and_minds_the_etag(published: World) -> None:
    engine = published.engine
    raw = {name: value for name, value in RAW.items() if name != "name"}
    first = await triggers.put(engine, TENANT, "orders", raw)
    assert first.created
    second = await triggers.put(engine, TENANT, "orders", {**raw, "input": 1}, if_match=first.etag)
    assert (second.created, second.view.input) == (False, 1)
    assert second.view.created_at == first.view.created_at
    for call in (
        triggers.put(engine, TENANT, "orders", raw, if_match=first.etag),
        triggers.put(engine, TENANT, "other", raw, if_match="*"),
        triggers.pause(engine, TENANT, "orders", True, if_match=first.etag),
        triggers.delete(engine, TENANT, "orders", if_match=first.etag),
    ):
        with pytest.raises(PreconditionError):
            await call
    same = await triggers.put(engine, TENANT, "orders", {**raw, "input": 1})
    assert same.etag == second.etag
    with pytest.raises(InvalidError) as caught:
        await triggers.put(engine, TENANT, "orders", {**RAW, "name": "other"})
    assert caught.value.details[0].field == "$.name"


async def test_pause_resume_and_delete_are_idempotent_or_say_404(published: World) -> None:
    engine = published.engine
    await create(published)
    etags = {(await triggers.pause(engine, TENANT, "orders", True)).etag for _ in range(2)}
    assert len(etags) == 1
    assert not (await triggers.pause(engine, TENANT, "orders", False)).view.paused
    await triggers.delete(engine, TENANT, "orders")
    for call in (
        triggers.delete(engine, TENANT, "orders"),
        triggers.show(engine, TENANT, "orders"),
        triggers.pause(engine, TENANT, "orders", True),
    ):
        with pytest.raises(NotFoundError):
            await call
    assert await known(published) == []


async def test_what_the_workflow_cannot_take_is_refused_when_knowable(world: World) -> None:
    schema = {"type": "object", "required": ["id", "lines"]}
    await world.publish(flow(a=task("weft.transform"), input_schema=schema))
    cases = {
        "$.workflow": {"workflow": "flaw"},
        "$.input": {"input": {"id": "${event.id}"}},
        "$.name": {"name": "A"},
    }
    for field, change in cases.items():
        with pytest.raises(InvalidError) as caught:
            await create(world, **change)
        assert [detail.field for detail in caught.value.details] == [field]
    await create(world)  # the event's data may fit
    await catalog.archive(world.engine, TENANT, "flow")
    with pytest.raises(InvalidError, match="archived"):
        await create(world, name="other")


async def test_limits(published: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooLargeError):
        await create(published, input="x" * 70_000)
    monkeypatch.setattr(trigger_store, "MAX_TRIGGERS", 2)
    await create(published)
    await create(published, name="b")
    with pytest.raises(ConflictError, match="more are not allowed"):
        await create(published, name="c")
    await create(published)  # it is there
    await triggers.delete(published.engine, TENANT, "b")
    await create(published, name="c")


async def test_lists_page_by_name(published: World) -> None:
    for name in ("c", "a", "b"):
        await create(published, name=name)
    first, after = await triggers.page(published.engine, TENANT, limit=2, after=None)
    rest, end = await triggers.page(published.engine, TENANT, limit=2, after=after)
    assert [one.name for one in first + rest] == ["a", "b", "c"]
    assert end is None
    assert await triggers.page(published.engine, "other", limit=2, after=None) == ([], None)


async def test_every_process_knows_a_change_at_once(
    published: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger_book, "PAGE", 2)
    other = published.another("worker-2")
    for name in ("a", "b", "c", "d"):
        await create(published, name=name)
        assert (await known(published, other))[-1] == name
    await triggers.delete(published.engine, TENANT, "b")
    assert await known(published, other) == ["a", "c", "d"]
    await triggers.pause(published.engine, TENANT, "c", True)
    book = await other.part(TriggerBook).of(TENANT)
    assert [trigger.paused for trigger in book] == [False, True, False]


async def test_unchanged_triggers_are_not_read_again(make: Any) -> None:
    world = await make(wrap_store=FaultyStore)
    await world.publish(FLOW)
    await create(world)
    await known(world)
    faulty(world.engine).calls.clear()
    await known(world)
    await known(world)
    assert faulty(world.engine).calls == ["read_many", "read_many"]


async def test_a_trigger_of_newer_code_is_passed_over(published: World) -> None:
    await create(published)
    await create(published, name="strange")
    doc = await trigger_store.read(published.engine, TENANT, "strange")
    body = {**doc.body, "definition": '{"name": "strange", "colour": "red"}'}
    await published.sqlite.replace(CATALOG, (TENANT,), body)
    assert await known(published) == ["orders"]
    assert published.engine.metrics.value("weft_triggers_unreadable_total") == 1


async def test_competing_changes_are_all_made(published: World) -> None:
    await asyncio.gather(*(create(published, name=f"t{n}") for n in range(10)))
    await asyncio.gather(*(create(published) for _ in range(5)))
    assert len(await known(published)) == 11


async def test_a_lost_answer_is_recognised(make: Any) -> None:
    """The write was applied, its answer lost: the repeat conflicts with itself."""
    world = await make(wrap_store=FaultyStore)
    await world.publish(FLOW)

    async def lossy(call: Any) -> Any:
        faulty(world.engine).after = times(1, lambda: Unavailable("lost"), "batch")
        running = asyncio.ensure_future(call)
        while not running.done():
            await world.clock.advance(1_000)
            await asyncio.sleep(0)
        return await running

    first = await lossy(create(world))
    assert first.created
    put = await lossy(
        triggers.put(world.engine, TENANT, "orders", {**RAW, "input": 1}, if_match=first.etag)
    )
    assert (put.created, put.view.input) == (False, 1)
    await lossy(triggers.delete(world.engine, TENANT, "orders", if_match=put.etag))
    assert await known(world) == []
