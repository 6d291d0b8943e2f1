"""Run many seeds, or one schedule of faults again.

python -m tests.simulation 10000                  seeds 0 to 9,999
python -m tests.simulation 5000-6000 --jobs 1
python -m tests.simulation --replay 17 'w1.batch#3=answerLost:0'
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter

from tests.simulation.faults import Fault
from tests.simulation.run import Result, run
from tests.simulation.shrink import report

REPORTED = 5
"""Failing seeds that are shrunk; of the others only the number is told."""


def main() -> int:
    """0: every invariant held."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", nargs="?", default="1000", help="a number, or FIRST-END")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--replay", nargs="+", metavar="SEED FAULT", help="this schedule only")
    given = parser.parse_args()
    if given.replay:
        seed, *faults = given.replay
        return _replay(int(seed), [Fault.parse(text) for text in faults])
    first, _, end = given.seeds.rpartition("-")
    return _many(range(int(first or 0), int(end)), given.jobs)


def _replay(seed: int, faults: list[Fault]) -> int:
    result = run(seed, only=faults)
    print("\n".join([*result.trace, *result.problems]) or "every invariant held")  # noqa: T201
    return 0 if result.ok else 1


def _many(seeds: range, jobs: int) -> int:
    began, kinds, failed = time.monotonic(), Counter[str](), list[Result]()
    steps = 0
    with multiprocessing.Pool(jobs) as pool:
        for result in pool.imap_unordered(run, seeds, chunksize=4):
            steps += result.steps
            kinds.update(fault.kind for fault in result.faults)
            if not result.ok:
                failed.append(result)
                if len(failed) <= REPORTED:
                    print(report(result), flush=True)  # noqa: T201
    shown = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    print(  # noqa: T201
        f"{len(seeds)} seeds, {len(failed)} failed: {sorted(one.seed for one in failed)[:50]}\n"
        f"{steps} steps in {time.monotonic() - began:.0f} s; faults: {shown}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
