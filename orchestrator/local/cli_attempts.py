"""The attempts of a task, as a dead letter and `weft show ID TASK` list them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from orchestrator.local.cli_faults import printable
from orchestrator.local.cli_render import failure_lines, table
from orchestrator.local.cli_times import clock, duration


def attempts_table(attempts: Sequence[Mapping[str, Any]]) -> Table | None:
    """Each attempt: when, how long, by which worker, its error; None if there was none."""
    if not attempts:
        return None
    rows = [
        (
            str(entry["attempt"]),
            clock(entry["startedAt"]),
            duration(entry["startedAt"], entry.get("endedAt")),
            printable(entry["worker"]),
            Text(printable("; ".join(failure_lines(entry["error"])) if entry["error"] else "")),
        )
        for entry in attempts
    ]
    return table(("attempt", "started (UTC)", "took", "worker", "error"), rows)
