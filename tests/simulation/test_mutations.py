"""Every deliberate fault in the engine is found within a few seeds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.simulation import mutants, mutants_features, shrink
from tests.simulation.faults import Fault
from tests.simulation.mutants import Mutant
from tests.simulation.run import Result, features_of, run

SEEDS = 120
MUTANTS = (*mutants.MUTANTS, *mutants_features.MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_a_deliberate_fault_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    seeds = (
        seed
        for seed in range(mutant.first, mutant.first + SEEDS)
        if not mutant.feature or mutant.feature in features_of(seed)
    )
    assert any(not run(seed).ok for seed in seeds), "not found: the simulation is blind here"


def test_a_failing_seed_is_shrunk_to_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two hundred faults the two stay without which nothing breaks, and the text repeats them.
    Runs are stood in for: real ones that fail go on for an hour of simulated time each."""
    faults = [Fault(f"w1.read#{number}", "slow", number) for number in range(200)]
    needed = {faults[31], faults[162]}
    runs: list[int] = []

    def stands_in(seed: int, *, only: Sequence[Fault], setup: object = None) -> Result:
        runs.append(len(only))
        problems = ["an invariant"] if needed <= set(only) else []
        return Result(seed, problems, list(only), ["a line"], "", 0, 0.0)

    monkeypatch.setattr(shrink, "run", stands_in)
    text = shrink.report(Result(7, ["an invariant"], faults, [], "", 0, 0.0))
    assert "seed 7 breaks invariants (2 of 200 faults are enough)" in text
    assert "--replay 7 'w1.read#31=slow:31' 'w1.read#162=slow:162'" in text
    assert len(runs) < 100
    assert shrink.shrink(7, faults, max_runs=3) == faults, "both halves are needed, and it stops"
