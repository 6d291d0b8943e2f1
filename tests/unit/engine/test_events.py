"""Events: at most one execution per trigger and event, however often and wherever it comes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.domain.cloudevents import structured
from orchestrator.domain.errors import ConflictError, UnavailableError
from orchestrator.domain.topology import CATALOG, EXECUTIONS
from orchestrator.engine import catalog, events, letters_act, letters_bulk, letters_list, triggers
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.engine.views_events import EventReceipt
from orchestrator.ports import Query, Unavailable, Where
from tests.support.definitions import flow, task
from tests.support.faults import FaultyStore, times, touching
from tests.support.world import TENANT, World

RAW: dict[str, Any] = {"name": "orders", "workflow": "flow", "match": {"type": "order.placed"}}
EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "1",
    "source": "/shop",
    "type": "order.placed",
    "data": {"total": 5},
}
FLOW = flow(a=task("weft.transform", input="${input}"), output="${tasks.a.output}")


@pytest.fixture
async def world(make: Any) -> World:
    return await ready(await make())


async def ready(made: World) -> World:
    await made.publish(FLOW)
    await trigger(made)
    return made


async def trigger(world: World, **changes: Any) -> None:
    raw = {**RAW, **changes}
    await triggers.put(world.engine, TENANT, raw["name"], raw)


async def send(world: World, engine: Any = None, **changes: Any) -> EventReceipt:
    event = structured({**EVENT, **changes})
    (receipt,) = await events.receive(engine or world.engine, TENANT, [event])
    return receipt


async def executions(world: World) -> list[str]:
    found = await world.sqlite.query(
        EXECUTIONS, Query(where=(Where("type", "=", "execution"),), limit=1_000)
    )
    return [doc.id for doc in found]


async def letters(world: World, **wanted: Any) -> list[Any]:
    found, _ = await letters_list.page(
        world.engine, TENANT, LetterFilter(**wanted), limit=100, after=None
    )
    return found


def counted(world: World) -> dict[str, int]:
    prefix = "weft_events_total{"
    return {
        name.removeprefix(prefix).rstrip("}"): count
        for name, count in world.engine.metrics.counters.items()
        if name.startswith(prefix)
    }


# --- starting -------------------------------------------------------------------------------------


async def test_an_event_starts_what_its_trigger_says(world: World) -> None:
    await trigger(world, input={"n": "${event.data.total}"}, tags={"from": "${event.source}"})
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    receipt = await send(world, traceparent=trace)
    (id,) = receipt.executions
    assert (receipt.id, receipt.source, receipt.unmatched) == ("1", "/shop", False)
    await world.settle()
    view = await world.view(id)
    assert (view.status.value, view.output) == ("COMPLETED", {"n": 5})
    assert (view.started_by, view.tags) == ("trigger:orders", {"from": "/shop"})
    assert view.traceparent == trace
    assert view.event is not None
    assert view.event.model_dump() == {
        "trigger": "orders",
        "id": "1",
        "source": "/shop",
        "type": "order.placed",
    }
    await world.verified(id)


async def test_every_trigger_that_matches_starts_its_own(world: World) -> None:
    await trigger(world, name="second")
    await trigger(world, name="no-match", match={"type": "other"})
    await trigger(world, name="filtered", filter="${event.data.total > 5}")
    await trigger(world, name="paused", paused=True)
    receipt = await send(world)
    assert len(set(receipt.executions)) == 2
    assert len(await executions(world)) == 2
    assert counted(world) == {"started": 2}


async def test_an_event_nobody_wants_is_counted_and_nothing_else(world: World) -> None:
    receipt = await send(world, type="other")
    assert receipt.unmatched
    assert (await executions(world), await letters(world)) == ([], [])
    assert counted(world) == {"unmatched": 1}
    (nobody,) = await events.receive(world.engine, "other-tenant", [structured(EVENT)])
    assert nobody.unmatched


async def test_a_redelivered_event_starts_nothing_new(world: World) -> None:
    first = await send(world)
    await world.settle()
    # Times and extensions are set by whoever forwards an event.
    again = await send(world, time="2027-01-01T00:00:00Z", hop="2")
    assert again == first
    assert await executions(world) == first.executions
    assert counted(world) == {"started": 1, "duplicate": 1}


async def test_ten_thousand_duplicates_are_one_execution(world: World) -> None:
    event = structured(EVENT)
    for _ in range(20):
        receipts = await events.receive(world.engine, TENANT, [event] * 500)
        assert len({receipt.executions[0] for receipt in receipts}) == 1
    assert len(await executions(world)) == 1
    assert counted(world) == {"started": 1, "duplicate": 9_999}


async def test_deliveries_that_race_on_two_processes_start_one(world: World) -> None:
    other = world.another("worker-2")
    for n in range(20):
        one, two = await asyncio.gather(
            send(world, id=str(n)), send(world, engine=other, id=str(n))
        )
        assert one.executions == two.executions
    assert len(await executions(world)) == 20


async def test_the_same_id_of_another_source_or_trigger_is_another_event(world: World) -> None:
    ids = set()
    for source in ("/shop", "/shop/", "urn:x", "https://ü.example/?a=b#c", "a\\b c", "x" * 10_000):
        ids |= set((await send(world, source=source)).executions)
    ids |= set((await send(world, id="i" * 10_000)).executions)
    await trigger(world, name="second")
    ids |= set((await send(world)).executions)
    assert len(ids) == 8
    assert all(id[0] == "e" and len(id) == 32 and id.isalnum() for id in ids)
    await world.settle()
    for id in ids:
        assert (await world.view(id)).status.value == "COMPLETED"


async def test_an_event_id_used_again_with_other_data_is_kept_and_starts_nothing(
    world: World,
) -> None:
    (id,) = (await send(world)).executions
    for _ in range(2):
        receipt = await send(world, data={"total": 6})
        assert (receipt.executions, len(receipt.dead_letters)) == ([], 1)
    (letter,) = await letters(world)
    assert (letter.kind, letter.reason) == ("event", "idReused")
    assert letter.error is not None
    assert letter.error.type == "EVENT_ID_REUSED"
    assert id in letter.error.message
    # Also where the mapping hides the difference.
    await trigger(world, name="blind", input=1)
    await send(world, id="2")
    assert len((await send(world, id="2", data=7)).dead_letters) == 2


async def test_an_event_of_300_kilobytes_is_taken_whole(world: World) -> None:
    data = {"text": "x" * 300_000}
    (id,) = (await send(world, data=data)).executions
    assert world.payloads.data  # not in the document
    await world.settle()
    assert (await world.view(id)).output == data


# --- what a trigger cannot do ---------------------------------------------------------------------


async def test_a_trigger_that_fails_does_not_stop_the_others(world: World) -> None:
    await trigger(world, name="bad-filter", filter="${event.data.total}")
    await trigger(world, name="bad-mapping", input={"x": ["${event.data.nothing}"]})
    for _ in range(3):  # a redelivery adds no letters
        receipt = await send(world)
        assert len(receipt.executions) == 1
        assert len(set(receipt.dead_letters)) == 2
        assert not receipt.unmatched
    found = {letter.trigger: letter for letter in await letters(world, workflow="flow")}
    assert {name: one.reason for name, one in found.items()} == {
        "bad-filter": "filterFailed",
        "bad-mapping": "mappingFailed",
    }
    bad = found["bad-mapping"]
    assert bad.error is not None
    assert (bad.error.field, bad.error.expression) == ("$.input.x[0]", "event.data.nothing")
    assert (bad.execution, bad.attempt, bad.kind) == (None, 0, "event")
    shown = await letters_list.show(world.engine, TENANT, bad.id)
    assert shown.event == EVENT
    assert await letters(world, error_type="EXPRESSION_FAILED") != []


async def test_a_large_event_is_kept_whole(world: World) -> None:
    await trigger(world, filter="${event.data.nothing}")
    data = {"text": "ü" * 100_000}
    (id,) = (await send(world, data=data)).dead_letters
    assert world.payloads.data
    assert (await letters_list.show(world.engine, TENANT, id)).event == {**EVENT, "data": data}


async def test_a_start_that_is_refused_is_kept_with_the_reason(world: World) -> None:
    schema = {"type": "object", "required": ["total", "lines"]}
    await world.publish(flow("strict", a=task("weft.transform"), input_schema=schema))
    await trigger(world, name="strict", workflow="strict", match={"type": "strict"})
    await trigger(world, name="long-tag", match={"type": "tag"}, tags={"t": "${event.data}"})
    assert len((await send(world, type="strict")).dead_letters) == 1
    assert len((await send(world, type="tag", data="x" * 300)).dead_letters) == 1
    await catalog.archive(world.engine, TENANT, "flow")
    assert len((await send(world)).dead_letters) == 1
    found = {one.trigger: one for one in await letters(world)}
    assert {one.reason for one in found.values()} == {"startRefused"}
    errors = {name: one.error for name, one in found.items()}
    assert errors["strict"].type == "INPUT_INVALID"
    assert errors["strict"].causes[0].field == "$.input"
    assert errors["orders"].type == "WORKFLOW_ARCHIVED"
    assert errors["long-tag"].causes[0].type == "TAG_TOO_LONG"
    assert await executions(world) == []


async def test_a_retry_starts_the_event_once_the_trigger_is_mended(world: World) -> None:
    await trigger(world, input="${event.data.nothing}")
    (id,) = (await send(world)).dead_letters
    retry = Wish(action=Action.RETRY, by="ann", reason="mended")
    with pytest.raises(ConflictError, match=r"fails again, \$\.input: .*discard") as caught:
        await letters_act.act(world.engine, TENANT, id, retry)
    assert caught.value.code == "CANNOT_RETRY"
    await trigger(world, input="${event.data.total}")
    for _ in range(2):  # pressed twice
        letter = await letters_act.act(world.engine, TENANT, id, retry)
        assert (letter.status.value, letter.resolved.by) == ("RETRIED", "ann")
    (execution,) = await executions(world)
    assert letter.execution == execution
    await world.settle()
    assert (await world.view(execution)).output == 5
    assert (await send(world)).executions == [execution]  # a late redelivery


async def test_what_an_event_letter_cannot_is_409(world: World) -> None:
    await trigger(world, filter="${event.data.nothing}")
    (id,) = (await send(world)).dead_letters

    async def refused(**wish: Any) -> str:
        with pytest.raises(ConflictError) as caught:
            await letters_act.act(world.engine, TENANT, id, Wish(by="ann", **wish))
        return caught.value.code

    assert await refused(action=Action.SKIP, value=1) == "CANNOT_SKIP"
    assert await refused(action=Action.FAIL) == "CANNOT_FAIL"
    assert await refused(action=Action.RETRY, edited=True, value=1) == "CANNOT_EDIT"
    for changes in ({"filter": "${false}"}, {"match": {"type": "x"}}, {"paused": True}):
        await trigger(world, **changes)
        assert await refused(action=Action.RETRY) == "CANNOT_RETRY"
    await triggers.delete(world.engine, TENANT, "orders")
    assert await refused(action=Action.RETRY) == "CANNOT_RETRY"
    done = await letters_act.act(world.engine, TENANT, id, Wish(action=Action.DISCARD, by="ann"))
    assert done.status.value == "DISCARDED"
    assert await executions(world) == []


async def test_bulk_retries_what_can_be_and_lists_the_rest(world: World) -> None:
    await trigger(world, filter="${event.data.ok}")
    for n in range(6):
        await send(world, id=str(n), data={"ok": n % 2} if n < 4 else {"ok": "x"})
    await trigger(world, filter="${event.data.ok == 1}")
    result = await letters_bulk.bulk(
        world.engine, TENANT, LetterFilter(), Wish(action=Action.RETRY, by="ann")
    )
    assert (result.done, len(result.refused)) == (2, 4)
    assert {one.code for one in result.refused} == {"CANNOT_RETRY"}
    assert len(await executions(world)) == 2


# --- crashes and changes in between ---------------------------------------------------------------


async def faulty(make: Any) -> tuple[World, FaultyStore]:
    stores: list[FaultyStore] = []

    def wrap(store: Any) -> Any:
        stores.append(FaultyStore(store))
        return stores[-1]

    world = await ready(await make(wrap_store=wrap))
    return world, stores[0]


class Crash(BaseException):
    """The process died here."""


async def test_a_crash_between_start_and_answer_loses_nothing_and_doubles_nothing(
    make: Any,
) -> None:
    world, store = await faulty(make)
    await trigger(world, name="second")

    def crash(name: str, args: Any) -> Any:
        if name == "batch" and touching("execution", args[2]):
            store.after = lambda name, args: None
            raise Crash
        return None

    store.after = crash
    with pytest.raises(Crash):
        await send(world)
    assert len(await executions(world)) == 1
    receipt = await send(world, engine=world.another("worker-2"))
    assert sorted(receipt.executions) == sorted(await executions(world))
    assert len(receipt.executions) == 2


async def test_a_crash_between_retry_and_mark_starts_nothing_twice(make: Any) -> None:
    world, store = await faulty(make)
    await trigger(world, input="${event.data.nothing}")
    (id,) = (await send(world)).dead_letters
    await trigger(world)

    def crash(name: str, args: Any) -> Any:
        if name == "batch" and touching("deadletter", args[2]):
            store.before = lambda name, args: None
            raise Crash
        return None

    store.before = crash
    wish = Wish(action=Action.RETRY, by="ann")
    with pytest.raises(Crash):
        await letters_act.act(world.engine, TENANT, id, wish)
    assert len(await executions(world)) == 1
    letter = await letters_act.act(world.engine, TENANT, id, wish)
    assert [letter.execution] == await executions(world)


async def test_a_lost_answer_of_the_start_is_not_another_event(make: Any) -> None:
    world, store = await faulty(make)
    store.after = times(1, lambda: Unavailable("lost"), "batch")
    running = asyncio.ensure_future(send(world))
    while not running.done():
        await world.clock.advance(1_000)
        await asyncio.sleep(0)
    assert (await running).executions == await executions(world)


async def test_a_trigger_changed_in_between_does_not_start_the_event_again(world: World) -> None:
    first = await send(world)
    changes: list[dict[str, Any]] = [
        {"input": "${event.data.total}"},
        {"filter": "${event.data.nothing}"},
        {"input": "${event.data.nothing}"},
        {"tags": {"x": "y"}},
    ]
    for change in changes:
        await trigger(world, **change)
        assert (await send(world)).executions == first.executions
    await triggers.delete(world.engine, TENANT, "orders")
    await trigger(world)
    assert (await send(world)).executions == first.executions
    assert (await executions(world), await letters(world)) == (first.executions, [])


async def test_a_trigger_changed_while_two_deliveries_race_starts_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both looked before either had started; the later one maps otherwise."""
    looks = events._exists
    first = asyncio.Event()
    go = asyncio.Event()

    async def look(engine: Any, *args: Any) -> bool:
        found = await looks(engine, *args)
        if not first.is_set():
            first.set()
            await go.wait()
        return found

    monkeypatch.setattr(events, "_exists", look)
    slow = asyncio.ensure_future(send(world))
    await first.wait()
    await trigger(world, input="${event.data.total}")
    fast = await send(world)
    go.set()
    assert (await slow).executions == fast.executions == await executions(world)


async def test_a_store_that_is_away_is_an_error_and_the_same_call_does_the_rest(
    make: Any,
) -> None:
    world, store = await faulty(make)
    await world.engine.store.read_many(CATALOG, (TENANT,), ["x"])
    store.before = lambda name, args: Unavailable("down") if name == "batch" else None
    batch = [structured({**EVENT, "id": str(n)}) for n in range(20)]
    running = asyncio.ensure_future(events.receive(world.engine, TENANT, batch))
    while not running.done():
        await world.clock.advance(1_000)
        await asyncio.sleep(0)
    with pytest.raises((Unavailable, UnavailableError)):
        await running
    store.before = lambda name, args: None
    receipts = await events.receive(world.engine, TENANT, batch)
    assert len({receipt.executions[0] for receipt in receipts}) == 20
    assert len(await executions(world)) == 20
