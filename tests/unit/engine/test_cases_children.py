"""Cases from the field: a parent ends while children start, run, or end. Each test is a race."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from family import child, child_of, child_task, doc, everyone, parent, task_of

from orchestrator.engine import children, control, submit, sweep
from tests.support.definitions import flow, retry, task
from tests.support.world import TENANT, World
from tests.unit.engine.conftest import MakeWorld

ENDED = {"COMPLETED", "FAILED", "CANCELLED"}


async def _cancel(world: World, execution: str) -> None:
    await control.act(world.engine, TENANT, execution, control.CANCEL, by="eve")


async def _sweep_until_silent(world: World, rounds: int = 12) -> None:
    """What nobody tells is found by the sweeper alone, within some minutes."""
    for _ in range(rounds):
        await world.settle()
        await world.clock.advance(61_000)
        await world.sweep()


async def _settled(world: World) -> None:
    """Nothing is left that anybody would have to look at."""
    for id, body in (await everyone(world)).items():
        await world.verified(id)
        assert body["status"] in ENDED, id
        for name in ("task:c", *(f"task:m:{item}" for item in range(60))):
            try:
                stored = await doc(world, id, name)
            except Exception:  # no such document
                continue
            assert "sweepAt" not in stored, (id, stored)


def _levels(wide: int) -> list[dict[str, Any]]:
    """Three generations: a map of children, each with a child that works."""
    do = child_task("middle", input="${item}")
    return [
        flow("leaf", w=task("work", input="${input}"), output="${tasks.w.output}"),
        flow("middle", c=child_task("leaf", input="${input}"), output="${tasks.c.output}"),
        flow("root", m={"type": "map", "items": list(range(wide)), "do": do}),
    ]


async def test_cancel_between_the_commit_that_starts_50_children_and_their_first_message(
    make: MakeWorld,
) -> None:
    """Three levels; none of the descendants does any work."""
    world = await make(work=lambda call: 1)
    for definition in _levels(50):
        await world.publish(definition)
    started = await world.start("root")
    await world.deliver(world.transport.take(world.clock.now()))  # the commit; 50 messages wait
    assert len(world.transport.messages) == 50
    await _cancel(world, started.id)
    await world.settle()
    assert {one["status"] for one in (await everyone(world)).values()} == {"CANCELLED"}
    assert world.activities.calls == []
    await _settled(world)


@pytest.mark.parametrize("seed", range(40))
async def test_cancel_at_a_random_moment_ends_all_descendants(make: MakeWorld, seed: int) -> None:
    """Messages in any order, some lost, the cancel in between: all descendants end CANCELLED or
    had ended, and none starts work after its own cancel is stored."""
    rng = random.Random(seed)
    late: list[str] = []
    cancelled: set[str] = set()

    def work(call: Any) -> int:
        if call.execution in cancelled:
            late.append(call.execution)
        return call.attempt

    world = await make(work=work)
    for definition in _levels(5):
        await world.publish(definition)
    started = await world.start("root")
    moment = rng.randint(1, 40)
    for step in range(200):
        if step == moment:
            await _cancel(world, started.id)
        due = world.transport.messages
        if not due:
            break
        rng.shuffle(due)
        some = [due.pop() for _ in range(min(len(due), rng.randint(1, 4)))]
        if rng.random() < 0.1:
            continue  # lost
        await world.deliver(some)
        cancelled |= {
            id for id, one in (await everyone(world)).items() if one["status"] == "CANCELLED"
        }
    if (await world.view(started.id)).status == "RUNNING":
        await _cancel(world, started.id)
    await _sweep_until_silent(world)
    assert late == []
    await _settled(world)
    root = await world.view(started.id)
    for one in (await everyone(world)).values():
        if root.status == "CANCELLED" and one["status"] != "CANCELLED":
            assert one["state"]["endedAt"] <= int(root.ended_at or 0) + 61_000 * 12
            assert one["status"] == "COMPLETED"


async def test_a_child_submitted_after_its_task_was_closed_cancels_itself(
    make: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker freezes before it submits; meanwhile the parent is cancelled and its task closed
    by another worker. Nobody could stop a child that did not exist yet."""
    world = await make(work=lambda call: 1)
    await world.publish(child())
    await world.publish(parent())
    submitting = submit.start
    frozen: list[str] = []

    async def late(*args: Any, **options: Any) -> Any:
        if options.get("link") is None or frozen:
            return await submitting(*args, **options)
        frozen.append(options["link"].execution)
        await _cancel(world, options["link"].header["parent"])
        other = world.another("worker-2")
        for _ in range(5):
            world.clock.jump(61_000)  # nobody wakes up: no heartbeat
            await sweep.sweep(other)
            await world.settle(other)
        stored = await doc(world, options["link"].header["parent"], "task:c")
        assert stored["status"] == "CANCELLED"
        assert stored["child"]["settled"]
        return await submitting(*args, **options)

    monkeypatch.setattr(children.submit, "start", late)
    started = await world.start("parent")
    await world.settle()
    assert (await world.view(started.id)).status == "CANCELLED"
    born = await world.view(frozen[0])
    assert born.status == "CANCELLED"
    assert world.activities.calls == []
    await _settled(world)


async def test_cancel_while_the_child_is_being_submitted_is_seen_right_afterwards(
    make: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word of the cancel meets the lease of the worker that starts the child."""
    world = await make(work=lambda call: 1)
    await world.publish(child())
    await world.publish(parent())
    submitting = submit.start

    async def crossing(*args: Any, **options: Any) -> Any:
        if (link := options.get("link")) is not None:
            await _cancel(world, link.header["parent"])
            words = [m for m in world.transport.messages if b"runTask" in m.body]
            world.transport.messages = []
            await world.deliver(words)
        return await submitting(*args, **options)

    monkeypatch.setattr(children.submit, "start", crossing)
    started = await world.start("parent")
    await world.settle()
    everybody = await everyone(world)
    assert [one["status"] for one in everybody.values()] == ["CANCELLED"] * 2
    assert (await doc(world, started.id, "task:c"))["status"] == "CANCELLED"
    assert world.activities.calls == []


async def _waiting(world: World, **more: Any) -> tuple[str, str]:
    """A parent whose child's own child waits; ids of parent and child."""
    await world.publish(flow("leaf", w={"type": "wait", "duration": "3h"}, z=task("work", "w")))
    await world.publish(flow("child", c=child_task("leaf")))
    await world.publish(parent(**more))
    started = await world.start("parent")
    await world.settle()
    return started.id, await child_of(world, started.id)


@pytest.mark.parametrize("lost", [False, True])
async def test_cancel_reaches_grandchildren_also_if_every_word_is_lost(
    make: MakeWorld, lost: bool
) -> None:
    """At once by messages; by the sweeper within minutes."""
    world = await make(work=lambda call: 1)
    top, middle = await _waiting(world)
    await _cancel(world, top)
    if lost:
        for _ in range(8):
            world.transport.messages.clear()
            await world.clock.advance(61_000)
            await world.sweep()
    else:
        await world.settle()
    everybody = await everyone(world)
    assert {one["status"] for one in everybody.values()} == {"CANCELLED"}
    assert len(everybody) == 3
    assert (await task_of(world, middle, "c")).status == "CANCELLED"
    await _settled(world)
    await world.run_until_quiet()
    assert world.activities.calls == []


async def test_the_time_limit_of_the_parent_cancels_its_children(make: MakeWorld) -> None:
    """`timeout` of the whole execution."""
    world = await make(work=lambda call: 1)
    await world.publish(flow("child", w={"type": "wait", "duration": "3h"}, z=task("work", "w")))
    await world.publish(flow("parent", c=child_task("child"), timeout="1h"))
    started = await world.start("parent")
    await world.run_until_quiet()
    view = await world.view(started.id)
    assert view.error is not None
    assert (view.status, view.error.type) == ("FAILED", "EXECUTION_TIMEOUT")
    assert (await world.view(await child_of(world, started.id))).status == "CANCELLED"
    assert world.activities.calls == []


async def test_cancel_of_a_child_fails_its_parents_task_and_is_not_tried_again(
    make: MakeWorld,
) -> None:
    """Somebody wanted it to end: another child would be against that wish."""
    world = await make(work=lambda call: 1)
    top, middle = await _waiting(world, retry=retry(3))
    await _cancel(world, middle)
    await world.run_until_quiet()
    view = await world.view(top)
    assert view.error is not None
    assert (view.status, view.error.type) == ("FAILED", "CHILD_CANCELLED")
    assert len(await everyone(world)) == 3


async def test_cancel_of_the_parent_while_the_child_ends_has_one_winner(make: MakeWorld) -> None:
    """The child's word is under way when the parent is cancelled: the child stays COMPLETED."""
    world = await make(work=lambda call: 1)
    await world.publish(child())
    await world.publish(parent())
    started = await world.start("parent")
    while (await everyone(world)).get(started.id, {})["status"] != "RUNNING" or not any(
        one["status"] == "COMPLETED" for one in (await everyone(world)).values()
    ):
        await world.deliver(world.transport.take(world.clock.now()))
    await _cancel(world, started.id)
    await world.settle()
    states = {id: one["status"] for id, one in (await everyone(world)).items()}
    assert states[started.id] == "CANCELLED"
    assert sorted(states.values()) == ["CANCELLED", "COMPLETED"]
    await _settled(world)


async def test_under_fail_fast_a_running_child_ends_by_itself_and_its_result_counts(
    make: MakeWorld,
) -> None:
    """As running attempts do."""

    def fails(call: Any) -> None:
        raise ValueError("no")

    world = await make(work=lambda call: 1, fails=fails)
    await world.publish(flow("child", w={"type": "wait", "duration": "1m"}, z=task("work", "w")))
    await world.publish(flow("parent", c=child_task("child"), f=task("fails", retry=retry(1))))
    started = await world.start("parent")
    await world.run_until_quiet()
    assert (await world.view(started.id)).status == "FAILED"
    assert await world.statuses(started.id) == {"c": "COMPLETED", "f": "DEAD_LETTERED"}
    assert (await world.view(await child_of(world, started.id))).status == "COMPLETED"


async def test_pausing_a_parent_does_not_pause_its_child_and_the_result_is_taken_in(
    make: MakeWorld,
) -> None:
    """Children are executions of their own, to be paused by themselves."""
    world = await make(work=lambda call: 1)
    await world.publish(flow("child", w={"type": "wait", "duration": "1m"}, output="done"))
    await world.publish(
        flow("parent", c=child_task("child"), z=task("work", "c"), output="${tasks.c.output}")
    )
    started = await world.start("parent")
    await world.settle()
    await control.act(world.engine, TENANT, started.id, control.PAUSE, by="eve")
    await world.run_until_quiet()
    assert await world.statuses(started.id) == {"c": "COMPLETED", "z": "PENDING"}
    await control.act(world.engine, TENANT, started.id, control.RESUME, by="eve")
    await world.run_until_quiet()
    assert (await world.view(started.id)).output == "done"


async def test_a_replica_that_lags_behind_the_childs_end_is_asked_again(make: MakeWorld) -> None:
    """Else the word of the end would be taken for a look that came to nothing, for a minute."""
    from orchestrator.domain.topology import EXECUTIONS
    from orchestrator.ports import Document

    stale: dict[str, Document] = {}

    class Lagging:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def read_many(self, container: str, partition: Any, ids: Any) -> Any:
            found = await self._store.read_many(container, partition, ids)
            return {id: stale.pop(id) if id in stale else doc for id, doc in found.items()}

    world = await make(work=lambda call: 1, wrap_store=Lagging)
    await world.publish(child())
    await world.publish(parent())
    started = await world.start("parent")
    while not any(one["status"] == "COMPLETED" for one in (await everyone(world)).values()):
        await world.deliver(world.transport.take(world.clock.now()))
        for id in await everyone(world):
            if id != started.id and id not in stale:
                now = await world.sqlite.read(EXECUTIONS, (TENANT, id), id)
                if now.body["status"] == "RUNNING":
                    stale[id] = now
    assert stale
    await world.settle()
    assert (await world.view(started.id)).status == "RUNNING"
    await world.clock.advance(600)
    await world.settle()
    assert (await world.view(started.id)).status == "COMPLETED"


def test_the_ids_of_children_differ_by_every_part() -> None:
    """Tenant, parent, task, item and number."""
    from orchestrator.domain.kin import child_id

    make: Callable[..., str] = child_id
    ids = {
        make("t", "p", "a", None, 1),
        make("u", "p", "a", None, 1),
        make("t", "q", "a", None, 1),
        make("t", "p", "b", None, 1),
        make("t", "p", "a", 1, 1),
        make("t", "p", "a", None, 2),
        make("t", "p", "a", 11, 1),
    }
    assert len(ids) == 7
    assert all(len(id) == 32 for id in ids)
    assert make("t", "p", "a", None, 1) == make("t", "p", "a", None, 1)
