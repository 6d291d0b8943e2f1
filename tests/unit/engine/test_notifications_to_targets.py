"""Completion notifications as CloudEvents to a target: the same promises as those to webhooks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.message_rules import check
from orchestrator.domain import cloudevents
from orchestrator.domain.errors import InvalidError
from orchestrator.domain.failure import FailureType
from orchestrator.domain.topology import EVENTS_QUEUE, EXECUTIONS, MAX_EVENT_HOPS
from orchestrator.engine import control, letters_act, letters_list, triggers
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.ports import OutMessage, Query, TransportError, Where
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, FakeActivities, World

ALL = ["completed", "failed", "cancelled"]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    activities = FakeActivities(work=lambda call: call.input, bad=lambda call: 1 // 0)
    opened = await World(tmp_path, activities).open()
    yield opened
    await opened.close()


class Sink:
    """Targets in memory; `errors` are raised in turn, before or after an event was taken."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)
        self.published: list[dict[str, Any]] = []
        self.errors: list[Exception] = []
        self.loses_answers = False

    def targets(self) -> frozenset[str]:
        return self.names

    async def publish(self, target: str, event: bytes, event_id: str) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is None or self.loses_answers:
            self.published.append({**json.loads(event), "to": target})
        if error is not None:
            raise error

    async def close(self) -> None:
        """Nothing to release."""


async def run(world: World, *notify: dict[str, Any], given: Any = None) -> str:
    """Publish a workflow of one task with these notifications and run it; the execution's id."""
    definition = flow(
        a=task("work", input="${input}"), output="${tasks.a.output}", defaults={"retry": retry(3)}
    )
    await world.publish({**definition, "notify": list(notify)})
    id = (await world.start("flow", given, tags={"env": "prod"})).id
    await world.run_until_quiet()
    return id


def sent(world: World) -> list[dict[str, Any]]:
    return [json.loads(one.body) for one in world.transport.sent if one.queue == EVENTS_QUEUE]


async def letters(world: World) -> list[Any]:
    found, _ = await letters_list.find(world.engine, TENANT, LetterFilter(), limit=50, after=None)
    return found


async def test_a_target_gets_one_cloudevent_with_the_webhooks_body(world: World) -> None:
    id = await run(world, {"on": ["completed"], "to": "events"}, given={"private": 1})
    seq = (await world.view(id)).seq
    [event] = sent(world)
    data = event.pop("data")
    assert event == {
        "specversion": "1.0",
        "id": f"{id}.{seq}.0",
        "source": f"/weft/{TENANT}/flow",
        "type": "weft.execution.completed",
        "subject": id,
        "time": "2027-01-15T08:00:00.000Z",
        "datacontenttype": "application/json",
    }
    assert (data["id"], data["execution"], data["tags"]) == (event["id"], id, {"env": "prod"})
    assert (data["type"], data["status"], "output" in data) == (
        "execution.completed",
        "COMPLETED",
        False,
    )
    cloudevents.structured({**event, "data": data})
    assert await letters(world) == []
    await world.verified(id)


async def test_the_output_is_in_the_event_only_if_asked_for(world: World) -> None:
    await run(
        world,
        {"on": ["completed"], "to": "events", "includeOutput": True},
        {"on": ["failed"], "to": "events"},
        given={"n": 7},
    )
    [event] = sent(world)
    assert event["data"]["output"] == {"n": 7}


async def test_failed_and_cancelled_ends_are_told_by_type(world: World) -> None:
    definition = flow(a=task("bad", retry=retry(1)))
    await world.publish({**definition, "notify": [{"on": ALL, "to": "events"}]})
    first = (await world.start("flow")).id
    await world.settle()
    second = (await world.start("flow")).id
    await control.act(world.engine, TENANT, second, control.CANCEL, by="eve")
    await world.settle()
    assert [(one["type"], one["subject"]) for one in sent(world)] == [
        ("weft.execution.failed", first),
        ("weft.execution.cancelled", second),
    ]
    assert sent(world)[0]["data"]["error"]["task"] == "a"


async def test_a_named_target_has_its_own_sink(world: World) -> None:
    sink = world.engine.sink = Sink("orders")
    await run(world, {"on": ["completed"], "to": "orders"})
    assert [(one["to"], one["type"]) for one in sink.published] == [
        ("orders", "weft.execution.completed")
    ]
    assert sent(world) == []


async def test_a_lost_answer_sends_the_very_same_event_again(world: World) -> None:
    sink = world.engine.sink = Sink("orders")
    sink.errors, sink.loses_answers = [TransportError("no answer")], True
    await run(world, {"on": ["completed"], "to": "orders"})
    first, second = sink.published
    assert first == second


async def test_a_target_that_is_down_is_a_dead_letter_that_can_be_sent_again(world: World) -> None:
    sink = world.engine.sink = Sink("orders")
    sink.errors = [TransportError("down")] * 3
    id = await run(world, {"on": ["completed"], "to": "orders"})
    assert (await world.view(id)).status.value == "COMPLETED"
    [letter] = await letters(world)
    assert (letter.body["kind"], letter.body["errorType"]) == ("notification", "PUBLISH_FAILED")
    assert (letter.body["attempt"], letter.body["reason"]) == (3, "attemptsExhausted")
    wish = Wish(action=Action.RETRY, by="eve")
    await letters_act.act(world.engine, TENANT, letters_list.public_id(letter.body), wish)
    await world.run_until_quiet()
    assert [one["subject"] for one in sink.published] == [id]


async def test_an_output_too_large_for_a_message_is_not_tried_again(world: World) -> None:
    real = world.transport.send

    async def send(messages: list[OutMessage]) -> None:
        for message in messages:
            check(message, {message.queue})
        await real(messages)

    world.transport.send = send  # type: ignore[method-assign,assignment]
    notify = {"on": ["completed"], "to": "events", "includeOutput": True}
    await run(world, notify, given="x" * 300_000)
    [letter] = await letters(world)
    assert (letter.body["errorType"], letter.body["attempt"]) == (FailureType.PAYLOAD_TOO_LARGE, 1)
    assert sent(world) == []


async def test_a_target_that_was_taken_away_since_is_named_in_the_dead_letter(
    world: World,
) -> None:
    world.engine.sink = Sink("orders")
    await world.publish(
        {**flow(a=task("work", input=1)), "notify": [{"on": ["completed"], "to": "orders"}]}
    )
    world.engine.sink = Sink("other")
    await world.start("flow")
    await world.settle()
    [letter] = await letters(world)
    assert letter.body["errorType"] == "UNKNOWN_TARGET"


@pytest.mark.parametrize(
    ("notify", "code", "field"),
    [
        ({"on": ALL, "to": "event"}, "UNKNOWN_TARGET", "$.notify[1].to"),
        ({"on": ALL}, "BAD_NOTIFY", "$.notify[1]"),
        ({"on": ALL, "to": "events", "webhook": {"url": "https://a.example"}},
         "BAD_NOTIFY", "$.notify[1]"),
        ({"on": ALL, "to": 7}, "WRONG_TYPE", "$.notify[1].to"),
        ({"on": ALL, "to": None, "webhook": None}, "BAD_NOTIFY", "$.notify[1]"),
    ],
)  # fmt: skip
async def test_what_is_refused_at_publish(
    world: World, notify: dict[str, Any], code: str, field: str
) -> None:
    good = {"on": ["completed"], "to": "events"}
    with pytest.raises(InvalidError) as caught:
        await world.publish({**flow(a=task("work")), "notify": [good, notify]})
    assert [(one.code, one.field) for one in caught.value.details] == [(code, field)]
    if code == "UNKNOWN_TARGET":
        assert 'did you mean "events"?' in caught.value.details[0].hint


async def test_a_workflow_that_starts_itself_by_the_event_of_its_end_comes_to_an_end(
    world: World,
) -> None:
    definition = {**flow(a=task("work", input=1)), "notify": [{"on": ALL, "to": "events"}]}
    await world.publish(definition)
    raw: Any = {"name": "t", "workflow": "flow", "match": {"type": "weft.execution.completed"}}
    await triggers.create(world.engine, TENANT, raw)
    await world.start("flow")
    await world.settle(rounds=1_000)
    query = Query(where=(Where("type", "=", "execution"),), limit=1_000)
    assert len(await world.sqlite.query(EXECUTIONS, query)) == 1 + MAX_EVENT_HOPS
    assert [event.get("wefthops", 0) for event in sent(world)] == [*range(MAX_EVENT_HOPS + 1)]
