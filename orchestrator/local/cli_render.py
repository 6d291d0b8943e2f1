"""How executions, tasks and histories look in a terminal.

Pure: API answers in, rich renderables out. Every text of a user goes through `printable`, because
an activity's message may hold escape sequences.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.local.cli_faults import printable
from orchestrator.local.cli_origin import origin
from orchestrator.local.cli_times import clock, duration

STYLES: Final[dict[str, str]] = {
    "COMPLETED": "green",
    "FAILED": "bold red",
    "DEAD_LETTERED": "bold red",
    "CANCELLED": "yellow",
    "SKIPPED": "dim",
    "RUNNING": "cyan",
    "RETRYING": "magenta",
    "WAITING": "blue",
    "QUEUED": "blue",
    "PENDING": "dim",
}

SETTLED: Final = frozenset({"COMPLETED", "SKIPPED", "CANCELLED", "DEAD_LETTERED"})
"""Task states that do not change by themselves."""

ABBREVIATED_CHARACTERS: Final = 400  # of an input or output, unless --full
GAP: Final = 2  # cells between two columns
SHORT_CELLS: Final = 14  # of a column of single words, such as statuses, and its gap
WHOLE_CELLS: Final = 60  # of all columns that are never folded; terminals mostly have 80
MAX_INDENT: Final = 12  # levels of the task tree; deeper tasks name their needs instead


def status_text(status: str) -> Text:
    """A status in its colour."""
    return Text(printable(status), STYLES.get(status, ""))


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """An unframed table whose cells are never cut, only folded on a narrow terminal: those of the
    first column and short words last, because they are copied, or read at a glance."""
    cells = list(rows)
    grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    left = WHOLE_CELLS
    for at, column in enumerate(columns):
        longest = max((cell_len(str(row[at])) for row in cells), default=0) + GAP
        whole = longest <= (left if at == 0 else min(left, SHORT_CELLS))
        left -= longest if whole else 0
        grid.add_column(column, overflow="fold", no_wrap=whole)
    for row in cells:
        grid.add_row(*row)
    return grid


def emit(out: Console, renderable: RenderableType) -> None:
    """Print; in a pipe without the padding that tables put at the end of a line."""
    if out.is_terminal:
        out.print(renderable)
        return
    with out.capture() as capture:
        out.print(renderable)
    for line in capture.get().splitlines():
        out.file.write(line.rstrip() + "\n")


def value_text(value: Any, *, full: bool) -> str:
    """A JSON value on one line (or all of it, indented, with `full`)."""
    if full:
        return printable(json.dumps(value, indent=2, ensure_ascii=False))
    text = printable(json.dumps(value, ensure_ascii=False))
    if len(text) <= ABBREVIATED_CHARACTERS:
        return text
    return f"{text[:ABBREVIATED_CHARACTERS]} … ({len(text)} characters; --full shows all)"


def failure_lines(failure: Mapping[str, Any]) -> list[str]:
    """A failure and its causes, a line each."""
    where = str(failure.get("task") or "")
    if where and failure.get("item") is not None:
        where += f"[{failure['item']}]"
    head = f"{failure.get('type', '')}: {failure.get('message', '')}"
    lines = [printable(f"{where}: {head}" if where else head)]
    if failure.get("field"):
        lines.append(printable(f"at {failure['field']}"))
    if failure.get("expression"):
        lines.append(printable(f"in {failure['expression']}"))
    for cause in failure.get("causes") or ():
        line = printable(f"caused by {cause.get('type', '')}: {cause.get('message', '')}")
        if line != lines[-1]:  # clients wrap an error of theirs in the same words
            lines.append(line)
    return lines


# --- one execution --------------------------------------------------------------------------------


def execution_header(execution: Mapping[str, Any], *, full: bool) -> RenderableType:
    """What an execution is, where it stands, its input, output and error."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    grid.add_row("execution", Text(printable(execution["id"]), "bold"))
    grid.add_row("workflow", f"{execution['workflow']} version {execution['version']}")
    for label, text in origin(execution):
        grid.add_row(label, Text(printable(text)))
    status = status_text(execution["status"])
    grid.add_row(
        "status", status.append(" (terminated)") if execution.get("terminated") else status
    )
    grid.add_row("created", f"{clock(execution['createdAt'])} UTC")
    took = duration(execution.get("startedAt"), execution.get("endedAt"))
    if took:
        grid.add_row("took", took)
    if execution.get("deadlineAt") and not execution.get("endedAt"):
        grid.add_row("deadline", f"{clock(execution['deadlineAt'])} UTC")
    if execution.get("priority", "standard") != "standard":
        grid.add_row("priority", execution["priority"])
    if execution.get("tags"):
        tags = ", ".join(f"{key}={value}" for key, value in execution["tags"].items())
        grid.add_row("tags", printable(tags))
    grid.add_row("tasks", progress_text(execution["progress"]))
    if execution.get("orchestration"):
        grid.add_row("durable", Text(orchestration_text(execution["orchestration"], full=full)))
    if execution.get("compensation"):
        grid.add_row("undone", printable(compensation_text(execution["compensation"])))
    for name in ("input", "output"):
        if execution.get(name) is not None:
            grid.add_row(name, value_text(execution[name], full=full))
    if execution.get("error"):
        grid.add_row("error", Text("\n".join(failure_lines(execution["error"])), "red"))
    if execution["progress"].get("deadLettered"):
        grid.add_row("see", letters_of(execution))
    return grid


def orchestration_text(shown: Mapping[str, Any], *, full: bool) -> str:
    """What Durable Functions says of a code workflow, and the status that its author set."""
    if shown.get("note"):
        return printable(shown["note"])
    custom = shown.get("customStatus")
    said = "" if custom is None else f"  {value_text(custom, full=full)}"
    return printable(shown.get("status") or "") + said


def letters_of(execution: Mapping[str, Any]) -> str:
    """The command that lists what failed for good in it, and can be decided about."""
    return printable(f"weft deadletters list --execution {execution['id']}")


def progress_text(progress: Mapping[str, Any]) -> str:
    """`4 tasks: 3 completed, 1 waiting`."""
    names = {
        "completed": "completed",
        "waiting": "waiting",
        "queued": "queued",
        "pending": "pending",
        "skipped": "skipped",
        "cancelled": "cancelled",
        "deadLettered": "dead-lettered",
    }
    parts = [f"{progress[key]} {name}" for key, name in names.items() if progress.get(key)]
    total = progress.get("total", 0)
    return f"{total} task{'' if total == 1 else 's'}" + (f": {', '.join(parts)}" if parts else "")


def compensation_text(compensation: Mapping[str, Any]) -> str:
    """`1/3 (running), failed: charge~undo, to come: reserve~undo`."""
    text = f"{compensation['done']}/{compensation['tasks']} ({compensation['status']})"
    if compensation.get("failed"):
        text += f", failed: {', '.join(compensation['failed'])}"
    if compensation.get("left"):
        running = compensation["status"] == "running"
        text += f", {'to come' if running else 'left'}: {', '.join(compensation['left'])}"
    return text


def task_rows(tasks: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any], list[str]]]:
    """Tasks as a tree: (branch drawing, task, needs that the drawing does not show).

    A task hangs under its deepest need. A task with several needs, or below `MAX_INDENT` levels,
    lists those that its place does not show. No recursion: a chain may be 10,000 tasks long.
    """
    by_id = {task["id"]: task for task in tasks}
    depth: dict[str, int] = {}
    parent: dict[str, str | None] = {}
    for task in _in_order(tasks, by_id):
        known = [need for need in task.get("needs") or () if need in by_id]
        parent[task["id"]] = max(known, key=lambda need: depth[need], default=None)
        above = parent[task["id"]]
        depth[task["id"]] = 0 if above is None else depth[above] + 1
    children: dict[str | None, list[str]] = defaultdict(list)
    for task in tasks:
        children[parent[task["id"]]].append(task["id"])
    rows: list[tuple[str, Mapping[str, Any], list[str]]] = []
    stack: list[tuple[str, str, bool]] = [
        (id, "", id == children[None][-1]) for id in reversed(children[None])
    ]
    while stack:
        id, indent, last = stack.pop()
        level, above = depth[id], parent[id]
        shown = {above} if level <= MAX_INDENT else set()
        hidden = [need for need in by_id[id].get("needs") or () if need not in shown]
        branch = "" if level == 0 else "└─ " if last else "├─ "
        rows.append((indent + branch, by_id[id], hidden))
        below = indent
        if 0 < level < MAX_INDENT:
            below += "   " if last else "│  "
        for child in reversed(children[id]):
            stack.append((child, below, child == children[id][-1]))
    return rows


def _in_order(
    tasks: Sequence[Mapping[str, Any]], by_id: Mapping[str, Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Needs before the tasks that need them; a page of tasks may not have all needs."""
    missing = {task["id"]: sum(need in by_id for need in task.get("needs") or ()) for task in tasks}
    needed_by: dict[str, list[str]] = defaultdict(list)
    for task in tasks:
        for need in task.get("needs") or ():
            needed_by[need].append(task["id"])
    ready = [task["id"] for task in tasks if missing[task["id"]] == 0]
    for id in ready:  # grows while it is read
        for follower in needed_by[id]:
            missing[follower] -= 1
            if missing[follower] == 0:
                ready.append(follower)
    return [by_id[id] for id in ready]


def task_tree(tasks: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The tasks of an execution with their states, attempts, times and errors."""
    rows = []
    for branch, task, hidden in task_rows(tasks):
        # Of a map, what is stored is the last step alone, which puts the results together.
        began = None if task.get("map") else task.get("startedAt")
        rows.append(
            (
                Text(branch, "dim").append(printable(task["id"]), "not dim"),
                str(task["type"]),
                status_text(task["status"]),
                str(task.get("attempt") or ""),
                clock(began)[11:],
                duration(began, task.get("endedAt")),
                _notes(task, hidden),
            )
        )
    return table(("task", "type", "status", "attempt", "started", "took", ""), rows)


def _notes(task: Mapping[str, Any], hidden_needs: Sequence[str]) -> Text:
    notes: list[str] = []
    if hidden_needs:
        notes.append(f"needs {', '.join(hidden_needs)}")
    if task.get("reason"):
        notes.append(f"skipped: {task['reason']}")
    if task.get("map"):
        notes.append(map_text(task["map"]))
    if task.get("child"):
        notes.append(f"child {task['child']}")
    if task.get("instance"):
        notes.append(f"orchestration {task['instance']}")
    if task.get("signal") and task["status"] not in SETTLED:
        notes.append(f"signal {task['signal']}")
    if task.get("nextAttemptAt"):
        notes.append(f"next attempt {clock(task['nextAttemptAt'])[11:]}")
    if task.get("dueAt") and task["status"] not in SETTLED:
        notes.append(f"due {clock(task['dueAt'])}")
    if task.get("deadlineAt"):
        notes.append(f"deadline {clock(task['deadlineAt'])}")
    text = Text(printable("; ".join(notes)))
    if task.get("error"):
        text.append("; " if notes else "")
        text.append("; ".join(failure_lines(task["error"])), "red")
    return text


def map_text(progress: Mapping[str, Any]) -> str:
    """`250/500 items, 32 in flight, 1 failed`."""
    text = f"{progress['completed']}/{progress['count']} items"
    if progress.get("queued"):
        text += f", {progress['queued']} in flight"
    if progress.get("failed"):
        text += f", {progress['failed']} failed"
    return text


def execution_view(
    execution: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], *, full: bool
) -> RenderableType:
    """Header and task tree."""
    return Group(execution_header(execution, full=full), Text(""), task_tree(tasks))


# --- lists ----------------------------------------------------------------------------------------


def execution_list(items: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Executions, newest first."""
    if not items:
        return Text("No executions.")
    return table(
        ("execution", "workflow", "status", "created (UTC)", "took", "tasks"),
        [
            (
                printable(item["id"]),
                f"{item['workflow']} v{item['version']}",
                status_text(item["status"]),
                clock(item["createdAt"]),
                duration(item.get("startedAt"), item.get("endedAt")),
                progress_text(item["progress"]),
            )
            for item in items
        ],
    )
