"""`weft rebuild` and `weft reconcile`: after a restore or a loss, make the read model again, and
prove that nothing is missing.

They need no server: they open the stores themselves, those of a data folder or, from the settings,
those of Azure, and may run beside a platform that works on them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.text import Text

from orchestrator.local.cli_faults import (
    DONE,
    FAILED,
    UNREACHABLE,
    Fault,
    console,
    print_json,
    printable,
    usage,
)
from orchestrator.local.cli_render import emit

if TYPE_CHECKING:
    from orchestrator.engine.core import Engine
    from orchestrator.engine.views import RebuildReport
    from orchestrator.engine.views_reconcile import ReconcileReport
    from orchestrator.ports import ActivityCall

T = TypeVar("T")
Data = Annotated[
    Path | None,
    typer.Option(help="Data folder of an embedded platform; left out: as the settings say."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]

app = typer.Typer(
    no_args_is_help=True, help="Make a read model again from the executions themselves."
)


@app.callback()
def group() -> None:
    """Make a read model again from the executions themselves."""


@app.command()
def visibility(
    data: Data = None,
    as_json: AsJson = False,
) -> int:
    """Rebuild what `weft list` shows. Changes no execution; safe while the platform runs."""
    report: RebuildReport = asyncio.run(_opened(data, _rebuild))
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


def reconcile(
    data: Data = None,
    mend: Annotated[
        bool, typer.Option("--mend/--look", help="Mend what can be mended, or only look.")
    ] = True,
    every: Annotated[
        bool, typer.Option("--all", help="Prove the histories of ended executions, too.")
    ] = False,
    lost: Annotated[
        bool,
        typer.Option(
            "--messages-lost",
            help="The broker is new or was emptied: send at once whatever nobody works on.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Compare all that is stored with what should follow from it, and mend. Exit 0: no gap."""
    from orchestrator.engine import reconcile as use_case

    def run(engine: Engine) -> Awaitable[ReconcileReport]:
        return use_case.reconcile(engine, mend=mend, every=every, lost=lost)

    report = asyncio.run(_opened(data, run))
    if as_json:
        print_json(report.model_dump(by_alias=True))
    else:
        _show(report)
    return FAILED if report.gaps else DONE


def _show(report: ReconcileReport) -> None:
    out = console()
    head = Text("no gaps", "green") if not report.gaps else Text(f"{report.gaps} gaps", "bold red")
    mended = f", {report.mended} mended" if report.gaps else ""
    seen = (
        f"{mended}: {report.executions} executions ({report.open} open), {report.rows} rows read; "
        f"{report.waiting} tasks wait in queues"
    )
    emit(out, head.append(seen, "default"))
    for kind, number in report.kinds.items():
        emit(out, Text(f"  {number} {kind}"))
    for gap in report.found:
        state = "mended" if gap.mended else "left"
        line = f"{gap.kind} {gap.tenant}/{gap.execution} {gap.document}: {gap.detail or '-'}"
        emit(out, Text(printable(f"  {line} ({state})")))
    if report.mended:
        emit(out, Text("Run it again when the platform has worked: that run is the proof."))


def register(root: typer.Typer) -> None:
    """Add the commands to the command line."""
    root.add_typer(app, name="rebuild")
    root.command()(reconcile)


async def _rebuild(engine: Engine) -> RebuildReport:
    from orchestrator.engine import rebuild

    return await rebuild.visibility(engine)


async def _opened(data: Path | None, work: Callable[[Engine], Awaitable[T]]) -> T:
    """`work` on the stores of a data folder, or of the settings. Raises `Fault`."""
    from orchestrator import bootstrap
    from orchestrator.ports import StoreError
    from orchestrator.settings import SettingsError, load_settings

    chosen = {} if data is None else {"WEFT_BACKEND": "local", "WEFT_DATA_DIR": str(data)}
    try:
        settings = load_settings({**os.environ, **chosen})
    except SettingsError as error:
        raise usage(str(error)) from error
    if settings.backend == "local" and not (settings.data_dir / bootstrap.STORE_FILE).is_file():
        # Opening would make an empty platform there, and call that whole.
        raise usage(f"No embedded platform has its data in {str(settings.data_dir)!r}.")
    try:
        engine = await bootstrap.build(settings, activities=_NoActivities())
        try:
            return await work(engine)
        finally:
            await engine.close()
    except (StoreError, OSError) as error:
        raise Fault(
            "STORE_UNAVAILABLE",
            f"It stopped ({type(error).__name__}: {error}). What was done is right; run it again "
            "to go on.",
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
