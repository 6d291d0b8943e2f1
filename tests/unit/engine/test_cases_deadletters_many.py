"""Holding executions, retries of whole executions, and bulk actions that are interrupted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.domain.errors import ConflictError
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import deadletters, documents, inspect, letters_bulk, letters_list
from orchestrator.engine.core import Tunables
from orchestrator.engine.incoming import Incoming
from orchestrator.engine.letters import LetterStatus
from orchestrator.engine.letters_list import LetterFilter
from orchestrator.engine.letters_wish import Action, Wish
from orchestrator.engine.resilience import Unclear
from orchestrator.ports import Operation, Query, Unavailable
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World, quiesce
from tests.unit.engine.conftest import MakeWorld
from tests.unit.engine.test_cases_deadletters import Flaky, act, letters, open_letter


async def bulk(world: World, action: Action, limit: int = 1000, **wanted: Any) -> Any:
    wish = Wish(action=action, by="eve", reason="back again")
    return await letters_bulk.bulk(world.engine, TENANT, LetterFilter(**wanted), wish, limit=limit)


async def retry_execution(world: World, id: str) -> Any:
    return await letters_bulk.retry_execution(world.engine, TENANT, id, by="eve")


async def test_hold_waits_and_each_decision_lets_it_go_on(make: MakeWorld) -> None:
    flaky = Flaky("a", "b", "c")
    world = await make(work=flaky)
    once = retry(1)
    await world.publish(
        flow(
            on_failure="hold",
            a=task("work", retry=once),
            b=task("work", retry=once),
            c=task("work", retry=once),
            free=task("work"),
            after_a=task("work", "a"),
            after_b=task("work", "b"),
            after_c=task("work", "c", runWhen="anyFailed"),
        )
    )
    started = await world.start("flow")
    await world.run_until_quiet()
    view = await world.view(started.id)
    assert (view.status, view.holding) == ("RUNNING", ["a", "b", "c"])
    assert (await world.statuses(started.id))["after_a"] == "PENDING"
    with pytest.raises(ConflictError) as caught:
        await act(world, await open_letter(world, task="a"), Action.DISCARD)
    assert caught.value.code == "EXECUTION_HOLDS"
    flaky.broken.clear()
    await act(world, await open_letter(world, task="a"), Action.RETRY)
    await act(world, await open_letter(world, task="b"), Action.SKIP, value=1)
    await world.run_until_quiet()
    assert (await world.view(started.id)).holding == ["c"]
    id = await open_letter(world, task="c")
    await act(world, id, Action.FAIL)
    assert (await act(world, id, Action.FAIL)).status == "FAILED"
    await world.run_until_quiet()
    assert await world.statuses(started.id) == {
        "a": "COMPLETED",
        "b": "COMPLETED",
        "c": "DEAD_LETTERED",
        "free": "COMPLETED",
        "after_a": "COMPLETED",
        "after_b": "COMPLETED",
        "after_c": "COMPLETED",
    }
    view = await world.view(started.id)
    assert (view.status, view.holding, view.error.task) == ("FAILED", [], "c")
    await world.verified(started.id)


async def test_a_map_whose_failure_was_accepted_holds_again_only_for_what_failed_since(
    make: MakeWorld,
) -> None:
    """One letter of its items lets the execution go on without the map, and is put away. If another
    item is taken up then, nobody could decide about the first one any more."""
    broken = {0, 1}

    def work(call: Any) -> int:
        if call.input in broken:
            raise ValueError("broken")
        return int(call.input)

    world = await make(work=work)
    item = task("work", input="${item}", retry=retry(1))
    slow = {"type": "wait", "duration": "1h"}
    m = {"type": "map", "items": [0, 1, 2], "do": item}
    await world.publish(flow(on_failure="hold", m=m, slow=slow))
    started = await world.start("flow")
    await world.settle()
    assert (await world.view(started.id)).holding == ["m"]
    await act(world, f"{started.id}~m~0~1", Action.FAIL)
    assert (await world.view(started.id)).holding == []
    await act(world, f"{started.id}~m~1~1", Action.RETRY)
    await world.settle()
    assert (await world.view(started.id)).holding == ["m"]  # it has failed anew
    broken.clear()
    await act(world, f"{started.id}~m~1~2", Action.RETRY)
    await world.settle()
    assert (await world.view(started.id)).holding == []
    await world.run_until_quiet()
    view = await world.view(started.id)
    assert view.error is not None
    assert (view.status, view.error.task) == ("FAILED", "m")
    await world.verified(started.id)


async def test_a_failed_execution_is_retried_as_a_whole(make: MakeWorld) -> None:
    broken = {f"m{n}" for n in range(30)} | {"b"}
    flaky = Flaky(*broken)
    world = await make(work=flaky)
    do = {"type": "activity", "activity": "work", "input": "${item}", "retry": retry(1)}
    await world.publish(
        flow(
            on_failure="continue",
            m={"type": "map", "items": list(range(40)), "do": do},
            b=task("work", retry=retry(1)),
            z=task("work", "m", "b"),
        )
    )
    started = await world.start("flow")
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "FAILED"
    flaky.broken.clear()
    flaky.ran.clear()
    await retry_execution(world, started.id)
    assert (await retry_execution(world, started.id)).status == "RUNNING"  # pressed twice
    await world.run_until_quiet()
    assert sorted(flaky.ran) == sorted([*broken, "z"])
    assert (await world.view(started.id)).status == "COMPLETED"
    assert await letters(world, status=LetterStatus.OPEN) == []
    with pytest.raises(ConflictError):
        await retry_execution(world, started.id)
    await world.verified(started.id)


async def test_an_execution_that_timed_out_is_taken_up_with_a_new_time_limit(
    make: MakeWorld,
) -> None:
    world = await make(work=Flaky())
    await world.publish(
        flow(
            timeout="10m", a=task("work"), w={"type": "wait", "duration": "8m"}, b=task("work", "w")
        )
    )
    await world.publish(flow("wrong", a=task("work"), output="${tasks.a.output.nothing.more}"))
    started = await world.start("flow")
    await world.settle()
    await world.clock.advance(700_000)
    world.transport.messages.clear()
    await world.sweep()
    assert (await world.view(started.id)).status == "FAILED"
    await retry_execution(world, started.id)
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "COMPLETED"
    await world.verified(started.id)
    wrong = await world.start("wrong")
    await world.run_until_quiet()
    with pytest.raises(ConflictError) as caught:
        await retry_execution(world, wrong.id)
    assert caught.value.code == "NOTHING_TO_RETRY"


class Dies(Exception):
    """The process is killed here."""


class DyingStore:
    """Dies before or after the n-th batch that changes a dead letter."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.left = -1
        self.after = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def batch(self, container: str, partition: Any, operations: list[Operation]) -> Any:
        bodies = [getattr(operation, "body", {}) for operation in operations]
        if any(body.get("resolved") for body in bodies):
            self.left -= 1
        if self.left == 0 and not self.after:
            raise Dies
        etags = await self.inner.batch(container, partition, operations)
        if self.left == 0:
            self.left = -1
            raise Dies
        return etags


@pytest.mark.parametrize("after", [False, True])
async def test_interrupted_re_drive_loses_nothing_and_a_second_call_finishes(
    make: MakeWorld, after: bool
) -> None:
    """Carael/CrossBusExplorer#64: killed at each step of a bulk retry."""
    flaky = Flaky("a", "b")
    stores: list[DyingStore] = []

    def wrap(inner: Any) -> Any:
        stores.append(DyingStore(inner))
        return stores[-1]

    world = await make(work=flaky, wrap_store=wrap)
    once = retry(1)
    await world.publish(
        flow(on_failure="continue", a=task("work", retry=once), b=task("work", retry=once))
    )
    started = [(await world.start("flow")).id for _ in range(6)]
    await world.run_until_quiet()
    assert len(await letters(world)) == 12
    flaky.broken.clear()
    flaky.ran.clear()
    for store in stores:
        store.after = after
        store.left = 3
    with pytest.raises(Dies):
        await bulk(world, Action.RETRY)
    done = len(await letters(world, status=LetterStatus.RETRIED))
    assert 0 < done < 12
    for store in stores:
        store.left = -1
    world.engine = world.another("second")
    result = await bulk(world, Action.RETRY)
    assert (result.done, result.refused, result.more) == (12 - done, [], False)
    assert (await bulk(world, Action.RETRY)).done == 0
    await world.run_until_quiet()
    await world.clock.advance(world.tunables.silence_ms + 1)
    await world.sweep()  # what the dead process had committed and not sent
    assert sorted(flaky.ran) == ["a"] * 6 + ["b"] * 6
    for id in started:
        assert (await world.view(id)).status == "COMPLETED"
        await world.verified(id)


async def test_bulk_goes_by_filter_and_limit_and_lists_what_is_refused(make: MakeWorld) -> None:
    flaky = Flaky("a")
    world = await make(work=flaky)
    await world.publish(flow("one", a=task("work", retry=retry(1))))
    await world.publish(flow("soft", a=task("work", retry=retry(1), continueOnError=True)))
    for name in ("one", "one", "one", "soft"):
        await world.start(name)
        await world.run_until_quiet()
        await world.clock.advance(1000)
    some = await bulk(world, Action.RETRY, workflow="one", limit=2)
    assert (some.done, some.more) == (2, True)
    rest = await bulk(world, Action.SKIP)
    assert rest.done == 1
    (refused,) = rest.refused
    assert refused.code == "EXECUTION_ENDED"
    assert (await bulk(world, Action.DISCARD)).done == 1
    await world.run_until_quiet()
    assert flaky.ran == ["a"] * 6


async def test_a_throttled_store_during_a_retry_loses_nothing(make: MakeWorld) -> None:
    flaky = Flaky("a")
    world = await make(work=flaky)
    await world.publish(flow(a=task("work", retry=retry(1))))
    started = await world.start("flow")
    await world.run_until_quiet()
    id = await open_letter(world)
    flaky.broken.clear()
    batch, answers = world.sqlite.batch, iter([True, False, False, False, False])

    async def unclear(*args: Any) -> Any:
        result = await batch(*args)
        if next(answers, False):
            raise Unavailable("the answer was lost")
        return result

    world.sqlite.batch = unclear  # type: ignore[method-assign]
    acting = asyncio.ensure_future(act(world, id, Action.RETRY))
    for _ in range(200):
        await quiesce()
        if acting.done():
            break
        await world.clock.advance(1000)
    assert (await acting).status == "RETRIED"
    await world.run_until_quiet()
    assert flaky.ran == ["a", "a"]
    found = await inspect.task(world.engine, TENANT, started.id, "a")
    assert [entry.attempt for entry in found.attempts] == [1, 2]
    await world.verified(started.id)


async def test_capture_is_idempotent_by_message_id_even_after_a_retry(make: MakeWorld) -> None:
    """awsdocs/amazon-sqs-developer-guide#52: the same work appears in the DLQ repeatedly."""
    world = await make(work=Flaky())
    await world.publish(flow(a=task("work")))
    started = await world.start("flow")
    body = Message(MessageType.CHECK, TENANT, started.id).encode()
    dead = Incoming(body=body, message_id="m-1", properties={"DeadLetterReason": "Expired"})
    for _ in range(2):
        await deadletters.capture_dead(world.engine, dead, queue="orchestration")
    (letter,) = await letters(world)
    assert (letter.kind, letter.reason, letter.execution) == ("message", "Expired", started.id)
    sent = len(world.transport.sent)
    for _ in range(2):
        assert (await act(world, letter.id, Action.RETRY)).status == "RETRIED"
    await deadletters.capture_dead(world.engine, dead, queue="orchestration")
    (letter,) = await letters(world)
    assert letter.status == "RETRIED"
    (again,) = world.transport.sent[sent:]
    assert again.body == body
    assert again.message_id != "m-1"
    # What names no execution that exists, or cannot be read, is kept apart.
    for lost in (b"{", Message(MessageType.CHECK, TENANT, "nope").encode(), b"\xff" * 9):
        await deadletters.capture_dead(world.engine, Incoming(body=lost), queue="orchestration")
    kept = await world.sqlite.query(EXECUTIONS, Query(partition=documents.SYSTEM_DEAD_LETTERS))
    assert len(kept) == 3
    assert len(await letters(world)) == 1


async def test_a_capture_that_cannot_be_stored_leaves_the_message_to_the_broker(
    make: MakeWorld,
) -> None:
    world = await make(work=Flaky(), tunables=Tunables(throttle_budget_ms=0))

    async def down(*args: Any) -> Any:
        raise Unavailable("down")

    world.sqlite.create = down  # type: ignore[method-assign]
    with pytest.raises((Unavailable, Unclear)):
        await deadletters.capture_dead(
            world.engine, Incoming(body=b"x", message_id="m"), queue="orchestration"
        )


async def test_letters_of_the_same_moment_are_all_on_some_page(make: MakeWorld) -> None:
    """They have the same id, too: of the same task of many executions."""
    world = await make(work=Flaky("a"))
    await world.publish(flow(a=task("work", retry=retry(1))))
    ids = {(await world.start("flow")).id for _ in range(7)}
    await world.run_until_quiet()
    seen: list[str] = []
    after = None
    while True:
        page, after = await letters_list.find(
            world.engine, TENANT, LetterFilter(), limit=2, after=after
        )
        assert len(page) <= 2
        seen += [letter.body["executionId"] for letter in page]
        if after is None:
            break
    assert len(seen) == len(ids)
    assert set(seen) == ids


async def test_a_capture_whose_answer_was_lost_is_done(make: MakeWorld) -> None:
    """Its repeat meets its own letter; what was raised made the neighbours come again."""
    world = await make(work=Flaky())
    create, lost = world.sqlite.create, [True]

    async def answer_lost(*args: Any) -> Any:
        etag = await create(*args)
        if lost:
            lost.clear()
            raise Unavailable("answer lost")
        return etag

    world.sqlite.create = answer_lost  # type: ignore[method-assign]
    capturing = deadletters.capture_dead(
        world.engine, Incoming(body=b"x", message_id="m"), queue="orchestration"
    )
    waiting = asyncio.ensure_future(capturing)
    while not waiting.done():
        await quiesce()
        await world.clock.advance(1_000)
    await waiting
    kept = await world.sqlite.query(EXECUTIONS, Query(partition=documents.SYSTEM_DEAD_LETTERS))
    assert len(kept) == 1
