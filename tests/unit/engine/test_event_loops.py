"""Events that start what publishes events: such a chain ends, also if it leads back to itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain import cloudevents
from orchestrator.domain.errors import ConflictError
from orchestrator.domain.topology import EVENTS_QUEUE, EXECUTIONS, MAX_EVENT_HOPS
from orchestrator.engine import events, letters_act, letters_list, trigger_trial, triggers
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.ports import Query, Where
from tests.support.definitions import flow
from tests.support.world import TENANT, World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    opened = await World(tmp_path).open()
    yield opened
    await opened.close()


def publishes(type: str) -> dict[str, Any]:
    return {"type": "publish", "event": {"type": type, "data": {"n": 1}}}


async def trigger(world: World, name: str, workflow: str, type: str) -> None:
    raw: Any = {"name": name, "workflow": workflow, "match": {"type": type}}
    await triggers.create(world.engine, TENANT, raw)


async def executions(world: World) -> list[dict[str, Any]]:
    query = Query(where=(Where("type", "=", "execution"),), order_by="createdAt", limit=1_000)
    return [one.body for one in await world.sqlite.query(EXECUTIONS, query)]


async def letters(world: World) -> list[Any]:
    found, _ = await letters_list.page(world.engine, TENANT, LetterFilter(), limit=50, after=None)
    return found


def sent(world: World) -> list[dict[str, Any]]:
    return [json.loads(one.body) for one in world.transport.sent if one.queue == EVENTS_QUEUE]


async def test_a_workflow_that_starts_itself_by_its_own_event_ends_as_a_dead_letter(
    world: World,
) -> None:
    await world.publish(flow("ping", p=publishes("ping")))
    await trigger(world, "t", "ping", "ping")
    await world.start("ping")
    await world.settle(rounds=500)
    assert len(await executions(world)) == 1 + MAX_EVENT_HOPS
    [letter] = await letters(world)
    assert (letter.reason, letter.error.type) == ("tooManyHops", "EVENT_LOOP")
    assert [event.get("wefthops", 0) for event in sent(world)] == [*range(MAX_EVENT_HOPS + 1)]


async def test_the_event_of_a_circle_cannot_be_retried_and_a_trial_says_so(world: World) -> None:
    await world.publish(flow("ping", p=publishes("ping")))
    await trigger(world, "t", "ping", "ping")
    body = {"specversion": "1.0", "id": "1", "source": "/s", "type": "ping", "wefthops": 10}
    event = cloudevents.structured(body)
    tried = await trigger_trial.trial(world.engine, TENANT, "t", event)
    assert tried.error is not None
    assert (tried.starts, tried.stopped, tried.error.type) == (False, "start", "EVENT_LOOP")
    [taken] = await events.receive(world.engine, TENANT, [event])
    wish = Wish(action=Action.RETRY, by="eve", reason="")
    with pytest.raises(ConflictError):
        await letters_act.act(world.engine, TENANT, taken.dead_letters[0], wish)
    assert await executions(world) == []


async def test_a_loop_over_two_workflows_and_a_child_ends_too(world: World) -> None:
    await world.publish(flow("pong", p=publishes("ping")))
    await world.publish(flow("by-child", c={"type": "workflow", "workflow": "pong"}))
    await world.publish(flow("ping", p=publishes("pong")))
    await trigger(world, "a", "ping", "ping")
    await trigger(world, "b", "by-child", "pong")
    await world.start("ping")
    await world.run_until_quiet()
    found = await executions(world)
    assert len([one for one in found if "event" in one]) == MAX_EVENT_HOPS
    [letter] = await letters(world)
    assert letter.reason == "tooManyHops"


@pytest.mark.parametrize(
    ("given", "hops"), [(3, 3), ("3", 3), (-5, 0), ("x", 0), ("³", 0), (True, 0), ("9" * 30, 0)]
)
def test_what_a_sender_says_of_hops_is_read_with_care(given: Any, hops: int) -> None:
    body = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "wefthops": given}
    assert min(cloudevents.structured(body).hops, MAX_EVENT_HOPS) == hops


async def test_the_count_survives_the_way_over_another_system_and_does_not_make_another_event(
    world: World,
) -> None:
    await world.publish(flow("ping", p=publishes("other")))
    await trigger(world, "t", "ping", "ping")
    body = {"specversion": "1.0", "id": "1", "source": "/s", "type": "ping", "wefthops": "4"}
    event = cloudevents.structured(body)
    [first] = await events.receive(world.engine, TENANT, [event])
    again = cloudevents.structured({**body, "wefthops": 2})
    [second] = await events.receive(world.engine, TENANT, [again])
    assert first.executions == second.executions
    await world.settle()
    [published] = sent(world)
    assert published["wefthops"] == 5
