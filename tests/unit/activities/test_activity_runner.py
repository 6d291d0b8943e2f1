"""One attempt, whatever the activity does: fail, exit, hang, return late, swallow cancellation.

Nothing here sleeps to let something happen: threads are held and released by events.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from activities_support import WAIT, failure_from, make_call, runner_of

from activities import Cancelled, Context, PermanentError, RetryableError
from activities.runner import Runner
from orchestrator.domain.failure import TRUNCATION_MARK
from orchestrator.domain.topology import MAX_ERROR_BYTES
from orchestrator.ports import ActivityCall


async def until_ended(runner: Runner) -> None:
    """Let the loop run until nothing is stuck any more."""
    async with asyncio.timeout(WAIT):
        while runner.stuck():  # noqa: ASYNC110 - an abandoned thread tells nobody
            await asyncio.sleep(0.001)


async def cancelled_run(runner: Runner, call: ActivityCall, started: asyncio.Event) -> None:
    """Start, wait until it runs, cancel, and see that `run` returns at once."""
    run = asyncio.create_task(runner.run(call))
    async with asyncio.timeout(WAIT):
        await started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert call.cancelled


class Gate:
    """A plain activity that tells that it runs, and waits until it is let go."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.started = asyncio.Event()
        self.release = threading.Event()
        self.thread: threading.Thread | None = None

    def hold(self, ctx: Context) -> str:
        self.thread = threading.current_thread()
        release = self.release
        self.loop.call_soon_threadsafe(self.started.set)
        assert release.wait(WAIT)
        return "late"


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


# --- failures -------------------------------------------------------------------------------------


class CardDeclined(PermanentError):
    """An author's own type."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


def chained() -> None:
    try:
        try:
            raise OSError("disk")
        except OSError as exc:
            raise KeyError("cfg") from exc
    except KeyError as exc:
        raise ValueError("bad order") from exc


def looping() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def endless() -> None:
    error: Exception = ValueError("0")
    for number in range(1, 100):
        outer = ValueError(str(number))
        outer.__cause__ = error
        error = outer
    raise error


def grouped() -> None:
    raise ExceptionGroup("several", [ValueError("one"), TypeError("two")])


def hidden() -> None:
    try:
        raise OSError("inner")
    except OSError:
        raise ValueError("outer") from None


def raising(error: BaseException | type[BaseException]) -> Any:
    """A plain and an async activity that raise `error`."""

    def plain() -> None:
        raise error

    async def coroutine() -> None:
        raise error

    return plain, coroutine


async def both(error: BaseException | type[BaseException]) -> Any:
    """The failure that `error` becomes, the same on both roads."""
    runner = runner_of(*raising(error))
    plain = await failure_from(runner.run(make_call("plain")))
    assert plain == await failure_from(runner.run(make_call("coroutine")))
    return plain


@pytest.mark.parametrize(
    ("error", "kind", "message", "retryable", "retry_after_ms"),
    [
        (ConnectionError("reset"), "ConnectionError", "reset", True, None),
        (ConnectionError, "ConnectionError", "ConnectionError()", True, None),
        (PermanentError("no"), "PermanentError", "no", False, None),
        (CardDeclined("no"), "CardDeclined", "no", False, None),
        (PermanentError("no", type="Gone"), "Gone", "no", False, None),
        (RetryableError("later", retry_after=1.5), "RetryableError", "later", True, 1500),
        (RetryableError("later", retry_after=-5), "RetryableError", "later", True, None),
        (RetryableError("x", retry_after=float("nan"), type="T"), "T", "x", True, None),
        (RetryableError("x", retry_after=1e9), "RetryableError", "x", True, 86_400_000),
        (Unprintable(), "Unprintable", "(no text: making it raised RuntimeError)", True, None),
        (TimeoutError("mine"), "TimeoutError", "mine", True, None),
        (MemoryError(), "MemoryError", "MemoryError()", True, None),
        (Cancelled("x"), "Cancelled", "x", True, None),
        (
            SystemExit(3), "ACTIVITY_EXITED",
            "the activity tried to end the process (SystemExit: 3)", True, None,
        ),
        (
            KeyboardInterrupt(), "ACTIVITY_EXITED",
            "the activity tried to end the process (KeyboardInterrupt: KeyboardInterrupt())",
            True, None,
        ),
        (
            asyncio.CancelledError(), "CancelledError",
            "the activity was cancelled from within, not by Weft", True, None,
        ),
        (GeneratorExit(), "GeneratorExit", "GeneratorExit()", True, None),
    ],
)  # fmt: skip
async def test_every_exception_becomes_a_failure(
    error: BaseException, kind: str, message: str, retryable: bool, retry_after_ms: int | None
) -> None:
    failure = await both(error)
    assert failure.type == kind
    assert failure.message == message
    assert failure.retryable is retryable
    assert failure.retry_after_ms == retry_after_ms


async def test_stop_iteration_does_not_break_the_loop() -> None:
    plain, coroutine = raising(StopIteration("x"))
    runner = runner_of(plain, coroutine)
    assert (await failure_from(runner.run(make_call("plain")))).type == "StopIteration"
    failure = await failure_from(runner.run(make_call("coroutine")))
    assert [failure.type, failure.causes[0].type] == ["RuntimeError", "StopIteration"]


async def test_causes_follow_the_chain_as_python_prints_it() -> None:
    async def causes(function: Any) -> list[tuple[str, str]]:
        failure = await failure_from(runner_of(function).run(make_call(function.__name__)))
        return [(f.type, f.message) for f in (failure, *failure.causes)]

    assert await causes(chained) == [
        ("ValueError", "bad order"), ("KeyError", "'cfg'"), ("OSError", "disk"),
    ]  # fmt: skip
    assert await causes(looping) == [("ValueError", "first"), ("ValueError", "second")]
    assert await causes(hidden) == [("ValueError", "outer")]
    assert (await causes(grouped))[1:] == [("ValueError", "one"), ("TypeError", "two")]
    endless_chain = await causes(endless)
    assert [message for _, message in endless_chain] == [str(n) for n in range(99, 90, -1)]


async def test_error_text_of_three_megabytes_is_bounded_with_a_mark() -> None:
    def huge() -> None:
        try:
            raise ValueError("é" * 3_000_000)
        except ValueError as exc:
            raise RuntimeError("ü" * 3_000_000) from exc

    failure = await failure_from(runner_of(huge).run(make_call("huge")))
    texts = [failure, *failure.causes]
    assert sum(len(f.type.encode()) + len(f.message.encode()) for f in texts) <= MAX_ERROR_BYTES
    assert all(f.message.endswith(TRUNCATION_MARK) for f in texts)


async def test_nul_and_surrogates_in_error_text_can_be_stored() -> None:
    def raise_it() -> None:
        raise ValueError("a\x00b\ud800")

    failure = await failure_from(runner_of(raise_it).run(make_call("raise_it")))
    assert failure.message == "a\x00b\ufffd"
    failure.message.encode()


async def test_plain_function_that_returns_a_coroutine_is_told() -> None:
    async def inner() -> int:
        return 1

    def plain():  # type: ignore[no-untyped-def]
        return inner()

    failure = await failure_from(runner_of(plain).run(make_call("plain")))
    assert "make it `async def`" in failure.message
    assert not failure.retryable


async def test_a_failure_is_logged_with_ids_and_place_but_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def leak(input: dict[str, str]) -> None:
        raise ValueError(f"card {input['card']}")

    await failure_from(runner_of(leak).run(make_call("leak", {"card": "4711"}, attempt=3)))
    (record,) = [r for r in caplog.records if r.name == "weft.activity"]
    fields = vars(record)
    assert (fields["activity"], fields["attempt"], fields["failure"]) == ("leak", 3, "ValueError")
    assert fields["frames"][-1].endswith(" leak")
    assert "4711" not in str(fields)


# --- async activities -----------------------------------------------------------------------------


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
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    runner = runner_of(stubborn)
    call = make_call("stubborn")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(runner.run(call), 0.01)
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
