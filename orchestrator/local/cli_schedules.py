"""`weft schedules`: what is started when, and what became of it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from orchestrator.domain.errors import WeftError
from orchestrator.local import cli_input
from orchestrator.local.cli_faults import DONE, console, print_json, printable
from orchestrator.local.cli_options import DEFAULT_URL, AsJson, Url
from orchestrator.local.cli_render import emit
from orchestrator.local.cli_schedules_client import SchedulesClient
from orchestrator.local.cli_schedules_render import fire_list, next_lines, schedule_list, view

schedules = typer.Typer(
    name="schedules",
    help="Start workflows by the clock: create, look, pause, run now.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]
Definition = Annotated[
    str, typer.Argument(metavar="FILE", help="Schedule in YAML or JSON; `-` reads stdin.")
]


@schedules.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 100,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """List schedules by name."""
    with SchedulesClient(url) as client:
        page = client.schedules(limit=limit)
    if as_json:
        print_json(page)
        return DONE
    out = console()
    emit(out, schedule_list(page["items"]))
    if page["nextCursor"]:
        emit(out, Text("There may be more; see --limit.", "dim"))
    return DONE


@schedules.command()
def show(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Show a schedule with its next five fire times."""
    with SchedulesClient(url) as client:
        found = client.schedule(name)
    if as_json:
        print_json(found)
    else:
        emit(console(), view(found))
    return DONE


@schedules.command()
def create(file: Definition, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Create a schedule. The same content again changes nothing."""
    source = cli_input.read_file(file)
    with SchedulesClient(url) as client:
        found = client.put_schedule(source, content_type=cli_input.media_type(file, source))
    if as_json:
        print_json(found)
    else:
        emit(console(), view(found))
    return DONE


@schedules.command()
def update(
    name: Name,
    file: Definition,
    revision: Annotated[
        int | None, typer.Option(min=1, help="Change it only if it has this revision.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Replace the definition of a schedule."""
    source = cli_input.read_file(file)
    with SchedulesClient(url) as client:
        found = client.put_schedule(
            source,
            content_type=cli_input.media_type(file, source),
            name=name,
            revision=revision,
        )
    if as_json:
        print_json(found)
    else:
        emit(console(), view(found))
    return DONE


@schedules.command()
def pause(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Start nothing by the clock until it is resumed."""
    return _switch(name, "pause", url, as_json=as_json)


@schedules.command()
def resume(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Go on; its misfire policy decides about the ticks of the pause."""
    return _switch(name, "resume", url, as_json=as_json)


def _switch(name: str, verb: str, url: str, *, as_json: bool) -> int:
    with SchedulesClient(url) as client:
        found = client.act_on_schedule(name, verb)
    if as_json:
        print_json(found)
    else:
        emit(console(), Text(printable(f"{found['name']}  {found['status']}")))
    return DONE


@schedules.command()
def run(
    name: Name,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same call again starts nothing new.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Start an execution now, beside the ticks."""
    with SchedulesClient(url) as client:
        result = client.act_on_schedule(name, "run", key=key)
    if as_json:
        print_json(result)
    else:
        said = "started" if result["created"] else "already started"
        emit(console(), Text(printable(f"{said} {result['id']}")))
    return DONE


@schedules.command()
def delete(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Remove a schedule. What it started goes on."""
    with SchedulesClient(url) as client:
        client.delete_schedule(name)
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        emit(console(), Text(printable(f"deleted {name}")))
    return DONE


@schedules.command()
def history(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Show what happened to the last 50 ticks, newest first."""
    with SchedulesClient(url) as client:
        page = client.schedule_history(name)
    if as_json:
        print_json(page)
    else:
        emit(console(), fire_list(page["items"]))
    return DONE


@schedules.command()
def preview(
    cron: Annotated[
        str, typer.Argument(metavar="CRON", help="Five fields or an alias, such as @daily.")
    ],
    tz: Annotated[str, typer.Option("--tz", help="IANA time zone.")] = "UTC",
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1_000, help="How many.")] = 5,
    after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Later than this (ISO 8601); else now."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show when a cron expression fires, without a server."""
    from orchestrator.local import cli_preview

    try:
        found = cli_preview.preview(cron, tz, count, after)
    except WeftError as error:
        raise cli_input.fault_of(error) from error
    if as_json:
        print_json({"cron": cron, "timeZone": tz, "next": found})
    else:
        emit(console(), next_lines(found))
    return DONE


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(schedules)
