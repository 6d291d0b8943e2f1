"""`weft triggers`: which events start which workflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from orchestrator.local import cli_input
from orchestrator.local.cli_client import Client
from orchestrator.local.cli_faults import DONE, FAILED, console, print_json, printable, usage
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, File, Url
from orchestrator.local.cli_render import emit, failure_lines, table, value_text
from orchestrator.local.cli_times import clock

triggers = typer.Typer(
    name="triggers",
    help="Which events start which workflow.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the trigger.")]


@triggers.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 100,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """List event triggers by name."""
    with Client(url) as client:
        page = client.triggers(limit=limit)
    if as_json:
        print_json(page)
        return DONE
    out = console()
    if not page["items"]:
        emit(out, Text("No triggers."))
        return DONE
    rows = [
        (
            printable(item["name"]),
            printable(item["workflow"]),
            "paused" if item["paused"] else "",
            value_text(item["match"], full=False),
            printable(item["filter"] or ""),
        )
        for item in page["items"]
    ]
    emit(out, table(("trigger", "workflow", "", "match", "filter"), rows))
    if page["nextCursor"]:
        emit(out, Text("There may be more; see --limit.", "dim"))
    return DONE


@triggers.command()
def show(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Show an event trigger."""
    with Client(url) as client:
        found = client.trigger(name)
    if as_json:
        print_json(found)
        return DONE
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    grid.add_row("trigger", Text(printable(found["name"]), "bold"))
    if found["description"]:
        grid.add_row("description", printable(found["description"]))
    grid.add_row("workflow", printable(found["workflow"]))
    grid.add_row("paused", "yes" if found["paused"] else "no")
    grid.add_row("match", value_text(found["match"], full=True))
    if found["filter"]:
        grid.add_row("filter", printable(found["filter"]))
    if found["input"] is not None:
        grid.add_row("input", value_text(found["input"], full=True))
    if found["tags"]:
        grid.add_row("tags", value_text(found["tags"], full=True))
    changed = f"{clock(found['updatedAt'])} UTC by {found['updatedBy'] or 'somebody'}"
    grid.add_row("changed", printable(changed))
    emit(console(), grid)
    return DONE


@triggers.command()
def create(file: File, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Create an event trigger. The same content again is a success."""
    source = cli_input.read_file(file)
    with Client(url) as client:
        done = client.write_trigger(source, content_type=cli_input.media_type(file, source))
    return _say("created", done, as_json)


@triggers.command()
def update(name: Name, file: File, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Create an event trigger, or put this in its place."""
    source = cli_input.read_file(file)
    kind = cli_input.media_type(file, source)
    with Client(url) as client:
        done = client.write_trigger(source, content_type=kind, name=name)
    return _say("stored", done, as_json)


@triggers.command()
def delete(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Delete an event trigger. What it has started goes on."""
    with Client(url) as client:
        client.delete_trigger(name)
    return _say("deleted", {"name": name}, as_json)


@triggers.command()
def pause(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Let a trigger start nothing; events that come meanwhile pass it by."""
    with Client(url) as client:
        done = client.act_on_trigger(name, "pause")
    return _say("paused", done, as_json)


@triggers.command()
def resume(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Let a paused trigger start again."""
    with Client(url) as client:
        done = client.act_on_trigger(name, "resume")
    return _say("resumed", done, as_json)


@triggers.command("test")
def try_(
    name: Name,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="An event, JSON.")],
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Say what a trigger would do with an event; nothing is started. Exit 1 if it would not
    start."""
    source = cli_input.read_file(file)
    if cli_input.kind(file, source) != "json":
        raise usage("An event is a JSON object.")
    with Client(url) as client:
        found = client.test_trigger(name, source)
    if as_json:
        print_json(found)
    else:
        _show_trial(found)
    return DONE if found["starts"] else FAILED


def _show_trial(found: Mapping[str, Any]) -> None:
    out = console()
    if found["starts"]:
        emit(out, Text("it would start with the input:", "green"))
    else:
        emit(out, Text(f"it would start nothing, because of: {found['stopped']}", "red"))
    if found["error"]:
        emit(out, Text(printable("\n".join(failure_lines(found["error"]))), "red"))
    if found["starts"] or found["input"] is not None:
        emit(out, Text(value_text(found["input"], full=True)))
    if found["tags"]:
        emit(out, Text("tags: ", "dim").append(value_text(found["tags"], full=False), "default"))


def _say(verb: str, done: Mapping[str, Any], as_json: bool) -> int:
    if as_json:
        print_json(done)
    else:
        emit(console(), Text(f"{verb} ").append(printable(done["name"]), "bold"))
    return DONE


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(triggers)
