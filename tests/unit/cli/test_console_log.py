"""The embedded mode's log on a terminal: what a line says, and that it cannot repaint anything."""

from __future__ import annotations

import logging
import sys

import pytest

from orchestrator.local.host.console_log import LineFormatter


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("weft.test").makeRecord(
        "weft.test", logging.WARNING, __file__, 1, message, (), None, extra=extra
    )
    made.created = 1_796_040_000.25
    return made


def test_a_line_has_time_level_message_and_the_ids() -> None:
    one = record("activity attempt failed", execution_id="e1", task_id="fetch", item_index=None,
                 attempt=2, failure="HttpServerError")  # fmt: skip
    assert LineFormatter().format(one) == (
        "2026-11-30 12:00:00 UTC WARNING activity attempt failed "
        "execution_id=e1 task_id=fetch attempt=2 failure=HttpServerError"
    )
    assert " UTC worker 3 WARNING activity" in LineFormatter("worker 3").format(one)


def test_values_are_one_line_of_ascii() -> None:
    line = LineFormatter().format(record("x", error="a b\n\x1b[2J\x9b", frames=["f:1", "g:2"]))
    assert line.endswith(r'x error="a b\n\u001b[2J\u009b" frames=["f:1", "g:2"]')


def test_a_traceback_follows_the_line() -> None:
    one = record("failed", action="x")
    try:
        raise ValueError("why")
    except ValueError:
        one.exc_info = sys.exc_info()
    head, *rest = LineFormatter().format(one).splitlines()
    assert head.endswith("failed action=x")
    assert rest[-1] == "    ValueError: why"


@pytest.mark.parametrize("separator", ["\n", "\r", "\r\n", "\x0b", "\x85", "\u2028"])
def test_a_logged_text_cannot_pass_for_a_line_of_the_log(separator: str) -> None:
    """Neither in a message, nor in an exception's text, nor as a value."""
    forged = f"x{separator}2026-11-30 12:00:01 UTC ERROR all is lost\x1b[2J"
    one = record(forged, workflow=forged)
    try:
        raise ValueError(forged)
    except ValueError:
        one.exc_info = sys.exc_info()
    line = LineFormatter().format(one)
    assert "\x1b" not in line
    head, *rest = line.splitlines()
    assert head.startswith("2026-11-30 12:00:00 UTC WARNING x")
    assert rest
    assert all(other.startswith("    ") for other in rest)
