"""`weft deadletters`: what failed for good, and what to do about it."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from orchestrator.local import cli_bulk, cli_input
from orchestrator.local.cli_bulk import BulkClient, Wait
from orchestrator.local.cli_client import Client
from orchestrator.local.cli_control import Reason
from orchestrator.local.cli_faults import DONE, FAILED, console, print_json, printable, usage
from orchestrator.local.cli_letters_render import decision, letter_list, letter_view
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import emit

letters = typer.Typer(
    name="deadletters",
    help="What failed for good: list it, look at it, decide about it.",
    no_args_is_help=True,
)

Letter = Annotated[str, typer.Argument(metavar="ID", help="Id of the dead letter.")]


@letters.command("list")
def list_(
    status: Annotated[
        str, typer.Option(help="OPEN, RETRIED, SKIPPED, FAILED, DISCARDED or ALL.")
    ] = "OPEN",
    workflow: Annotated[str | None, typer.Option(help="Only of this workflow.")] = None,
    execution: Annotated[str | None, typer.Option(help="Only of this execution.")] = None,
    task: Annotated[str | None, typer.Option(help="Only of this task.")] = None,
    error: Annotated[str | None, typer.Option(help="Only with this type of error.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 20,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """List dead letters, newest first; the open ones unless --status says otherwise."""
    given = filters(status, workflow, execution, task, error)
    with Client(url) as client:
        page = client.dead_letters(given, limit=limit)
    if as_json:
        print_json(page)
        return DONE
    out = console()
    emit(out, letter_list(page["items"]))
    if page["nextCursor"]:
        emit(out, Text("There may be more; see --limit.", "dim"))
    return DONE


@letters.command()
def show(
    id: Letter,
    full: Annotated[bool, typer.Option("--full", help="Do not abbreviate the input.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Show a dead letter: errors, attempts, input."""
    with Client(url) as client:
        letter = client.dead_letter(id)
    if as_json:
        print_json(letter)
    else:
        emit(console(), letter_view(letter, full=full))
    return DONE


Many = Annotated[
    bool, typer.Option("--all", help="Instead of one: all open ones that the filters find.")
]
MaybeLetter = Annotated[str, typer.Argument(metavar="ID", help="Id of the dead letter.")]
Workflow = Annotated[str | None, typer.Option(help="With --all: only of this workflow.")]
Execution = Annotated[str | None, typer.Option(help="With --all: only of this execution.")]
Task = Annotated[str | None, typer.Option(help="With --all: only of this task.")]
Async = Annotated[
    bool, typer.Option("--async", help="With --all: the server goes on by itself; see --wait.")
]
ErrorType = Annotated[str | None, typer.Option("--error", help="With --all: only of this type.")]


@letters.command()
def retry(
    id: MaybeLetter = "",
    reason: Reason = "",
    input: Annotated[
        str | None,
        typer.Option("--input", "-i", metavar="JSON|@FILE|-", help="Instead of the task's own."),
    ] = None,
    many: Many = False,
    workflow: Workflow = None,
    execution: Execution = None,
    task: Task = None,
    error: ErrorType = None,
    later: Async = False,
    wait: Wait = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Run it again, perhaps with another input."""
    found = filters("ALL", workflow, execution, task, error)
    if many and input is not None:
        raise usage("--input is for one dead letter; leave out --all.")
    value = {} if input is None else {"input": cli_input.json_value(input, "--input")}
    body = {"reason": reason, **value}
    return _resolve("retry", id, found, body, url, many, later, wait, as_json=as_json)


@letters.command()
def skip(
    id: MaybeLetter = "",
    reason: Reason = "",
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="JSON|@FILE|-", help="What it is said to give.")
    ] = "null",
    many: Many = False,
    workflow: Workflow = None,
    execution: Execution = None,
    task: Task = None,
    error: ErrorType = None,
    later: Async = False,
    wait: Wait = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Go on as if the task had given this output."""
    found = filters("ALL", workflow, execution, task, error)
    body = {"reason": reason, "output": cli_input.json_value(output, "--output")}
    return _resolve("skip", id, found, body, url, many, later, wait, as_json=as_json)


@letters.command()
def fail(
    id: MaybeLetter = "",
    reason: Reason = "",
    many: Many = False,
    workflow: Workflow = None,
    execution: Execution = None,
    task: Task = None,
    error: ErrorType = None,
    later: Async = False,
    wait: Wait = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Accept the failure; an execution that holds for it goes on."""
    found = filters("ALL", workflow, execution, task, error)
    return _resolve("fail", id, found, {"reason": reason}, url, many, later, wait, as_json=as_json)


@letters.command()
def discard(
    id: MaybeLetter = "",
    reason: Reason = "",
    many: Many = False,
    workflow: Workflow = None,
    execution: Execution = None,
    task: Task = None,
    error: ErrorType = None,
    later: Async = False,
    wait: Wait = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Put it away; the execution stays as it is."""
    found = filters("ALL", workflow, execution, task, error)
    body = {"reason": reason}
    return _resolve("discard", id, found, body, url, many, later, wait, as_json=as_json)


def _resolve(
    verb: str,
    id: str,
    found: dict[str, str],
    body: dict[str, Any],
    url: str,
    many: bool,
    later: bool,
    wait: bool,
    *,
    as_json: bool,
) -> int:
    """One letter by id, or with --all as many calls as it takes, or one that the server goes on
    with by itself; exit 1 if any was refused."""
    if many == bool(id):
        raise usage("Name a dead letter, or use --all with filters.")
    if found and not many:
        raise usage("Filters are for --all.")
    if (later or wait) and not many:
        raise usage("--async and --wait are for --all.")
    if later or wait:
        with BulkClient(url) as bulk:
            started = bulk.on_letters({"action": verb, "filter": found, **body})
            return cli_bulk.follow(bulk, started, wait=wait, as_json=as_json)
    with Client(url) as client:
        if id:
            letter = client.resolve(id, verb, body)
            if as_json:
                print_json(letter)
            else:
                emit(console(), decision(letter))
            return DONE
        total: dict[str, Any] = {"action": verb, "done": 0, "refused": [], "more": False}
        wish, cursor = {"action": verb, "filter": found, **body}, {}
        while True:
            result = client.resolve_many({**wish, **cursor})
            total["done"] += result["done"]
            total["refused"] += result["refused"]
            if not result["more"]:
                break
            cursor = {"cursor": result["nextCursor"]}
    if as_json:
        print_json(total)
    else:
        emit(console(), Text(f"{total['done']} done, {len(total['refused'])} refused"))
        for one in total["refused"]:
            emit(console(), Text(printable(f"  {one['id']}: {one['code']} {one['message']}")))
    return FAILED if total["refused"] else DONE


def filters(
    status: str, workflow: str | None, execution: str | None, task: str | None, error: str | None
) -> dict[str, str]:
    """Query parameters; what is left out filters nothing."""
    given = {
        "status": None if status.upper() == "ALL" else status.upper(),
        "workflow": workflow,
        "execution": execution,
        "task": task,
        "errorType": error,
    }
    return {name: value for name, value in given.items() if value is not None}


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(letters)
    cli_bulk.register(app)
