"""`weft replay-check` holds recorded histories against the code, `weft code export` writes them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from orchestrator.local.cli_faults import (
    DONE,
    FAILED,
    NOT_FOUND,
    USAGE,
    Fault,
    console,
    print_json,
    printable,
    usage,
)
from orchestrator.local.cli_options import AsJson
from orchestrator.local.cli_render import emit

if TYPE_CHECKING:
    from orchestrator.local.durable.replay_files import Checked, Report

Histories = Annotated[
    list[Path],
    typer.Option("--history", exists=True, help="File, or folder of `.json` files; repeatable."),
]
Version = Annotated[
    int | None, typer.Option(min=1, help="Hold it against this version, not the recorded one.")
]


def replay_check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the code workflow.")],
    history: Histories,
    version: Version = None,
    as_json: AsJson = False,
) -> int:
    """Replay recorded histories against the code that is here. 1: it decides otherwise; 2: a file
    cannot be used. Needs no server."""
    from activities.code.registry import default_code_registry
    from activities.errors import RegistrationError
    from activities.registry import discover
    from orchestrator.local.durable.replay_files import check_files

    try:
        discover()
        report = check_files(default_code_registry(), name, history, version)
    except RegistrationError as error:
        raise usage(str(error)) from error
    except KeyError as error:
        text = str(error.args[0])
        raise usage(text if text.endswith("?") else f"{text}.") from error
    if not report.checked:
        raise Fault("NO_HISTORY", f"no history of {name} there ({report.skipped} of others)")
    if as_json:
        print_json(_document(name, report))
    else:
        _show(name, report)
    if report.count("diverged"):
        return FAILED
    return USAGE if report.count("unusable") else DONE


def export(
    id: Annotated[str, typer.Argument(metavar="ID", help="Execution, or instance of one.")],
    data: Annotated[Path, typer.Option(help="Folder that `weft up` has its data in.")] = Path(
        ".weft"
    ),
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="File to write.")
    ] = None,
) -> int:
    """Write the history of a code workflow on this machine as JSON, payloads included. Children are
    instances of their own: ID:GENERATION.STEP."""
    from orchestrator.local.durable.recordings import exported_from

    try:
        text = exported_from(data, id)
    except OSError as error:
        raise usage(f"There is no durable.db to be read in {str(data)!r}: {error}.") from error
    if text is None:
        raise Fault(
            "NOT_FOUND", f"no instance {printable(id)} in {str(data)!r}", exit_code=NOT_FOUND
        )
    if output is None:
        sys.stdout.write(text)
        return DONE
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise usage(f"Cannot write {str(output)!r}: {error.strerror}.") from error
    emit(console(), Text(f"wrote {output}"))
    return DONE


def _document(name: str, report: Report) -> dict[str, Any]:
    return {
        "workflow": name,
        "same": report.count("same"),
        "diverged": report.count("diverged"),
        "unusable": report.count("unusable"),
        "skipped": report.skipped,
        "histories": [
            {
                "file": str(one.file),
                "result": one.result,
                "instance": one.instance or None,
                "version": one.version or None,
                "steps": one.steps,
                "divergence": None if one.divergence is None else asdict(one.divergence),
                "problem": one.problem or None,
            }
            for one in report.checked
        ],
    }


def _show(name: str, report: Report) -> None:
    out = console()
    for one in report.checked:
        emit(out, _line(one))
        if (found := one.divergence) is not None:
            emit(out, Text(f"  recorded: {printable(found.recorded)}"))
            emit(out, Text(f"  now:      {printable(found.current)}"))
            emit(out, Text(f"  hint: {found.hint}", "cyan"))
    total = len(report.checked)
    parts = [f"{report.count(word)} {word}" for word in ("same", "diverged", "unusable")]
    others = f"; {report.skipped} of others skipped" if report.skipped else ""
    noun = "history" if total == 1 else "histories"
    emit(out, Text(f"{total} {noun} of {name}: {', '.join(parts)}{others}"))


def _line(one: Checked) -> Text:
    text = Text(f"{printable(str(one.file))}: ")
    if one.problem:
        return text.append("unusable", "yellow").append(f": {printable(one.problem)}")
    about = f" (version {one.version}, {one.steps} steps)"
    if one.divergence is None:
        return text.append("same", "green").append(about)
    where = "" if one.divergence.step is None else f" at step {one.divergence.step}"
    text.append(f"diverged{where}", "red")
    return text.append(f", recorded {one.divergence.at}{about}")


def register(app: typer.Typer, group: typer.Typer) -> None:
    """Add the commands of this module; `group`: `weft code`."""
    app.command("replay-check")(replay_check)
    group.command()(export)
