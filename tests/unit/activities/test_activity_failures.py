"""Every way in which an activity can fail becomes one bounded failure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from activities_support import (
    failure_from,
    make_call,
    runner_of,
)

from activities import Cancelled, PermanentError, RetryableError
from orchestrator.domain.failure import TRUNCATION_MARK
from orchestrator.domain.topology import MAX_ERROR_BYTES


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
