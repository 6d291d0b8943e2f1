"""Dead letters: one record per failure that is final, with all that a decision about it needs."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.domain.errors import NotFoundError
from orchestrator.engine import letters_list
from orchestrator.engine.gate import Passage
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.letters import LetterStatus
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.ports import ActivityCall
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld


def boom(call: ActivityCall) -> None:
    try:
        raise TimeoutError("socket")
    except TimeoutError as error:
        raise ConnectionError("no answer") from error


async def listed(world: World, **wanted: Any) -> list[Any]:
    found, _ = await letters_list.page(
        world.engine, TENANT, LetterFilter(**wanted), limit=100, after=None
    )
    return found


async def test_a_task_out_of_retries_leaves_one_letter_with_all_that_is_known(
    make: MakeWorld,
) -> None:
    world = await make(boom=boom)
    world.secrets.values[TENANT, "K"] = "s3cr3t"
    given = {"n": "${input.n}", "key": "Bearer ${secrets.K}"}
    await world.publish(flow(a=task("boom", input=given, retry=retry(2))))
    started = await world.start("flow", {"n": 7}, traceparent="00-" + "a" * 32 + "-bbbbbbbb-01")
    await world.run_until_quiet()
    (letter,) = await listed(world)
    view = await letters_list.show(world.engine, TENANT, letter.id)
    assert (view.status, view.kind, view.reason) == ("OPEN", "task", "attemptsExhausted")
    assert (view.execution, view.workflow, view.version) == (started.id, "flow", 1)
    assert (view.task, view.item, view.attempt) == ("a", None, 2)
    assert [entry.attempt for entry in view.attempts] == [1, 2]
    assert view.input == {"n": 7, "key": "Bearer ***"}
    assert view.error is not None
    assert view.error.type == "ConnectionError"
    assert view.traceparent == (await world.view(started.id)).traceparent
    assert set(letter.id) <= set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~"
    )


async def test_items_have_letters_of_their_own_and_their_map_has_none(make: MakeWorld) -> None:
    def odd(call: ActivityCall) -> None:
        if call.input == 1:
            raise ValueError("odd")

    world = await make(odd=odd)
    do = {"type": "activity", "activity": "odd", "input": "${item}", "retry": retry(1)}
    await world.publish(flow(m={"type": "map", "items": [0, 1, 2], "do": do}))
    await world.start("flow")
    await world.run_until_quiet()
    (letter,) = await listed(world)
    assert (letter.kind, letter.task, letter.item, letter.attempt) == ("item", "m", 1, 1)
    assert (await letters_list.show(world.engine, TENANT, letter.id)).input == 1


async def test_what_failed_without_a_worker_or_with_a_dead_one_is_a_letter_too(
    make: MakeWorld,
) -> None:
    world = await make(noop=lambda call: None)
    await world.publish(
        flow(
            on_failure="continue",
            a=task("noop", when="${input.nothing > 1}"),
            b=task("noop", retry=retry(1)),
        )
    )
    started = await world.start("flow", {})
    await world.deliver(world.transport.take(world.clock.now()))
    message = next(m for m in world.transport.take(world.clock.now()) if b'"b"' in m.body)
    from orchestrator.domain.messages import decode
    from orchestrator.engine import claims

    dies = world.another("dies")
    incoming = Incoming(body=message.body, message_id=message.message_id)
    await claims.claim(dies, decode(message.body), Passage(dies, incoming).admit)
    await world.clock.advance(world.tunables.lease_ms + 1)
    await world.sweep()
    assert (await world.view(started.id)).status == "FAILED"
    found = {letter.task: letter for letter in await listed(world)}
    assert found["a"].reason == "notRun"
    assert found["a"].error.type == "EXPRESSION_FAILED"
    assert found["b"].error.type == "LEASE_EXPIRED"


async def test_a_page_is_filtered_and_goes_on_where_it_ended(make: MakeWorld) -> None:
    world = await make(boom=boom)
    for name in ("one", "two"):
        await world.publish(flow(name, a=task("boom", retry=retry(1))))
    for _ in range(3):
        await world.start("one")
        await world.run_until_quiet()
        await world.clock.advance(1000)
    last = await world.start("two")
    await world.run_until_quiet()
    assert len(await listed(world, workflow="one", status=LetterStatus.OPEN)) == 3
    assert await listed(world, status=LetterStatus.RETRIED) == []
    assert [one.execution for one in await listed(world, execution=last.id)] == [last.id]
    assert len(await listed(world, error_type="ConnectionError", task="a")) == 4
    assert await listed(world, error_type="ValueError") == []
    seen: list[str] = []
    after: Any = None
    while True:
        page, after = await letters_list.page(
            world.engine, TENANT, LetterFilter(), limit=3, after=after
        )
        seen += [letter.id for letter in page]
        if after is None:
            break
    assert len(set(seen)) == 4
    assert seen[0].startswith(last.id)
    page, _ = await letters_list.page(world.engine, "other", LetterFilter(), limit=9, after=None)
    assert page == []


@pytest.mark.parametrize("id", ["", "x", "~", "nope~a~1", "x~a:1", "x~a~1~2~3"])
async def test_an_id_that_is_none_is_not_found(make: MakeWorld, id: str) -> None:
    world = await make()
    with pytest.raises(NotFoundError):
        await letters_list.show(world.engine, TENANT, id)
