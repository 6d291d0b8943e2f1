"""`make demo`: a platform of its own, a real workflow over real files, and everything shown.

The platform is a child process, started as a user would start it, and reached over HTTP only: what
the demo shows is what a user gets. It has a fresh data folder and a free port, so that the demo
neither sees nor disturbs another platform on this machine, and can be run twice or at once.
"""

from __future__ import annotations

import shutil
import signal
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from orchestrator.local import cli_watch
from orchestrator.local.cli_client import Client
from orchestrator.local.cli_faults import FAILED, INTERRUPTED, Fault, console, report
from orchestrator.local.cli_history import history_table
from orchestrator.local.cli_render import emit
from orchestrator.local.testing import platform

SAMPLE: Final = Path("samples/source-census/workflow.yaml")
REPORT_FOLDER: Final = Path(".weft/demo")


def run(*, sample: Path = SAMPLE, output: Path = REPORT_FOLDER, root: str | None = None) -> int:
    """Run the census over `root` (default: this Python's standard library), put its report into
    `output`; the exit code of the execution."""
    out = console()
    for name in (signal.SIGTERM, signal.SIGHUP):  # else the platform would outlive the demo
        signal.signal(name, _interrupt)
    try:
        definition = sample.read_bytes()
    except OSError as error:
        fault = Fault("USAGE", f"Run the demo from the repository's folder: {error}.")
        report(fault, as_json=False)
        return fault.exit_code
    data = Path(tempfile.mkdtemp(prefix="weft-demo-"))
    try:
        with platform(data) as client:
            _say(out, f"Platform is up at {client.url} (embedded mode, data in {data})")
            source = root or sysconfig.get_path("stdlib")
            return _census(client, out, definition, source, output.resolve())
    except Fault as fault:
        report(fault, as_json=False)
        return fault.exit_code
    except KeyboardInterrupt:
        _say(out, "Interrupted; the platform is stopped.")
        return INTERRUPTED
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _census(client: Client, out: Console, definition: bytes, root: str, output: Path) -> int:
    published = client.publish(definition, content_type="application/yaml", dry_run=False)
    _say(out, f"Published {published['name']} version {published['version']}")
    request = {"input": {"root": root, "outputDir": str(output)}}
    id = client.start(published["name"], request)["id"]
    _say(out, f"Started {id}: counting the Python files under {root}")
    code = cli_watch.follow(client, id)
    execution = client.execution(id)
    if code == 0:
        _show_report(out, execution["output"])
    _say(out, "History (the items of the map folded; `weft history` shows each event)")
    emit(out, history_table(client.history(id)["items"], compact=True))
    verified = client.verify(id)
    if verified["ok"]:
        _say(
            out,
            f"Verified: {verified['events']} events in {verified['commits']} commits fold to the "
            "stored state",
        )
    else:
        problems = "; ".join(verified["problems"])
        report(Fault("NOT_VERIFIED", problems, exit_code=FAILED), as_json=False)
        code = FAILED
    if code == 0:
        _show_totals(out, execution["output"])
    return code


def _show_report(out: Console, output: Mapping[str, Any]) -> None:
    _say(out, f"Report ({output['report']['table']}, and as JSON beside it)")
    emit(out, Text(Path(output["report"]["table"]).read_text(encoding="utf-8").rstrip()))


def _show_totals(out: Console, output: Mapping[str, Any]) -> None:
    totals = ", ".join(f"{count:,} {name}" for name, count in output["totals"].items())
    _say(out, f"Totals: {totals}")


def _say(out: Console, text: str) -> None:
    emit(out, Text.assemble(("\n» ", "bold cyan"), (text, "bold")))
    out.file.flush()


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(run())
