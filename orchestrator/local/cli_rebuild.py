"""`weft rebuild`: make a read model again from what it was made of.

Needs no server: it opens the stores itself, those of a data folder or, from the settings, those of
Azure, and may run beside a platform that works on them.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from orchestrator.local.cli_faults import (
    DONE,
    FAILED,
    UNREACHABLE,
    Fault,
    console,
    print_json,
    usage,
)
from orchestrator.local.cli_render import emit

if TYPE_CHECKING:
    from orchestrator.engine.views import RebuildReport
    from orchestrator.ports import ActivityCall

app = typer.Typer(
    no_args_is_help=True, help="Make a read model again from the executions themselves."
)


@app.callback()
def group() -> None:
    """Make a read model again from the executions themselves."""


@app.command()
def visibility(
    data: Annotated[
        Path | None,
        typer.Option(help="Data folder of an embedded platform; left out: as the settings say."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document, nothing else.")
    ] = False,
) -> int:
    """Rebuild what `weft list` shows. Changes no execution; safe while the platform runs."""
    report = asyncio.run(_rebuild(data))
    if as_json:
        print_json(report.model_dump(by_alias=True))
    else:
        line = Text("rebuilt", "green").append(
            f": {report.executions} executions read, {report.written} rows written, "
            f"{report.removed} removed",
            "default",
        )
        emit(console(), line)
        if report.poisoned or report.failed:
            trouble = f"{report.poisoned} could not be read, {report.failed} not written"
            emit(console(), Text(f"{trouble}; the log names them", "bold red"))
    return FAILED if report.poisoned or report.failed else DONE


async def _rebuild(data: Path | None) -> RebuildReport:
    """Raises `Fault`."""
    from orchestrator import bootstrap
    from orchestrator.engine import rebuild
    from orchestrator.ports import StoreError
    from orchestrator.settings import SettingsError, load_settings

    chosen = {} if data is None else {"WEFT_BACKEND": "local", "WEFT_DATA_DIR": str(data)}
    try:
        settings = load_settings({**os.environ, **chosen})
    except SettingsError as error:
        raise usage(str(error)) from error
    if settings.backend == "local" and not (settings.data_dir / bootstrap.STORE_FILE).is_file():
        # Opening would make an empty platform there, and call that rebuilt.
        raise usage(f"No embedded platform has its data in {str(settings.data_dir)!r}.")
    try:
        engine = await bootstrap.build(settings, activities=_NoActivities())
        try:
            return await rebuild.visibility(engine)
        finally:
            await engine.close()
    except (StoreError, OSError) as error:
        raise Fault(
            "STORE_UNAVAILABLE",
            f"The rebuild stopped ({type(error).__name__}: {error}). What it wrote is right; run "
            "it again to go on.",
            exit_code=UNREACHABLE,
        ) from error


class _NoActivities:
    """A repair must not depend on the user's code: nothing runs here."""

    def names(self) -> frozenset[str]:
        return frozenset()

    def dependency(self, activity: str) -> str | None:
        return None

    async def run(self, call: ActivityCall) -> None:
        raise NotImplementedError

    def stuck(self) -> int:
        return 0

    async def close(self) -> None:
        """Nothing to release."""
