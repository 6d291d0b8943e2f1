"""From a failing seed to the few faults that matter, and a text that repeats the run."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence

from tests.simulation.faults import Fault
from tests.simulation.run import Result, Setup, run

MAX_RUNS = 400
MAX_CPU_S = 30.0
TRACE_LINES = 40


def shrink(
    seed: int, faults: Sequence[Fault], setup: Setup | None = None, *, max_runs: int = MAX_RUNS
) -> list[Fault]:
    """A part of `faults` that still breaks an invariant, from which no single one can be left out
    (unless `max_runs` or `MAX_CPU_S` were not enough). Halves first, then ever smaller parts."""
    best = list(faults)
    size = max(1, len(best) // 2)
    runs, give_up = 0, time.process_time() + MAX_CPU_S
    while True:
        start, smaller = 0, False
        while start < len(best) and runs < max_runs and time.process_time() < give_up:
            trial = best[:start] + best[start + size :]
            runs += 1
            if run(seed, only=trial, setup=setup).ok:
                start += size
            else:
                best, smaller = trial, True
        if runs >= max_runs or time.process_time() >= give_up or (size == 1 and not smaller):
            return best
        size = max(1, size // 2)


def report(result: Result, setup: Setup | None = None, *, max_runs: int = MAX_RUNS) -> str:
    """What broke, with the smallest schedule of faults found and how to run it again."""
    if run(result.seed, only=result.faults, setup=setup).ok:
        faults, what = list(result.faults), "not reproducible from its faults alone"
    else:
        faults = shrink(result.seed, result.faults, setup, max_runs=max_runs)
        what = f"{len(faults)} of {len(result.faults)} faults are enough"
    last = run(result.seed, only=faults, setup=setup)
    command = ["python", "-m", "tests.simulation", "--replay", str(result.seed), *map(str, faults)]
    lines = [
        f"seed {result.seed} breaks invariants ({what}):",
        *(f"  {problem[:1_000]}" for problem in (last.problems or result.problems)[:5]),
        "what happened:",
        *(f"  {line[:300]}" for line in last.trace[-TRACE_LINES:]),
        "replay:",
        f"  {shlex.join(command)}",
    ]
    return "\n".join(lines)
