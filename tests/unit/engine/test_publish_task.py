"""`publish` tasks: an event is handed over at least once, always under the same id."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.errors import InvalidError
from orchestrator.domain.topology import EVENTS_QUEUE
from orchestrator.engine import letters_act, letters_list
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.engine.publish import targets
from orchestrator.ports import OutMessage, TransportError
from orchestrator.ports_events import EventRefused
from tests.support.definitions import flow, retry
from tests.support.world import TENANT, World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    opened = await World(tmp_path).open()
    yield opened
    await opened.close()


class FakeSink:
    """Targets in memory; `errors` are raised first, one per call."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)
        self.published: list[tuple[str, dict[str, Any], str]] = []
        self.errors: list[Exception] = []
        self.lose_answers = 0

    def targets(self) -> frozenset[str]:
        return self.names

    async def publish(self, target: str, event: bytes, event_id: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.published.append((target, json.loads(event), event_id))
        if self.lose_answers:
            self.lose_answers -= 1
            raise TransportError("the answer was lost")

    async def close(self) -> None:
        """Nothing to release."""


def announce(event: Any, **more: Any) -> dict[str, Any]:
    return flow(
        announce={"type": "publish", "event": event, "retry": retry(3), **more},
        output="${tasks.announce.output}",
    )


EVENT = {
    "type": "order.shipped",
    "subject": "order-${input.id}",
    "data": {"id": "${input.id}", "big": "${input.big}"},
}


async def run(world: World, definition: dict[str, Any], given: Any = None) -> str:
    await world.publish(definition)
    execution = (await world.start("flow", given)).id
    await world.run_until_quiet()
    return execution


def sent(world: World) -> list[OutMessage]:
    return [message for message in world.transport.sent if message.queue == EVENTS_QUEUE]


async def test_an_event_without_a_target_goes_to_the_platforms_own_queue(world: World) -> None:
    execution = await run(world, announce(EVENT), {"id": 7, "big": 2**60})
    [message] = sent(world)
    event = json.loads(message.body)
    time = event.pop("time")
    assert time.startswith("2027-01-15T08:00:00")
    assert event == {
        "specversion": "1.0",
        "id": f"{execution}:announce",
        "source": f"/weft/{TENANT}/flow",
        "type": "order.shipped",
        "subject": "order-7",
        "datacontenttype": "application/json",
        "data": {"id": 7, "big": 2**60},
    }
    assert message.content_type == "application/cloudevents+json"
    assert message.properties["tenant"] == TENANT
    assert (await world.view(execution)).output == {
        "id": f"{execution}:announce",
        "source": f"/weft/{TENANT}/flow",
        "type": "order.shipped",
        "to": "events",
    }
    await world.verified(execution)


async def test_a_named_target_gets_the_event_and_the_own_queue_does_not(world: World) -> None:
    sink = world.engine.sink = FakeSink("orders")
    await run(world, announce({"type": "t", "source": "/shop"}, to="orders"))
    [(target, event, event_id)] = sink.published
    assert (target, event["source"], event["id"]) == ("orders", "/shop", event_id)
    assert "data" not in event
    assert sent(world) == []


async def test_without_a_sink_a_named_target_ends_in_the_own_queue_under_its_name(
    world: World,
) -> None:
    world.engine.event_targets = frozenset({"orders"})
    await run(world, announce({"type": "t"}, to="orders"))
    [message] = sent(world)
    assert json.loads(message.body)["wefttarget"] == "orders"


async def test_a_lost_answer_publishes_the_same_event_again(world: World) -> None:
    sink = world.engine.sink = FakeSink("orders")
    sink.lose_answers = 1
    execution = await run(world, announce({"type": "t"}, to="orders"))
    assert [event_id for _, _, event_id in sink.published] == [f"{execution}:announce"] * 2
    assert (await world.view(execution)).status == "COMPLETED"


async def test_a_target_that_is_down_is_tried_again_and_then_a_dead_letter(world: World) -> None:
    sink = world.engine.sink = FakeSink("orders")
    sink.errors = [TransportError("down")] * 3
    execution = await run(world, announce({"type": "t"}, to="orders"))
    assert (await world.statuses(execution)) == {"announce": "DEAD_LETTERED"}
    found, _ = await letters_list.find(
        world.engine, TENANT, LetterFilter(execution=execution), limit=10, after=None
    )
    [letter] = found
    assert letter.body["errorType"] == "PUBLISH_FAILED"
    wish = Wish(action=Action.RETRY, by="ann", reason="it is up again")
    await letters_act.act(world.engine, TENANT, letters_list.public_id(letter.body), wish)
    await world.run_until_quiet()
    assert (await world.view(execution)).status == "COMPLETED"
    assert [event_id for _, _, event_id in sink.published] == [f"{execution}:announce"]


async def test_a_refused_event_is_not_tried_again(world: World) -> None:
    sink = world.engine.sink = FakeSink("orders")
    sink.errors = [EventRefused("Event Grid answered 413")]
    execution = await run(world, announce({"type": "t"}, to="orders"))
    found, _ = await letters_list.find(
        world.engine, TENANT, LetterFilter(execution=execution), limit=10, after=None
    )
    [letter] = found
    assert (letter.body["errorType"], letter.body["attempt"]) == ("EVENT_REFUSED", 1)
    assert "413" in letter.body["failure"]["message"]


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"type": "${input.nothing}"}, "event.type"),
        ({"type": "${input.number}"}, "event.type"),
        ({"type": "t", "source": "${input.number}"}, "event.source"),
        ({"type": "t", "subject": "a\u0000b"}, "event.subject"),
        # What the platform's own queue would not take in, either.
        ({"type": "${input.blank}"}, "event.type"),
        ({"type": "t", "source": "${input.blank}"}, "event.source"),
        ({"type": "t", "subject": "a\u0085b"}, "event.subject"),
        ({"type": ""}, "event.type"),
    ],
)
async def test_what_is_no_event_fails_at_once_and_names_the_field(
    world: World, event: Any, field: str
) -> None:
    if event["type"] == "":
        with pytest.raises(InvalidError):
            await world.publish(announce(event))
        return
    given = {"nothing": None, "number": 7, "blank": "  "}
    execution = await run(world, announce(event), given)
    view = await world.view(execution)
    assert view.error is not None
    assert (view.error.type, view.error.field) == ("EVENT_INVALID", field)
    assert sent(world) == []


async def test_an_event_of_over_a_message_says_so(world: World) -> None:
    from orchestrator.adapters.message_rules import check

    real = world.transport.send

    async def send(messages: list[OutMessage]) -> None:
        for message in messages:
            check(message, {message.queue})
        await real(messages)

    world.transport.send = send  # type: ignore[method-assign,assignment]
    execution = await run(world, announce(EVENT), {"id": 1, "big": "x" * 300_000})
    error = (await world.view(execution)).error
    assert error is not None
    assert error.type == "PAYLOAD_TOO_LARGE"
    assert "x" * 100 not in error.message


async def test_an_unknown_target_is_refused_when_the_workflow_is_published(world: World) -> None:
    world.engine.sink = FakeSink("orders", "mail")
    assert targets(world.engine) == {"events", "orders", "mail"}
    with pytest.raises(InvalidError) as refused:
        await world.publish(announce({"type": "t"}, to="order"))
    [problem] = refused.value.details
    assert (problem.field, problem.code) == ("$.tasks.announce.to", "UNKNOWN_TARGET")
    assert "orders" in problem.hint


async def test_a_target_that_is_gone_fails_the_task_at_once(world: World) -> None:
    world.engine.sink = FakeSink("orders")
    await world.publish(announce({"type": "t"}, to="orders"))
    world.engine.sink = FakeSink("orders-2")
    execution = (await world.start("flow")).id
    await world.run_until_quiet()
    error = (await world.view(execution)).error
    assert error is not None
    assert error.type == "UNKNOWN_TARGET"


async def test_map_items_publish_events_with_ids_of_their_own(world: World) -> None:
    do = {"type": "publish", "event": {"type": "line", "data": "${item}"}}
    execution = await run(
        world, flow(each={"type": "map", "items": "${input}", "do": do}), ["a", "b"]
    )
    events = {json.loads(message.body)["id"]: message for message in sent(world)}
    assert set(events) == {f"{execution}:each:0", f"{execution}:each:1"}


async def test_an_event_has_no_sensitive_part_of_what_it_is_made_of(world: World) -> None:
    """Neither from a task of its own nor from a map's items, and not by an operator's retry."""
    ssn = {"type": "string", "x-sensitive": True}
    person = {"properties": {"ssn": ssn, "name": {"type": "string"}}}
    schema = {"properties": {"one": person, "all": {"items": person}}}
    about = {"type": "t", "subject": "no. ${input.one.ssn}", "data": {"who": "${input.one}"}}
    do = {"type": "publish", "event": {"type": "t", "data": "${item}"}}
    definition = flow(
        one={"type": "publish", "event": about},
        each={"type": "map", "items": "${input.all}", "do": do},
        late={"type": "publish", "event": about, "needs": ["one"], "retry": retry(1), "to": "gone"},
    )
    ann = {"ssn": "078-05", "name": "Ann"}
    sink = world.engine.sink = FakeSink("gone")
    sink.errors = [EventRefused("too long")]
    execution = await run(world, {**definition, "input": schema}, {"one": ann, "all": [ann]})
    letters, _ = await letters_list.find(world.engine, TENANT, LetterFilter(), limit=9, after=None)
    wish = Wish(action=Action.RETRY, by="op")
    await letters_act.act(world.engine, TENANT, letters_list.public_id(letters[0].body), wish)
    await world.run_until_quiet()
    assert (await world.view(execution)).status == "COMPLETED"
    events = {json.loads(message.body)["id"]: json.loads(message.body) for message in sent(world)}
    masked = {"ssn": "***", "name": "Ann"}
    for event in (events[f"{execution}:one"], sink.published[0][1]):
        assert (event["subject"], event["data"]) == ("***", {"who": masked})
    assert events[f"{execution}:each:0"]["data"] == masked
    assert "078-05" not in str([*events.values(), sink.published])
