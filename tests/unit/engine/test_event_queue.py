"""Events that come as messages: nothing of them may be lost, whatever they are."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from orchestrator.domain.tenant_limits import TenantLimits
from orchestrator.domain.topology import EVENTS_QUEUE, EXECUTIONS
from orchestrator.engine import (
    catalog,
    event_queue,
    handback,
    letters_act,
    letters_bulk,
    letters_list,
    triggers,
)
from orchestrator.engine.core import Tunables
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.ports import OutMessage, Query, Unavailable, Where
from tests.support.definitions import flow, task
from tests.support.faults import FaultyStore
from tests.support.world import TENANT, World

EVENT: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": 5}
GRID = {"id": "1", "topic": "/s", "subject": "", "eventType": "t", "data": 5}


async def ready(world: World) -> World:
    await world.publish(flow(a=task("weft.transform", input="${input}")))
    raw = {"name": "any", "workflow": "flow", "match": {"type": "t"}}
    await triggers.create(world.engine, TENANT, raw)
    return world


@pytest.fixture
async def world(make: Any) -> World:
    return await ready(await make())


async def handle(world: World, body: Any, **more: Any) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    await event_queue.handle(world.engine, TENANT, Incoming(body=data, message_id="m", **more))


async def executions(world: World) -> list[str]:
    found = await world.sqlite.query(EXECUTIONS, Query(where=(Where("type", "=", "execution"),)))
    return [doc.id for doc in found]


async def letters(world: World) -> list[Any]:
    found, _ = await letters_list.page(world.engine, TENANT, LetterFilter(), limit=100, after=None)
    return [await letters_list.show(world.engine, TENANT, letter.id) for letter in found]


async def test_a_message_on_the_queue_starts_the_execution(world: World) -> None:
    body = json.dumps(EVENT).encode()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await world.transport.send(
        [
            OutMessage(
                queue=EVENTS_QUEUE, body=body, message_id="x", properties={"traceparent": trace}
            )
        ]
    )
    await world.settle()
    (id,) = await executions(world)
    view = await world.view(id)
    assert (view.status.value, view.input, view.traceparent) == ("COMPLETED", 5, trace)


async def test_all_forms_of_one_event_are_one_execution(world: World) -> None:
    names = ("specversion", "id", "source", "type")
    properties = {f"cloudEvents:{name}": EVENT[name] for name in names}
    await handle(world, EVENT)
    await handle(world, [EVENT, EVENT])
    await handle(world, b"5", properties=properties, content_type="application/json")
    assert len(await executions(world)) == 1
    # Event Grid's schema has an empty subject, which is none.
    await handle(world, GRID)
    assert len(await executions(world)) == 1
    assert await letters(world) == []


async def test_an_event_cannot_name_another_tenant(world: World) -> None:
    """Whose it is says the setting of who may send, never the event or the message."""
    raw = {"name": "any", "workflow": "flow", "match": {"type": "t"}}
    other = "other"
    await catalog.publish(world.engine, other, flow(a=task("weft.transform", input="${input}")))
    await triggers.create(world.engine, other, raw)
    claims = {"tenantid": other, "tenant": other, "subject": other, "weftevents": other}
    await handle(world, EVENT | claims, properties={"tenantId": other, "X-Weft-Tenant": other})
    await event_queue.take(world.engine, TENANT, GRID | {"id": "2", "topic": f"/tenants/{other}"})
    found = await world.sqlite.query(EXECUTIONS, Query(where=(Where("type", "=", "execution"),)))
    assert [doc.body["tenantId"] for doc in found] == [TENANT, TENANT]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"\xff\xfe", "$"),
        (b"{", "$"),
        (b"", "$"),
        (b'{"id": "1", "id": "2"}', "$.id"),
        ({**EVENT, "specversion": "2.0"}, "$.specversion"),
        ("text", "$"),
    ],
)
async def test_what_is_no_event_is_kept_for_its_tenant_and_can_only_be_discarded(
    world: World, body: Any, place: str
) -> None:
    for _ in range(2):
        await handle(world, body)
    (letter,) = await letters(world)
    assert (letter.kind, letter.reason, letter.event) == ("event", "unreadable", None)
    assert letter.message is not None
    assert letter.error is not None
    assert letter.error.type == "INVALID_EVENT"
    assert place in [cause.field for cause in letter.error.causes]
    with pytest.raises(Exception, match="send a corrected one"):
        await letters_act.act(world.engine, TENANT, letter.id, Wish(action=Action.RETRY, by="ann"))
    done = await letters_act.act(
        world.engine, TENANT, letter.id, Wish(action=Action.DISCARD, by="ann")
    )
    assert done.status.value == "DISCARDED"


async def test_of_a_batch_the_good_are_taken_and_each_bad_one_is_kept(world: World) -> None:
    await handle(world, [{**EVENT, "id": "a"}, {}, {**EVENT, "id": "b"}, 7])
    assert len(await executions(world)) == 2
    assert len(await letters(world)) == 2
    assert world.engine.metrics.value("weft_events_total", "invalid") == 2


async def test_while_the_store_is_away_the_message_is_sent_again_later(make: Any) -> None:
    stores: list[FaultyStore] = []

    def wrap(store: Any) -> Any:
        stores.append(FaultyStore(store))
        return stores[-1]

    world = await ready(await make(wrap_store=wrap))

    async def away(**more: Any) -> Any:
        stores[0].before = lambda name, args: Unavailable("down")
        running = asyncio.ensure_future(handle(world, EVENT, **more))
        while not running.done():
            await world.clock.advance(1_000)
            await asyncio.sleep(0)
        stores[0].before = lambda name, args: None
        return await running

    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await away(properties={"traceparent": trace, "hops": "3"})
    (later,) = world.transport.messages
    assert later.due_at is not None
    assert later.due_at > world.clock.now()
    assert later.properties == {"traceparent": trace, "hops": "4"}
    await world.run_until_quiet()
    assert len(await executions(world)) == 1
    with pytest.raises(Unavailable):  # the host abandons it: the broker counts now
        await away(properties={"hops": str(handback.MAX_HOPS)})
    assert world.transport.messages == []


async def test_what_the_broker_gave_up_is_kept_and_can_be_taken_in(world: World) -> None:
    properties = {"DeadLetterReason": "MaxDeliveryCountExceeded"}
    body = json.dumps([EVENT, {}]).encode()
    for _ in range(2):
        incoming = Incoming(body=body, message_id="m", properties=properties)
        await event_queue.capture_dead(world.engine, TENANT, incoming)
    found = {letter.event is not None: letter for letter in await letters(world)}
    assert len(found) == 2
    assert await executions(world) == []
    kept = found[True]
    assert (kept.event, kept.trigger) == (EVENT, None)
    assert kept.reason == "MaxDeliveryCountExceeded (events/$DeadLetterQueue)"
    done = await letters_act.act(world.engine, TENANT, kept.id, Wish(action=Action.RETRY, by="ann"))
    assert [done.execution] == await executions(world)


async def test_an_event_grid_event_is_taken_and_one_that_is_none_is_kept(world: World) -> None:
    await event_queue.take(world.engine, TENANT, EVENT)
    await event_queue.take(world.engine, TENANT, {**GRID})
    assert len(await executions(world)) == 1
    bad: list[Any] = [{**GRID, "topic": None}, {**EVENT, "data": float("nan")}, {"a": 1}]
    for one in bad:
        await event_queue.take(world.engine, TENANT, one)
    assert len(await executions(world)) == 1
    assert {letter.reason for letter in await letters(world)} == {"unreadable"}
    assert len(await letters(world)) == 3


async def test_events_above_a_limit_come_again_until_they_are_admitted(make: Any) -> None:
    """However long that takes: a limit is no reason to lose an event or to call it dead."""
    limits = TenantLimits(starts_per_second=1, starts_burst=1)
    world = await ready(await make(tunables=Tunables(limits=limits)))
    batch = [{**EVENT, "id": str(n)} for n in range(3)]
    late = {handback.HOPS: str(handback.MAX_HOPS)}
    await handle(world, batch, properties=late)
    (again,) = [one for one in world.transport.messages if one.queue == EVENTS_QUEUE]
    assert again.properties[handback.HOPS] == str(handback.MAX_HOPS)
    assert again.due_at is not None
    assert again.due_at > world.clock.now()
    await world.run_until_quiet()
    assert len(await executions(world)) == 3
    assert await letters(world) == []
    assert world.engine.metrics.counters["weft_events_total{postponed}"] == 2


async def test_dead_events_above_a_limit_are_named_and_stay_open(make: Any) -> None:
    limits = TenantLimits(starts_per_second=0.01, starts_burst=1)
    world = await ready(await make(tunables=Tunables(limits=limits)))
    for n in range(3):
        body = json.dumps({**EVENT, "id": str(n)}).encode()
        await event_queue.capture_dead(
            world.engine, TENANT, Incoming(body=body, message_id=f"m{n}")
        )
    wish = Wish(action=Action.RETRY, by="ann")
    found = await letters_bulk.bulk(world.engine, TENANT, LetterFilter(), wish, limit=100)
    assert (found.done, [one.code for one in found.refused]) == (1, ["LIMIT_EXCEEDED"] * 2)
    assert len(await executions(world)) == 1
    assert sorted(one.status.value for one in await letters(world)) == ["OPEN", "OPEN", "RETRIED"]
