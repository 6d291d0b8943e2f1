"""Async activities: cancelled politely, not at all, or by themselves."""

from __future__ import annotations

import asyncio

import pytest
from activities_support import (
    WAIT,
    cancelled_run,
    failure_from,
    make_call,
    runner_of,
    until_ended,
)


async def test_cancelling_an_async_activity_runs_its_clean_up() -> None:
    started, cleaned = asyncio.Event(), asyncio.Event()

    async def polite() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    runner = runner_of(polite)
    await cancelled_run(runner, make_call("polite"), started)
    await until_ended(runner)
    assert cleaned.is_set()


async def test_async_activity_that_swallows_cancellation_does_not_hold_the_caller() -> None:
    started, release, swallowed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn() -> str:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                swallowed.set()
        return "late"

    runner = runner_of(stubborn)
    await cancelled_run(runner, make_call("stubborn"), started)
    async with asyncio.timeout(WAIT):
        await swallowed.wait()
    assert runner.stuck() == 1
    release.set()
    await until_ended(runner)
    assert runner.stuck() == 0


async def test_wait_for_ends_at_the_timeout_although_the_activity_does_not() -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    runner = runner_of(stubborn)
    call = make_call("stubborn")
    running = asyncio.create_task(runner.run(call))
    await started.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(running, 0.01)
    assert call.cancelled
    assert runner.stuck() == 1
    release.set()
    await until_ended(runner)


async def test_activity_that_cancels_its_own_task_is_a_failure() -> None:
    async def waiting() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    async def returning() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    runner = runner_of(waiting, returning)
    for name in ("waiting", "returning"):
        call = make_call(name)
        assert (await failure_from(runner.run(call))).type == "CancelledError"
        assert not call.cancelled
