"""How fast the embedded platform is, on this machine, through the real app, host, store and broker.

    python -m bench.throughput            all figures, as a table (some minutes)
    python -m bench.throughput --quick    a smoke test: every measurement, tiny
    python -m bench.throughput --json     for programs
    python -m bench.throughput --only latency
    python -m bench.throughput --profile chain   where the time goes (cProfile)

`README.md` beside this file explains the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

if __package__ in (None, ""):  # run by its path
    sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import cases, harness, profiling, report
from bench.cases import FULL, QUICK, ROOT, Size

CASES: Final = ("throughput", "latency", "memory", "startup", "growth")


def main(argv: list[str] | None = None) -> int:
    """Measure and print; 0 unless a run failed, which raises. Slow figures are no failure."""
    parser = argparse.ArgumentParser(prog="python -m bench.throughput", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="tiny: shows only that all works")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    parser.add_argument("--only", choices=CASES, action="append", help="this part (repeatable)")
    parser.add_argument("--repeat", type=int, help="runs per case, the best counts")
    parser.add_argument("--data", type=Path, help="folder on the disk to measure (default: temp)")
    parser.add_argument("--profile", choices=sorted(profiling.SHAPES), help="profile this instead")
    arguments = parser.parse_args(argv)
    size = QUICK if arguments.quick else FULL
    if arguments.repeat:
        size = cases.resized(size, repeat=arguments.repeat)
    with tempfile.TemporaryDirectory(prefix="weft-bench-", dir=arguments.data) as name:
        folder = Path(name)
        if arguments.profile:
            print(asyncio.run(profiling.profile(folder, arguments.profile)))
            return 0
        figures = _measure(folder, size, arguments.only or CASES, quick=arguments.quick)
    print(json.dumps(figures, indent=2) if arguments.json else report.table(figures))
    return 0


def _measure(folder: Path, size: Size, wanted: Any, *, quick: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"machine": machine(folder), "quick": quick}
    for name in CASES:
        if name not in wanted:
            continue
        if name == "memory" and wanted != ["memory"]:
            found[name] = _apart(folder, name, quick=quick)
        else:
            own = folder / name
            found[name] = asyncio.run(getattr(cases, name)(own, size))
    return found


def _apart(folder: Path, name: str, *, quick: bool) -> Any:
    """In a process that measured nothing before, so that its memory is this case's."""
    command = [sys.executable, "-m", "bench.throughput", "--only", name, "--json"]
    command += ["--data", str(folder), *(["--quick"] if quick else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT)
    return json.loads(done.stdout)[name]


def machine(folder: Path) -> dict[str, Any]:
    """What the figures depend on. The disk's sync was seen to differ tenfold within an hour."""
    syncs = harness.sync_ms(folder)
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "sync_p50_ms": round(syncs[len(syncs) // 2], 3),
        "sync_p99_ms": round(syncs[int(len(syncs) * 0.99)], 3),
    }


if __name__ == "__main__":
    sys.exit(main())
