"""The seeds that run with every change. `make soak SEEDS=…` runs more.

Also here: what makes a failing seed worth anything (it can be repeated, and shrunk).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.faults import Fault
from tests.simulation.run import run
from tests.simulation.shrink import report

SEEDS = 520
CHUNK = 10  # small enough that xdist shares them out evenly, and for the time limit of one test
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_invariant_holds_under_faults(first: int) -> None:
    for seed in range(first, first + CHUNK):
        result = run(seed)
        if not result.ok:
            pytest.fail(report(result, max_runs=100), pytrace=False)


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Whatever Python's hash seed: sets of strings and of tasks must not decide anything."""
    code = "from tests.simulation.run import run; print(*(run(s).digest for s in (3, 11, 38)))"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1
    assert digests.pop().split() == [run(seed).digest for seed in (3, 11, 38)]


def test_a_run_can_be_repeated_from_its_list_of_faults() -> None:
    for seed in (2, 38, 54):
        first = run(seed)
        assert len(first.faults) > 20
        repeated = [Fault.parse(str(fault)) for fault in first.faults]
        assert run(seed, only=repeated).digest == first.digest
