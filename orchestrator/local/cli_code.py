"""`weft code`: code workflows on this machine, without a server (`cli_code_deployed`: with one)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from orchestrator.local import cli_code_deployed, cli_replay
from orchestrator.local.cli_faults import DONE, FAILED, Fault, console, print_json, printable
from orchestrator.local.cli_options import AsJson
from orchestrator.local.cli_render import emit

app = typer.Typer(
    name="code",
    help="Code workflows: check their source; export histories; list and record what is deployed.",
    no_args_is_help=True,
)

Paths = Annotated[
    list[Path] | None,
    typer.Argument(metavar="PATH", help="Files and folders; `activities` if left out."),
]


@app.callback()
def root() -> None:
    """Code workflows: check their source; export histories; list and record what is deployed."""


@app.command()
def lint(paths: Paths = None, as_json: AsJson = False) -> int:
    """Find what would make a code workflow decide otherwise in a replay. 1 if anything is found."""
    from activities.code.lint import lint_paths

    given = paths or [Path("activities")]
    try:
        found = lint_paths(given)
    except OSError as error:
        name = printable(str(error.filename))
        raise Fault("FILE_NOT_READ", f"{name}: {error.strerror}") from None
    except (SyntaxError, UnicodeDecodeError) as error:
        where = getattr(error, "filename", None) or given[0]
        raise Fault("NOT_PYTHON", f"{printable(str(where))}: {error}") from None
    if as_json:
        print_json({"problems": [asdict(one) for one in found]})
    else:
        for one in found:
            emit(console(), Text(printable(str(one))))
        if not found:
            emit(console(), Text("nothing found", "green"))
    return FAILED if found else DONE


def register(root: typer.Typer) -> None:
    """Add `code` and its commands, and `replay-check`."""
    cli_code_deployed.register(app)
    cli_replay.register(root, app)
    root.add_typer(app)
