"""`weft`: the command line. Each command reads its arguments, calls, shows, returns an exit code.

Exit codes are in `cli_faults`: 0 done, 1 the execution failed (or a check found problems), 2 usage
or a refused request, 3 not found, 4 no server that can answer, 130 interrupted. With `--json`,
stdout holds one JSON document and nothing else; an error is the API's error envelope.

Heavy modules are imported inside the commands, so that `weft list` need not load the engine.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from orchestrator.local import (
    cli_archive,
    cli_audit,
    cli_auth,
    cli_breakers,
    cli_code,
    cli_control,
    cli_deadletters,
    cli_events,
    cli_help,
    cli_input,
    cli_recovery,
    cli_schedules,
    cli_show,
    cli_signals,
    cli_smoke,
    cli_tenants,
    cli_triggers,
    cli_version,
    cli_watch,
    cli_workflows,
)
from orchestrator.local.cli_client import Client
from orchestrator.local.cli_faults import DONE, FAILED, console, print_json, printable
from orchestrator.local.cli_history import history_table
from orchestrator.local.cli_options import (
    DEFAULT_URL,
    AsJson,
    Class,
    CreatedAfter,
    CreatedBefore,
    File,
    Id,
    Status,
    Url,
)
from orchestrator.local.cli_render import emit, execution_list, status_text

app = typer.Typer(
    name="weft",
    cls=cli_help.Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # its local variables would show payloads
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(cli_version.root)
cli_code.register(app)
cli_recovery.register(app)

# --- on this machine ------------------------------------------------------------------------------


@app.command()
def up(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the API; 0: any free one.")
    ] = 7071,
    data: Annotated[Path, typer.Option(help="Folder of the database and the payloads.")] = Path(
        ".weft"
    ),
    workers: Annotated[int, typer.Option(min=1, max=64, help="Number of processes.")] = 1,
    host: Annotated[
        str, typer.Option(metavar="IP", help="Address to listen at; not loopback: needs issuers.")
    ] = "127.0.0.1",
    as_json: AsJson = False,
) -> int:
    """Run the platform on this machine until Ctrl-C or SIGTERM."""
    from orchestrator.local import cli_local

    return cli_local.up(data=data, port=port, workers=workers, address=host, as_json=as_json)


@app.command()
def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="File to write.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Print the JSON Schema of a definition, for editors that complete and check YAML."""
    from orchestrator.local import cli_local

    return cli_local.schema(output, as_json=as_json)


@app.command()
def validate(file: File, as_json: AsJson = False) -> int:
    """Check a definition here, without a server. Lists every problem."""
    from orchestrator.local import cli_local

    return cli_local.validate(file, as_json=as_json)


# --- workflows ------------------------------------------------------------------------------------


@app.command()
def publish(
    file: File,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only; store nothing.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Publish a definition. The same content again gives the version that exists."""
    source = cli_input.read_file(file)
    with Client(url) as client:
        result = client.publish(
            source, content_type=cli_input.media_type(file, source), dry_run=dry_run
        )
    if as_json:
        print_json(result)
        return DONE
    name = Text(printable(f"{result['name']} version {result['version']}"), "bold")
    if dry_run:
        said = Text("valid: would be published as ").append_text(name)
    elif result["created"]:
        said = Text("published ").append_text(name)
    else:
        said = Text("unchanged: ").append_text(name)
    emit(console(), said)
    return DONE


@app.command()
def start(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the workflow.")],
    input: Annotated[
        str | None,
        typer.Option("--input", "-i", metavar="JSON|@FILE|-", help="Input of the execution."),
    ] = None,
    version: Annotated[
        int | None, typer.Option(min=1, help="Version to run; the latest if left out.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="May be given more than once.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same call again starts nothing new.")
    ] = None,
    priority: Class = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow it to its end.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Start an execution. With --watch, follow it and exit 1 if it does not complete."""
    request = cli_input.start_request(input, version, tag or (), priority)
    with Client(url) as client:
        result = client.start(name, request, key=key)
        if watch:
            if not as_json:
                emit(console(), _started(result))
                sys.stdout.flush()
            return cli_watch.watch(client, result["id"], as_json=as_json)
    if as_json:
        print_json(result)
    else:
        emit(console(), _started(result))
    return DONE


def _started(result: dict[str, Any]) -> Text:
    text = Text("started " if result["created"] else "already started ")
    text.append(printable(result["id"]), "bold")
    return text.append(printable(f" ({result['workflow']} version {result['version']})"), "dim")


# --- executions -----------------------------------------------------------------------------------


@app.command("list")
def list_(
    status: Status = None,
    workflow: Annotated[str | None, typer.Option(help="Only of this workflow.")] = None,
    tag: Annotated[
        str | None, typer.Option(metavar="KEY=VALUE", help="Only with this tag.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Only started by this name.")] = None,
    parent: Annotated[
        str | None, typer.Option(metavar="ID", help="Only started by this execution.")
    ] = None,
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Beginning of an id, or idempotency key.")
    ] = None,
    created_after: CreatedAfter = None,
    created_before: CreatedBefore = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 20,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """List executions, newest first. The list follows them by a moment; `weft show` is exact."""
    if tag is not None:
        cli_input.tags([tag])
    given = {
        "status": status and str(status),
        "workflow": workflow,
        "tag": tag,
        "owner": owner,
        "parent": parent,
        "search": search,
        "createdAfter": created_after,
        "createdBefore": created_before,
    }
    filters = {name: text for name, text in given.items() if text is not None}
    with Client(url) as client:
        page = client.executions(filters, limit=limit)
    if as_json:
        print_json(page)
        return DONE
    out = console()
    emit(out, execution_list(page["items"]))
    if page["nextCursor"]:
        emit(out, Text("There may be more; see --limit.", "dim"))
    return DONE


@app.command("watch")
def watch_(id: Id, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Follow an execution to its end; exit 1 if it does not complete."""
    with Client(url) as client:
        return cli_watch.watch(client, id, as_json=as_json)


@app.command()
def history(
    id: Id,
    compact: Annotated[
        bool, typer.Option("--compact", help="Fold the item events of a map into one line.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Show every event of an execution, oldest first."""
    with Client(url) as client:
        page = client.history(id)
    if as_json:
        print_json(page)
    else:
        emit(console(), history_table(page["items"], compact=compact))
    return DONE


@app.command()
def verify(id: Id, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Prove that the history folds to the stored state; exit 1 if it does not."""
    with Client(url) as client:
        found = client.verify(id)
    if as_json:
        print_json(found)
        return DONE if found["ok"] else FAILED
    out = console()
    if found["ok"]:
        line = Text("verified", "green").append(
            f": {found['events']} events in {found['commits']} commits fold to the stored state",
            "default",
        )
        emit(out, line)
        return DONE
    emit(out, status_text("FAILED").append(": the history does not fold to the stored state"))
    for problem in found["problems"]:
        emit(out, Text(f"  {printable(problem)}"))
    return FAILED


cli_auth.register(app)
cli_workflows.register(app)
cli_control.register(app)
cli_deadletters.register(app)
cli_schedules.register(app)
cli_signals.register(app)
cli_breakers.register(app)
cli_triggers.register(app)
cli_events.register(app)
cli_audit.register(app)
cli_tenants.register(app)
cli_archive.register(app)
cli_smoke.register(app)
cli_show.register(app)


@app.command(hidden=True)
def demo() -> int:
    """What `make demo` runs."""
    from orchestrator.local import demo as demo_

    return demo_.run()


def main() -> None:
    """Entry point. Never fails to print: what the terminal cannot show is escaped."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    app()
