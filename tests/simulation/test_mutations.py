"""Every deliberate fault in the engine is found within a few seeds."""

from __future__ import annotations

import pytest

from tests.simulation import mutants, mutants_features
from tests.simulation.mutants import Mutant
from tests.simulation.run import features_of, run
from tests.simulation.shrink import report

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
    """Few faults are left, each is needed, and the text says how to run it again."""
    (mutant,) = [one for one in MUTANTS if one.title == "the same wish heard again is refused"]
    mutant.apply(monkeypatch)
    result = next(
        result for result in map(run, range(mutant.first, mutant.first + SEEDS)) if not result.ok
    )
    text = report(result, max_runs=40)
    assert f"--replay {result.seed}" in text
    kept = int(text.split(" of ")[0].rsplit("(", 1)[1])
    assert 1 <= kept < 5, "of some two hundred faults"
