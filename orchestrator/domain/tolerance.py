"""How many items of a map may fail without failing it (`tolerateFailures`): a count or a share.

One place, because starting, gathering, reopening and dead letters must all judge a map alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from orchestrator.domain.state import MapState

PATTERN: Final = r"^(?:100(?:\.0{1,2})?|\d{1,2}(?:\.\d{1,2})?)%$"
"""A share as text: 0% to 100%, at most two decimals."""
_HUNDREDTHS: Final = 10_000  # of a percent, in the whole


@dataclass(frozen=True, slots=True)
class Tolerance:
    """At most `count` items, or at most this share of them (`hundredths` of a percent, 0 to
    10,000, rounded down to whole items). One of the two is zero; both: no item may fail."""

    count: int = 0
    hundredths: int = 0

    @staticmethod
    def of(written: int | str | None) -> Tolerance:
        """From a definition. Raises `ValueError` for a text that is no share."""
        if written is None:
            return NONE
        if isinstance(written, int):
            return Tolerance(count=written)
        if not re.fullmatch(PATTERN, written):
            raise ValueError(f"no share: {written!r}")
        whole, _, decimals = written.removesuffix("%").partition(".")
        return Tolerance(hundredths=int(whole) * 100 + int(decimals.ljust(2, "0") or 0))

    def allowed(self, items: int) -> int:
        """How many of `items` may fail."""
        return max(self.count, items * self.hundredths // _HUNDREDTHS)

    def exceeded(self, state: MapState) -> bool:
        """Whether more items have failed than that: the map fails."""
        return state.failed > self.allowed(state.count)

    def gathers(self, state: MapState) -> bool:
        """Whether all items have ended and not too many failed: there is a result to gather."""
        return state.completed + state.failed == state.count and not self.exceeded(state)


NONE: Final = Tolerance()
"""Any failed item fails the map."""
