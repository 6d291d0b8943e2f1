"""Log lines of `weft up`: what they are about is on them, on one line."""

from __future__ import annotations

import logging
from typing import Any

from orchestrator.local.host.logs import Formatter


def line(message: str, **extra: Any) -> str:
    record = logging.makeLogRecord(
        {"name": "orchestrator.engine", "levelname": "WARNING", "msg": message, **extra}
    )
    return Formatter(2).format(record)


def test_a_line_says_what_it_is_about() -> None:
    said = line("circuit breaker is open", action="breaker.changed", dependency="pay.example:443")
    assert said == (
        "worker 2 WARNING orchestrator.engine: circuit breaker is open  "
        "action=breaker.changed dependency=pay.example:443"
    )
    assert line("nothing more") == "worker 2 WARNING orchestrator.engine: nothing more"


def test_values_cannot_forge_lines_or_fields_and_are_cut() -> None:
    said = line("failed", task="a\nworker 9 ERROR x", reason="b task=c", text="x" * 9_999)
    assert "\n" not in said
    assert 'task="a\\nworker 9 ERROR x"' in said
    assert 'reason="b task=c"' in said
    assert len(said) < 400


def test_what_is_no_scalar_is_left_out() -> None:
    assert line("failed", frames=["a", "b"], input={"secret": 1}, until=None).endswith(": failed")
