"""Plain activities in their threads: they block, hang, return late; the loop goes on.

Nothing here sleeps to let something happen: threads are held and released by events.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from activities_support import (
    WAIT,
    Gate,
    cancelled_run,
    failure_from,
    make_call,
    runner_of,
    until_ended,
)

from activities import Context


async def test_a_blocking_call_does_not_starve_the_loop() -> None:
    gate = Gate()
    beats: list[int] = []

    async def beat(input: int) -> int:
        beats.append(input)
        return input

    def hold(ctx: Context) -> str:
        return gate.hold(ctx)

    runner = runner_of(hold, beat)
    held = asyncio.create_task(runner.run(make_call("hold")))
    async with asyncio.timeout(WAIT):
        await gate.started.wait()
        # The plain call blocks its thread; the loop (lease renewal, other tasks) goes on.
        for number in range(50):
            assert await runner.run(make_call("beat", number)) == number
        assert not held.done()
        gate.release.set()
        assert await held == "late"
    assert beats == list(range(50))
    assert runner.stuck() == 0
    assert gate.thread is not None
    assert gate.thread.daemon


async def test_one_hung_call_leaves_its_seven_neighbours_alone() -> None:
    gate = Gate()
    done = threading.Barrier(7)

    def hold(ctx: Context) -> str:
        return gate.hold(ctx)

    def neighbour(input: int) -> int:
        done.wait(WAIT)  # all seven at once, beside the hung one
        return input

    runner = runner_of(hold, neighbour)
    hung = make_call("hold", attempt=1)
    runs = [asyncio.create_task(runner.run(make_call("neighbour", n))) for n in range(7)]
    await cancelled_run(runner, hung, gate.started)
    assert await asyncio.gather(*runs) == list(range(7))
    assert runner.stuck() == 1

    # Attempt 2 of the same task runs while the late thread returns: each has its own result.
    late, gate.release, gate.started = gate.release, threading.Event(), asyncio.Event()
    second = asyncio.create_task(runner.run(make_call("hold", attempt=2)))
    async with asyncio.timeout(WAIT):
        await gate.started.wait()
    late.set()
    await until_ended(runner)
    assert not second.done()
    gate.release.set()
    assert await second == "late"


async def test_late_heartbeats_and_results_of_an_abandoned_call_are_ignored() -> None:
    loop = asyncio.get_running_loop()
    started, release = asyncio.Event(), threading.Event()
    seen: list[Any] = []

    def late(ctx: Context) -> str:
        ctx.heartbeat({"step": 1})
        loop.call_soon_threadsafe(started.set)
        assert release.wait(WAIT)
        ctx.heartbeat({"step": 2})
        seen.append(ctx.cancelled)
        try:
            ctx.raise_if_cancelled()
        except Exception:  # what careless code catches
            seen.append("swallowed")
        return "late"

    runner = runner_of(late)
    call = make_call("late")
    await cancelled_run(runner, call, started)
    release.set()
    await until_ended(runner)
    assert call.heartbeat_details == {"step": 1}
    assert seen == [True]


async def test_forty_hung_calls_show_and_saturation_is_told_not_silent() -> None:
    loop = asyncio.get_running_loop()
    release = threading.Event()
    running = 0
    all_running = asyncio.Event()

    def count() -> None:
        nonlocal running
        running += 1
        if running == 40:
            all_running.set()

    def hang() -> None:
        loop.call_soon_threadsafe(count)
        assert release.wait(WAIT)

    async def quick() -> int:
        return 1

    runner = runner_of(hang, quick, max_abandoned=40)
    runs = [asyncio.create_task(runner.run(make_call("hang"))) for _ in range(40)]
    async with asyncio.timeout(WAIT):
        await all_running.wait()
    assert runner.stuck() == 0  # running is not stuck
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)
    assert runner.stuck() == 40

    failure = await failure_from(runner.run(make_call("hang")))
    assert failure.type == "WORKER_SATURATED"
    assert failure.retryable
    assert "40 hung calls" in failure.message
    assert await runner.run(make_call("quick")) == 1  # the loop is not affected

    release.set()
    await until_ended(runner)
    assert await runner.run(make_call("hang")) is None


async def test_threads_are_reused_and_idle_ones_end() -> None:
    threads: set[threading.Thread] = set()

    def where() -> None:
        threads.add(threading.current_thread())

    runner = runner_of(where)
    for _ in range(20):
        await runner.run(make_call("where"))
    assert len(threads) == 1
    await runner.close()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()


async def test_idle_thread_ends_by_itself_and_the_next_call_gets_a_new_one() -> None:
    def where() -> int:
        return threading.get_ident()

    def current():  # type: ignore[no-untyped-def]
        found.append(threading.current_thread())

    found: list[threading.Thread] = []
    runner = runner_of(current, idle_seconds=0.001)
    await runner.run(make_call("current"))
    await asyncio.to_thread(found[0].join, WAIT)
    assert not found[0].is_alive()
    await runner.run(make_call("current"))
    assert found[1] is not found[0]
    await asyncio.to_thread(found[1].join, WAIT)


async def test_context_variables_reach_the_thread_and_do_not_leak_back() -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    def read() -> str:
        found = variable.get()
        variable.set("changed")
        return found

    async def read_async() -> str:
        return read()

    variable.set("outer")
    runner = runner_of(read, read_async)
    assert await runner.run(make_call("read")) == "outer"
    assert await runner.run(make_call("read_async")) == "outer"
    assert variable.get() == "outer"


async def test_a_call_cancelled_after_its_thread_finished_is_not_stuck() -> None:
    finished = threading.Event()

    def quick() -> int:
        finished.set()
        return 1

    runner = runner_of(quick)
    run = asyncio.create_task(runner.run(make_call("quick")))
    await asyncio.sleep(0)  # it has started the thread
    assert finished.wait(WAIT)  # the loop is blocked: the result cannot have arrived
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await until_ended(runner)


def test_closed_loop_is_no_trouble_for_a_late_thread() -> None:
    release, ended = threading.Event(), threading.Event()

    async def main() -> threading.Thread:
        gate = Gate()

        def hold(ctx: Context) -> str:
            try:
                gate.hold(ctx)
                assert release.wait(WAIT)
                return "late"
            finally:
                ended.set()

        gate.release.set()
        run = asyncio.create_task(runner_of(hold).run(make_call("hold")))
        await gate.started.wait()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert gate.thread is not None
        return gate.thread

    thread = asyncio.run(main())
    release.set()
    assert ended.wait(WAIT)
    thread.join(WAIT)
    assert not thread.is_alive()
