"""Decisions about dead letters that meet a lost answer, a second press, or another process."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from orchestrator.domain.topology import AUDIT, EXECUTIONS
from orchestrator.engine import letters_bulk, letters_list, replay
from orchestrator.engine.letters import LetterStatus
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.ports import Query, Unavailable, Where
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld
from tests.unit.engine.test_cases_deadletters import Flaky, act, letters, open_letter

RECORDS = Query(partition=(TENANT,), where=(Where("type", "=", "audit"),))


async def audited(world: World) -> list[tuple[str, str]]:
    found = await world.sqlite.query(AUDIT, RECORDS)
    return [(doc.body["action"], doc.body["by"]) for doc in found]


async def finished(world: World, acting: asyncio.Future[Any]) -> Any:
    for _ in range(200):
        await quiesce()
        if acting.done():
            break
        await world.clock.advance(1000)
    return await acting


def lose_the_answer(world: World, container: str) -> None:
    """Of the first batch, or write to `container`: it is applied, and its caller does not know."""
    batch, create, answers = world.sqlite.batch, world.sqlite.create, iter([True])

    async def unclear_batch(name: str, *args: Any) -> Any:
        result = await batch(name, *args)
        if name == container and next(answers, False):
            raise Unavailable("the answer was lost")
        return result

    async def unclear_create(name: str, *args: Any) -> Any:
        result = await create(name, *args)
        if name == container and next(answers, False):
            raise Unavailable("the answer was lost")
        return result

    world.sqlite.batch = unclear_batch  # type: ignore[method-assign]
    world.sqlite.create = unclear_create  # type: ignore[method-assign]


async def test_a_process_that_remembers_the_failure_takes_up_what_another_reopened(
    make: MakeWorld,
) -> None:
    """Its memory said FAILED, and it dropped every message of the execution, for as long as it
    lived."""
    flaky = Flaky("a")
    world = await make(work=flaky)
    await world.publish(flow(a=task("work", retry=retry(1))))
    started = await world.start("flow")
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "FAILED"
    flaky.broken.clear()
    remembers, world.engine = world.engine, world.another("second")
    await act(world, await open_letter(world), Action.RETRY)
    await world.settle(remembers)
    assert (await world.view(started.id)).status == "COMPLETED"


async def test_the_second_press_is_answered_like_the_first_although_the_task_moved_on(
    make: MakeWorld,
) -> None:
    """It had read the letter before the first press, and the task after it."""
    world = await make(work=Flaky("a"))
    await world.publish(flow(a=task("work", retry=retry(1))))
    await world.start("flow")
    await world.run_until_quiet()
    id = await open_letter(world)
    read = letters_list.read
    stale = await read(world.engine, TENANT, id)
    first = await act(world, id, Action.RETRY)
    await world.run_until_quiet()  # and it fails again
    answers = iter([stale])

    async def behind(*args: Any) -> Any:
        return next(answers, None) or await read(*args)

    letters_list.read = behind  # type: ignore[assignment]
    try:
        second = await act(world, id, Action.RETRY)
    finally:
        letters_list.read = read
    assert (second.status, second.resolved) == (first.status, first.resolved)
    assert [one.status for one in await letters(world)] == ["OPEN", "RETRIED"]


async def test_a_discard_whose_answer_was_lost_is_in_the_audit_once(make: MakeWorld) -> None:
    world = await make(work=Flaky("a", "b"))
    await world.publish(flow(a=task("work", retry=retry(1)), b=task("work", retry=retry(1))))
    await world.start("flow")
    await world.run_until_quiet()
    lose_the_answer(world, EXECUTIONS)
    wish = Wish(action=Action.DISCARD, by="eve")
    acting = asyncio.ensure_future(
        letters_bulk.bulk(world.engine, TENANT, LetterFilter(), wish, limit=100)
    )
    result = await finished(world, acting)
    assert (result.done, result.refused) == (2, [])
    assert await audited(world) == [("deadletter.discard", "eve")] * 2
    (id, _) = [one.id for one in await letters(world, status=LetterStatus.DISCARDED)]
    await act(world, id, Action.DISCARD)
    assert len(await audited(world)) == 2


async def test_whoever_died_before_the_audit_has_its_record_written_by_the_same_words(
    make: MakeWorld,
) -> None:
    world = await make(work=Flaky("a"))
    await world.publish(flow(a=task("work", retry=retry(1))))
    started = await world.start("flow")
    await world.run_until_quiet()
    id = await open_letter(world)
    batch = world.sqlite.batch

    async def dies(name: str, *args: Any) -> Any:
        if name == AUDIT:
            raise asyncio.CancelledError
        return await batch(name, *args)

    for acting in (
        act(world, id, Action.SKIP, value=1),
        replay.replay(world.engine, TENANT, started.id, key="k", by="eve"),
    ):
        world.sqlite.batch = dies  # type: ignore[method-assign]
        with contextlib.suppress(asyncio.CancelledError):
            await acting
        world.sqlite.batch = batch  # type: ignore[method-assign]
        await world.run_until_quiet()
    assert await audited(world) == []
    await act(world, id, Action.SKIP, value=1)
    await replay.replay(world.engine, TENANT, started.id, key="k", by="eve")
    assert sorted(action for action, _ in await audited(world)) == ["deadletter.skip", "replay"]


async def test_an_audit_record_whose_answer_was_lost_is_no_failure(make: MakeWorld) -> None:
    world = await make(work=Flaky("a"))
    await world.publish(flow(a=task("work", retry=retry(1))))
    await world.start("flow")
    await world.run_until_quiet()
    lose_the_answer(world, AUDIT)
    acting = asyncio.ensure_future(act(world, await open_letter(world), Action.DISCARD))
    await finished(world, acting)
    assert len(await audited(world)) == 1
    assert world.engine.metrics.value("weft_audit_failures_total") == 0
