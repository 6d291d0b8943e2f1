"""Processes and stores that fail while a child is started: never two, never none."""

from __future__ import annotations

from typing import Any

import pytest
from family import child, doc, everyone, parent, task_of

from orchestrator.engine import children, submit
from orchestrator.ports import Unavailable
from tests.unit.engine.conftest import MakeWorld


class Crash(BaseException):
    """The process dies."""


@pytest.mark.parametrize("place", ["before", "after"])
async def test_a_crash_around_the_submission_never_starts_two_children(
    make: MakeWorld, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The next worker names the same child, and the task is not charged an attempt."""
    world = await make(work=lambda call: 1)
    await world.publish(child())
    await world.publish(parent())
    submitting, crashes = submit.start, [True, True, True]

    async def dying(*args: Any, **options: Any) -> Any:
        if options.get("link") is None:
            return await submitting(*args, **options)
        if place == "after":
            answer = await submitting(*args, **options)
        if crashes:
            crashes.pop()
            raise Crash
        return answer if place == "after" else await submitting(*args, **options)

    monkeypatch.setattr(children.submit, "start", dying)
    started = await world.start("parent")
    for _ in range(10):
        try:
            await world.settle()
            await world.clock.advance(31_000)
            await world.sweep()
        except Crash:
            continue
    view = await world.view(started.id)
    assert (view.status, view.output) == ("COMPLETED", 1)
    assert len(await everyone(world)) == 2
    shown = await task_of(world, started.id, "c")
    assert shown.attempt == 4
    assert [one.error and one.error.type for one in shown.attempts] == [
        *["LEASE_EXPIRED"] * 3,
        None,
    ]


async def test_a_start_that_kills_every_worker_ends_as_a_dead_letter(
    make: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forgiven, but not for ever; nothing is left that the sweeper would look at."""
    world = await make(work=lambda call: 1)
    await world.publish(child())
    await world.publish(parent())
    submitting = submit.start

    async def dying(*args: Any, **options: Any) -> Any:
        if options.get("link") is not None:
            raise Crash
        return await submitting(*args, **options)

    monkeypatch.setattr(children.submit, "start", dying)
    started = await world.start("parent")
    for _ in range(30):
        try:
            await world.settle()
            await world.clock.advance(61_000)
            await world.sweep()
        except Crash:
            continue
    view = await world.view(started.id)
    assert view.error is not None
    assert (view.status, view.error.type) == ("FAILED", "LEASE_EXPIRED")
    assert "sweepAt" not in await doc(world, started.id, "task:c")


async def test_when_the_store_fails_the_start_is_repeated_without_an_attempt(
    make: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the child exists is not known then; a second one must not be."""
    world = await make(work=lambda call: 1)
    await world.publish(child())
    await world.publish(parent())
    submitting, failing = submit.start, [True, True]

    async def unclear(*args: Any, **options: Any) -> Any:
        answer = await submitting(*args, **options)
        if options.get("link") is not None and failing:
            failing.pop()
            raise Unavailable("the answer was lost")
        return answer

    monkeypatch.setattr(children.submit, "start", unclear)
    started = await world.start("parent")
    for _ in range(4):
        await world.settle()
        await world.clock.advance(31_000)
        await world.sweep()
    assert (await world.view(started.id)).status == "COMPLETED"
    assert len(await everyone(world)) == 2
