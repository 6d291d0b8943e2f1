"""Following an execution until it ends: a live view on a terminal, plain lines in a pipe.

Polls with `?wait=`: the server answers at the end of the execution, or after the short wait, so
the end is seen at once and a long execution costs few requests. Watching never changes an
execution: Ctrl-C, or a server that goes away, leaves it running, and the user is told.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from orchestrator.local.cli_client import Client
from orchestrator.local.cli_faults import (
    DONE,
    FAILED,
    INTERRUPTED,
    UNREACHABLE,
    Fault,
    console,
    print_json,
    printable,
)
from orchestrator.local.cli_render import (
    emit,
    failure_lines,
    letters_of,
    map_text,
    status_text,
    value_text,
)
from orchestrator.local.cli_times import duration

LIVE_WAIT_MS: Final = 300  # between two pictures on a terminal
PLAIN_WAIT_MS: Final = 2_000  # between two lines in a pipe
SILENT_WAIT_MS: Final = 30_000  # --json: only the end matters
WATCHED_TASKS: Final = 500  # of a larger execution only these are looked at one by one
SHOWN_TASKS: Final = 10  # lines of tasks in flight

ENDED: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
IN_FLIGHT: Final = frozenset({"QUEUED", "RUNNING", "RETRYING", "WAITING"})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An execution and (the first of) its tasks at one moment."""

    execution: Mapping[str, Any]
    tasks: Sequence[Mapping[str, Any]]

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.execution["status"] in ENDED

    @property
    def total(self) -> int:
        """Tasks, and items of the maps that have begun."""
        return self.execution["progress"]["total"] + sum(m["count"] for m in self._maps())

    @property
    def done(self) -> int:
        """Settled tasks and items."""
        progress = self.execution["progress"]
        states = ("completed", "skipped", "cancelled", "deadLettered")
        settled = sum(progress.get(state, 0) for state in states)
        return settled + sum(m["completed"] + m["failed"] for m in self._maps())

    def in_flight(self) -> list[Mapping[str, Any]]:
        """Tasks that are being worked on, or wait for something."""
        return [task for task in self.tasks if task["status"] in IN_FLIGHT]

    def _maps(self) -> Iterator[Mapping[str, Any]]:
        return (task["map"] for task in self.tasks if task.get("map"))


def watch(client: Client, id: str, *, as_json: bool = False) -> int:
    """`follow`, for a user who may stop looking: says that the execution goes on, and how to see
    it again. Raises `Fault`."""
    try:
        return follow(client, id, as_json=as_json)
    except KeyboardInterrupt:
        print(f"\nNo longer watching; execution {id} goes on. {_again(id)}", file=sys.stderr)
        return INTERRUPTED
    except Fault as fault:
        if fault.exit_code != UNREACHABLE:
            raise
        raise Fault(
            fault.code,
            f"{fault.message} Execution {id} is not affected by that. {_again(id)}",
            exit_code=fault.exit_code,
            details=fault.details,
            trace_id=fault.trace_id,
        ) from fault


def follow(client: Client, id: str, *, as_json: bool = False) -> int:
    """Follow `id` to its end and show the outcome; DONE or FAILED. Raises `Fault`."""
    if as_json:
        end = _last(_snapshots(client, id, SILENT_WAIT_MS, with_tasks=False))
        print_json(end.execution)
    else:
        out = console()
        end = _live(client, id, out) if out.is_terminal else _plain(client, id, out)
        emit(out, outcome(end.execution))
    return DONE if end.execution["status"] == "COMPLETED" else FAILED


def outcome(execution: Mapping[str, Any]) -> RenderableType:
    """How it ended, with output or error."""
    line = status_text(execution["status"])
    line.append(f"  {printable(execution['id'])}", "bold")
    took = duration(execution.get("startedAt"), execution.get("endedAt"))
    line.append(f"  in {took}" if took else "", "dim")
    parts: list[RenderableType] = [line]
    if execution.get("error"):
        parts += [Text(f"  {text}", "red") for text in failure_lines(execution["error"])]
    if execution.get("output") is not None:
        parts.append(Text(f"  output: {value_text(execution['output'], full=False)}"))
    if execution["progress"].get("deadLettered"):
        parts.append(Text(f"  see: {letters_of(execution)}", "dim"))
    return Group(*parts)


def _again(id: str) -> str:
    return f"Watch it again with: weft watch {id}"


def _snapshots(
    client: Client, id: str, wait_ms: int, *, with_tasks: bool = True
) -> Iterator[Snapshot]:
    """One now, then one per wait, the last one at the end."""
    execution = client.execution(id)
    while True:
        tasks = client.tasks(id, limit=WATCHED_TASKS)["items"] if with_tasks else ()
        snapshot = Snapshot(execution, tasks)
        yield snapshot
        if snapshot.ended:
            return
        execution = client.execution(id, wait_ms=wait_ms)


def _last(snapshots: Iterator[Snapshot]) -> Snapshot:
    last = next(snapshots)
    for last in snapshots:  # noqa: B007 - the last one is what is wanted
        pass
    return last


def _plain(client: Client, id: str, out: Console) -> Snapshot:
    """A line whenever something has moved."""
    shown = ""
    snapshot: Snapshot | None = None
    for snapshot in _snapshots(client, id, PLAIN_WAIT_MS):
        line = f"{snapshot.execution['status']} {snapshot.done}/{snapshot.total}"
        names = [_task_line(task).plain for task in snapshot.in_flight()[:SHOWN_TASKS]]
        if names:
            line += f": {', '.join(names)}"
        if line != shown:
            emit(out, Text(line))
            out.file.flush()
            shown = line
    assert snapshot is not None  # the generator gives one or raises
    return snapshot


def _live(client: Client, id: str, out: Console) -> Snapshot:
    """A progress bar over tasks and map items, and under it the tasks in flight."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=40),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=out,
    )
    row = bar.add_task(id, total=None)
    snapshot: Snapshot | None = None
    with Live(bar, console=out, refresh_per_second=8, transient=False) as live:
        for snapshot in _snapshots(client, id, LIVE_WAIT_MS):
            bar.update(
                row,
                description=f"{snapshot.execution['workflow']} {snapshot.execution['status']}",
                completed=snapshot.done,
                total=snapshot.total,
            )
            live.update(Group(bar, *_flight_lines(snapshot)), refresh=True)
    assert snapshot is not None  # the generator gives one or raises
    return snapshot


def _flight_lines(snapshot: Snapshot) -> list[Text]:
    tasks = snapshot.in_flight()
    lines = [Text("  ").append_text(_task_line(task)) for task in tasks[:SHOWN_TASKS]]
    if len(tasks) > SHOWN_TASKS:
        lines.append(Text(f"  … and {len(tasks) - SHOWN_TASKS} more", "dim"))
    if snapshot.execution["progress"]["total"] > len(snapshot.tasks):
        lines.append(Text(f"  (only the first {len(snapshot.tasks)} tasks are shown)", "dim"))
    return lines


def _task_line(task: Mapping[str, Any]) -> Text:
    line = Text(printable(task["id"]), "bold").append(" ").append_text(status_text(task["status"]))
    if task.get("map"):
        line.append(f" {map_text(task['map'])}")
    if (task.get("attempt") or 0) > 1:
        line.append(f" attempt {task['attempt']}", "magenta")
    return line
