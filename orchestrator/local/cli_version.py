"""`weft --version`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer
from rich.text import Text

from orchestrator.local.cli_faults import console
from orchestrator.local.cli_render import emit


def _say(wanted: bool) -> None:
    if not wanted:
        return
    try:
        said = version("weft")
    except PackageNotFoundError:  # run from a folder, not installed
        said = "(not installed)"
    emit(console(), Text(f"weft {said}"))
    raise typer.Exit


def root(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_say, is_eager=True, help="Print the version, end."),
    ] = False,
) -> None:
    """Durable DAG workflows. Start a platform with `weft up`, or point --url at one."""
