"""Erasing an execution: nothing that a user put into it is left, and its structure is."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from orchestrator.domain import erasure
from orchestrator.domain.errors import ConflictError, InvalidError, NotFoundError
from orchestrator.domain.topology import AUDIT, EXECUTIONS, VISIBILITY
from orchestrator.engine import erase, inspect, letters_act, letters_bulk, replay, signals
from orchestrator.engine.letters import LetterStatus
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.ports import Query, Unavailable, Where
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld
from tests.unit.engine.test_cases_deadletters import act, letters, open_letter

PLANTED = "Erika-Mustermann"
LARGE = PLANTED + "x" * 70_000  # kept in the payload store


def definition() -> dict[str, Any]:
    return flow(
        a=task("echo", input="${input}"),
        s={"type": "signal", "signal": "approved", "needs": ["a"]},
        m={
            "type": "map",
            "needs": ["s"],
            "items": "${[input.name, input.large, 'third']}",
            "do": task("echo", input="${item}"),
        },
        bad=task("fail", "m", input="${input.name}", retry=retry(2)),
        skipped=task("fail", "bad", input="${input.name}", retry=retry(1)),
        output="${tasks.m.output}",
    ) | {"onFailure": "hold"}


async def ended(make: MakeWorld) -> tuple[World, str]:
    """An execution that has everything: inline and large payloads, a map, a signal, failures, an
    edited retry, a skip with an output."""

    def fail(call: Any) -> Any:
        raise ValueError(f"cannot do it for {call.input}")

    world = await make(echo=lambda call: call.input, fail=fail)
    await world.publish(definition())
    id = (await world.start("flow", {"name": PLANTED, "large": LARGE})).id
    await world.run_until_quiet()
    await signals.send(world.engine, TENANT, id, "approved", {"by": PLANTED, "large": LARGE})
    await world.run_until_quiet()
    edited = Wish(action=Action.RETRY, by="eve", edited=True, value=[PLANTED])
    await letters_act.act(world.engine, TENANT, await open_letter(world), edited)
    await world.run_until_quiet()
    await act(world, await open_letter(world), Action.SKIP, value=PLANTED)
    await world.run_until_quiet()
    await act(world, await open_letter(world), Action.FAIL)
    await world.run_until_quiet()
    assert (await world.view(id)).status == "FAILED"
    return world, id


async def documents(world: World, id: str) -> dict[str, Any]:
    query = Query(partition=(TENANT, id), limit=10_000)
    return {doc.id: doc.body for doc in await world.sqlite.query(EXECUTIONS, query)}


async def texts(world: World, id: str) -> str:
    """Everything that is stored anywhere."""
    rows = [await documents(world, id)]
    for container in (VISIBILITY, AUDIT):
        found = await world.sqlite.query(container, Query(partition=(TENANT,), limit=1_000))
        rows.append([doc.body for doc in found])
    return json.dumps(rows) + str(world.payloads.data)


async def test_nothing_planted_is_left_and_the_structure_is(make: MakeWorld) -> None:
    world, id = await ended(make)
    assert PLANTED in await texts(world, id)
    kinds = {doc["type"] for doc in (await documents(world, id)).values()}
    assert kinds >= {"execution", "events", "task", "items", "signal", "deadletter"}
    assert world.payloads.data
    before = await documents(world, id)
    statuses, view = await world.statuses(id), await world.view(id)

    await world.clock.advance(1_000)
    shown = await erase.erase(world.engine, TENANT, id, by="eve", reason="ticket 4711")
    assert PLANTED not in await texts(world, id)
    assert world.payloads.data == {}
    assert shown.erased_at == world.clock.now()
    assert (shown.status, shown.created_at, shown.ended_at) == (
        view.status,
        view.created_at,
        view.ended_at,
    )
    assert shown.error is not None
    assert view.error is not None
    assert (shown.error.type, shown.error.message) == (view.error.type, erasure.ERASED_TEXT)
    assert shown.input == {"$erased": True}
    assert await world.statuses(id) == statuses
    assert (await documents(world, id)).keys() == before.keys()
    await world.verified(id)
    history, _ = await inspect.history(world.engine, TENANT, id, limit=1_000, after=None)
    assert history
    found, _ = await inspect.tasks(world.engine, TENANT, id, limit=100, after=None)
    assert PLANTED not in str(found)
    items, _ = await signals.page(world.engine, TENANT, id, limit=10, after=None)
    assert [one.name for one in items] == ["approved"]
    assert PLANTED not in str(await letters(world, status=LetterStatus.FAILED))


async def test_the_same_request_again_changes_nothing_and_is_audited_once(make: MakeWorld) -> None:
    world, id = await ended(make)
    first = await erase.erase(world.engine, TENANT, id, by="eve", reason="ticket 4711")
    stored = await documents(world, id)
    await world.clock.advance(1_000)
    assert await erase.erase(world.engine, TENANT, id, by="eve") == first
    assert await documents(world, id) == stored
    query = Query(partition=(TENANT,), where=(Where("action", "=", "erase"),))
    (record,) = await world.sqlite.query(AUDIT, query)
    assert (record.body["by"], record.body["reason"]) == ("eve", "ticket 4711")


async def test_what_has_not_ended_is_refused_and_untouched(make: MakeWorld) -> None:
    world = await make(echo=lambda call: call.input)
    await world.publish(flow(s={"type": "signal", "signal": "approved"}))
    id = (await world.start("flow", PLANTED)).id
    await world.run_until_quiet()
    stored = await documents(world, id)
    with pytest.raises(ConflictError) as refused:
        await erase.erase(world.engine, TENANT, id, by="eve")
    assert refused.value.code == "CANNOT_ERASE"
    assert await documents(world, id) == stored
    with pytest.raises(NotFoundError):
        await erase.erase(world.engine, TENANT, "nope", by="eve")
    with pytest.raises(NotFoundError):
        await erase.erase(world.engine, "other", id, by="eve")
    with pytest.raises(InvalidError):
        await erase.erase(world.engine, TENANT, id, by="eve", reason="x" * 1_001)


async def test_an_erased_execution_is_not_run_again(make: MakeWorld) -> None:
    def fail(call: Any) -> Any:
        raise ValueError("no")

    world = await make(fail=fail)
    await world.publish(flow(a=task("fail", input="${input}", retry=retry(1))))
    id = (await world.start("flow", PLANTED)).id
    await world.run_until_quiet()
    letter = await open_letter(world)
    await erase.erase(world.engine, TENANT, id, by="eve")
    stored = await documents(world, id)
    for acting in (
        replay.replay(world.engine, TENANT, id, by="eve"),
        letters_bulk.retry_execution(world.engine, TENANT, id, by="eve"),
        act(world, letter, Action.RETRY),
        act(world, letter, Action.SKIP, value=1),
    ):
        with pytest.raises(ConflictError) as refused:
            await acting
        assert refused.value.code == "ERASED"
    assert await documents(world, id) == stored
    await act(world, letter, Action.DISCARD)


async def test_a_process_that_took_it_up_before_is_refused_by_the_etag(make: MakeWorld) -> None:
    """Its memory says FAILED and knows nothing of the erasure."""

    def fail(call: Any) -> Any:
        raise ValueError("no")

    world = await make(fail=fail)
    await world.publish(flow(a=task("fail", input="${input}", retry=retry(1))))
    id = (await world.start("flow", PLANTED)).id
    await world.run_until_quiet()
    letter, old = await open_letter(world), world.engine
    world.engine = world.another("second")
    await erase.erase(world.engine, TENANT, id, by="eve")
    wish = Wish(action=Action.RETRY, by="eve")
    with pytest.raises(ConflictError):
        await letters_act.act(old, TENANT, letter, wish)
    await world.run_until_quiet()
    assert (await world.view(id)).status == "FAILED"


@pytest.mark.parametrize("applied", [False, True])
async def test_a_crash_at_any_write_leaves_the_rest_to_the_same_request(
    make: MakeWorld, applied: bool
) -> None:
    world, id = await ended(make)
    replace, delete = world.sqlite.replace, world.payloads.delete
    writes, removing = 0, iter([True])

    async def dying_replace(*args: Any, **more: Any) -> Any:
        nonlocal writes
        writes += 1
        if writes == 2:
            raise asyncio.CancelledError
        result = await replace(*args, **more)
        if applied:
            raise asyncio.CancelledError
        return result

    async def dying_delete(*args: Any, **more: Any) -> Any:
        first = next(removing, False)
        if first and not applied:
            raise asyncio.CancelledError
        await delete(*args, **more)
        if first:
            raise asyncio.CancelledError

    world.sqlite.replace = dying_replace  # type: ignore[method-assign]
    world.payloads.delete = dying_delete  # type: ignore[method-assign]
    for _run in range(200):
        writes = 0
        with contextlib.suppress(asyncio.CancelledError):
            await erase.erase(world.engine, TENANT, id, by="eve")
            break
        assert (await world.view(id)).status == "FAILED"  # readable at every point
    else:
        raise AssertionError("it never ended")
    assert _run > 10
    assert PLANTED not in await texts(world, id)
    await world.verified(id)


async def test_a_payload_store_that_is_away_leaves_it_unfinished(make: MakeWorld) -> None:
    world, id = await ended(make)

    async def away(tenant: str, execution: str) -> None:
        raise Unavailable("down")

    delete, world.payloads.delete = world.payloads.delete, away  # type: ignore[method-assign]
    erasing = asyncio.ensure_future(erase.erase(world.engine, TENANT, id, by="eve"))
    while not erasing.done():
        await world.clock.advance(1_000)
        await asyncio.sleep(0.001)
    assert isinstance(erasing.exception(), Unavailable)
    assert (await world.view(id)).erased_at is None
    world.payloads.delete = delete  # type: ignore[method-assign]
    assert (await erase.erase(world.engine, TENANT, id, by="eve")).erased_at is not None
    assert world.payloads.data == {}
