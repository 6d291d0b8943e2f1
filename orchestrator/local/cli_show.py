"""`weft show`: an execution with its tasks as a tree, or one task with all that is known of it.

The tree says which task failed; why is mostly a question of what it was given, what it gave, and
which attempts it took. Without the second form that would be answered by the API alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.local.cli_attempts import attempts_table
from orchestrator.local.cli_client import Client, segment
from orchestrator.local.cli_faults import DONE, console, print_json, printable
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Id, Url
from orchestrator.local.cli_render import (
    emit,
    execution_view,
    failure_lines,
    map_text,
    status_text,
    value_text,
)
from orchestrator.local.cli_times import clock, duration

_ITEM: Final = re.compile(r"(?P<task>.+)\[(?P<item>[0-9]+)\]")


class TaskClient(Client):
    """A `Client` that also knows single tasks."""

    def task(self, id: str, task: str) -> dict[str, Any]:
        """One task of an execution, or one item of a map as `TASK[3]`, with all that is known."""
        found = _ITEM.fullmatch(task)
        name, params = (found["task"], {"item": found["item"]}) if found else (task, {})
        path = f"/v1/executions/{segment(id, 'execution id')}/tasks/{segment(name, 'task id')}"
        return self._call("GET", path, params=params)


def show(
    id: Id,
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="One task of it; an item of a map: `TASK[3]`.")
    ] = "",
    full: Annotated[bool, typer.Option("--full", help="Do not abbreviate input, output.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Show an execution and its tasks as a tree by needs; or one task, its output, its attempts."""
    with TaskClient(url) as client:
        if task:
            one = client.task(id, task)
            print_json(one) if as_json else emit(console(), task_view(id, one, full=full))
            return DONE
        execution = client.execution(id)
        tasks = client.tasks(id)["items"]
    if as_json:
        print_json({**execution, "tasks": tasks})
    else:
        emit(console(), execution_view(execution, tasks, full=full))
    return DONE


def task_view(execution: str, task: Mapping[str, Any], *, full: bool) -> RenderableType:
    """One task (or item of a map): where it stands, what it gave, and each attempt."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    item = task.get("item")
    name = task["id"] if item is None else f"{task['id']}[{item}]"
    grid.add_row("task", Text(printable(name), "bold"))
    grid.add_row("execution", printable(execution))
    grid.add_row("type", str(task["type"]))
    grid.add_row("status", status_text(task["status"]))
    if task.get("reason"):
        grid.add_row("skipped", printable(task["reason"]))
    for label, key in (("child", "child"), ("orchestration", "instance"), ("signal", "signal")):
        if task.get(key):
            grid.add_row(label, printable(task[key]))
    if task.get("map"):
        grid.add_row("items", f"{map_text(task['map'])}; one of them: TASK[0]")
    elif task.get("startedAt"):
        grid.add_row("started", f"{clock(task['startedAt'])} UTC")
        grid.add_row("took", duration(task["startedAt"], task.get("endedAt")))
    for label, key in (("next attempt", "nextAttemptAt"), ("due", "dueAt")):
        if task.get(key):
            grid.add_row(label, f"{clock(task[key])} UTC")
    if task.get("lease"):
        grid.add_row("worker", printable(task["lease"]["worker"]))
    grid.add_row("retry", _retry(task))
    if task.get("output") is not None:
        grid.add_row("output", value_text(task["output"], full=full))
    if task.get("error"):
        grid.add_row("error", Text("\n".join(failure_lines(task["error"])), "red"))
    attempts = attempts_table(task.get("attempts") or ())
    return grid if attempts is None else Group(grid, Text(""), attempts)


def _retry(task: Mapping[str, Any]) -> str:
    retry = task["retry"]
    return f"up to {retry['maxAttempts']} attempts, each at most {task['timeoutMs'] / 1000:g} s"


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(show)
