"""What a log line says, of what it is about, and that nobody can write one who did not log it."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from orchestrator import logs
from orchestrator.engine import telemetry
from orchestrator.local.host.console_log import NO_SOCKETS, SeldomNoSockets
from orchestrator.logs import JsonFormatter, LineFormatter
from orchestrator.ports_telemetry import NoTracer

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FORGED = "x\n2026-11-30 12:00:00 UTC ERROR forged\r\x1b[2J\u2028\x9b"


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
    assert rest[-1] == "  ValueError: why"


def test_a_message_cannot_forge_a_line_nor_repaint_the_terminal() -> None:
    line = LineFormatter().format(record(FORGED))
    assert len(line.splitlines()) == 1
    assert r"x\n2026-11-30 12:00:00 UTC ERROR forged\r\u001b[2J\u2028\u009b" in line
    one = record("failed")
    try:
        raise ValueError(FORGED)
    except ValueError:
        one.exc_info = sys.exc_info()
    _, *rest = LineFormatter().format(one).split("\n")
    assert all(line.startswith("  ") and line.isprintable() for line in rest)


def test_json_is_one_object_a_line_in_ascii() -> None:
    one = record(FORGED, action="a", failure=FORGED, attempt=2, item=None, level="mine")
    line = JsonFormatter("worker 3").format(one)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == {
        "time": "2026-11-30T12:00:00.250Z",
        "level": "WARNING",
        "logger": "weft.test",
        "message": FORGED,
        "process": "worker 3",
        "action": "a",
        "failure": FORGED,
        "attempt": 2,
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_that_was_made_free_of_secrets_is_shown_as_it_is(form: logs.Form) -> None:
    one = record("failed")
    one.exc_text = f"ValueError: ***{FORGED}"
    line = logs.formatter(form).format(one)
    assert "ValueError: ***" in line
    assert all(part.startswith("  ") for part in line.split("\n")[1:])


def test_json_has_the_traceback_in_a_field() -> None:
    one = record("failed")
    try:
        raise ValueError("why")
    except ValueError:
        one.exc_info = sys.exc_info()
    assert json.loads(JsonFormatter().format(one))["exception"].endswith("ValueError: why")


def test_records_carry_the_ids_of_the_work_in_progress() -> None:
    """The inner work's over the outer's, the record's own over both, and none afterwards."""

    def said(**extra: Any) -> dict[str, Any]:
        line = json.loads(JsonFormatter().format(record("x", **extra)))
        return {key: line[key] for key in line.keys() - {"time", "level", "logger", "message"}}

    tracer, trace = NoTracer(), f"00-{TRACE}-{SPAN}-01"
    with (
        telemetry.span(tracer, "a", parent=trace, about={"tenant": "acme", "attempt": 1}),
        telemetry.span(tracer, "b", parent="", about={"task": "pay", "attempt": 2}),
    ):
        assert said() == {"tenant": "acme", "task": "pay", "attempt": 2}
        assert said(task="own")["task"] == "own"
    with telemetry.span(tracer, "a", parent=trace):
        assert said() == {"trace_id": TRACE, "span_id": SPAN}
    assert said() == {}


def test_the_handlers_of_the_worker_take_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = logging.StreamHandler()
    sdk = logging.getLogger("azure.core.pipeline.policies.http_logging_policy")
    monkeypatch.setattr(sdk, "level", logging.NOTSET)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    logs.shape("json")
    assert json.loads(handler.format(record("x")))["message"] == "x"
    assert not sdk.isEnabledFor(logging.INFO)  # a line for each request, with its URL
    logs.shape("text")
    assert "WARNING x" in handler.format(record("x"))


def test_that_no_socket_is_left_is_said_every_now_and_then() -> None:
    said = SeldomNoSockets()
    told: list[float] = []
    for after in (0, 0.1, 9.9, 10, 10.1, -3600):
        one = record(f"{NO_SOCKETS}\nsocket: …")
        one.created += after
        if said.filter(one):
            told.append(after)
    assert told == [0, 10, -3600]
    assert said.filter(record("something else")) is said.filter(record("something else")) is True
