"""`runWhen` as a table: every rule against every pair of outcomes."""

from __future__ import annotations

import itertools

import pytest

from orchestrator.domain.join import Verdict, judge
from orchestrator.domain.status import SETTLED_CODES, Code
from orchestrator.domain.workflow import RunWhen

SETTLED = "CSsXDd"


def expected(run_when: RunWhen, needs: str) -> bool:
    match run_when:
        case RunWhen.ALL_SUCCEEDED:
            return all(c == "C" for c in needs)
        case RunWhen.ALL_DONE:
            return True
        case RunWhen.ANY_FAILED:
            return any(c in "Dd" for c in needs)
        case RunWhen.ANY_SUCCEEDED:
            return any(c == "C" for c in needs)
        case RunWhen.NONE_FAILED:
            return all(c not in "Dd" for c in needs)


@pytest.mark.parametrize("run_when", list(RunWhen))
def test_every_pair_of_outcomes(run_when: RunWhen) -> None:
    assert {ord(c) for c in SETTLED} == SETTLED_CODES - {Code.HIDDEN}  # nothing can need that
    for size in (0, 1, 2, 3):
        for outcome in itertools.product(SETTLED, repeat=size):
            codes = "".join(outcome).encode()
            verdict = judge(run_when, range(size), codes)
            assert (verdict is Verdict.RUN) == expected(run_when, codes.decode())
            assert verdict is not Verdict.WAIT


@pytest.mark.parametrize("run_when", list(RunWhen))
@pytest.mark.parametrize("unsettled", "PQW")
@pytest.mark.parametrize("other", SETTLED)
def test_no_verdict_before_all_needs_settled(run_when: RunWhen, unsettled: str, other: str) -> None:
    for codes in (unsettled + other, other + unsettled):
        assert judge(run_when, (0, 1), codes.encode()) is Verdict.WAIT


@pytest.mark.parametrize("run_when", list(RunWhen))
def test_while_holding_only_an_accepted_failure_has_settled(run_when: RunWhen) -> None:
    assert judge(run_when, (0, 1), b"CD", holding=True) is Verdict.WAIT
    assert judge(run_when, (0, 1), b"Cd", holding=True) is judge(run_when, (0, 1), b"CD")
