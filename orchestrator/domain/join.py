"""Whether the outcomes of a task's needs let it run: the one place that reads `runWhen`.

Judged only after ALL needs have settled: an early verdict would depend on the order of messages,
and joins that fire early or wait for branches that were never chosen are the classic faults here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Final

from orchestrator.domain.status import DEAD_CODES, SETTLED_CODES, Code
from orchestrator.domain.workflow import RunWhen


class Verdict(Enum):
    """What to do with a PENDING task now."""

    WAIT = "wait"  # some need has not settled
    RUN = "run"
    SKIP = "skip"


_UNSETTLED: Final = bytes(code not in SETTLED_CODES for code in range(256))
"""By status code, 1 if unsettled: indexing bytes is the cheapest test there is, and wide joins ask
for every need."""

_HELD: Final = bytes(code not in SETTLED_CODES or code == Code.DEAD_LETTERED for code in range(256))

_COMPLETED_ONLY: Final = frozenset({Code.COMPLETED})

_MET: Final[dict[RunWhen, Callable[[AbstractSet[int]], bool]]] = {
    RunWhen.ALL_SUCCEEDED: lambda codes: codes <= _COMPLETED_ONLY,
    RunWhen.ALL_DONE: lambda codes: True,
    RunWhen.ANY_FAILED: lambda codes: not DEAD_CODES.isdisjoint(codes),
    RunWhen.ANY_SUCCEEDED: lambda codes: Code.COMPLETED in codes,
    RunWhen.NONE_FAILED: lambda codes: DEAD_CODES.isdisjoint(codes),
}


def judge(
    run_when: RunWhen, needs: Sequence[int], codes: bytes | bytearray, *, holding: bool = False
) -> Verdict:
    """The verdict for a task with these `needs` (positions), given all tasks' status codes. Stops
    at the first unsettled need. Without needs, `anyFailed` and `anySucceeded` are never met.
    `holding`: a dead-lettered need has not settled until an operator accepts it."""
    unsettled = _HELD if holding else _UNSETTLED
    for need in needs:
        if unsettled[codes[need]]:
            return Verdict.WAIT
    met = _MET[run_when]({codes[need] for need in needs})
    return Verdict.RUN if met else Verdict.SKIP
