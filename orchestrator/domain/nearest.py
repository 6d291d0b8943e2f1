"""The nearest known name for a wrong one, as a hint, within a bounded amount of work.

Comparing is slow (difflib, microseconds per pair): 10,000 wrong names against 10,000 known ones
would take minutes, so after a budget of comparisons no more hints are given.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

NOT_LOADED: Final = (
    "{} are modules below activities/, found when an app starts: start it again, or deploy"
)
"""The hint for a name of the code's that nothing is near to; filled with what is looked for."""
BUDGET: Final = 20_000  # comparisons per validation, about 0.1 to 0.2 s


class Nearest:
    """Hints for one validation."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget

    def hint(self, name: str, known: Collection[str]) -> str:
        """`did you mean "x"?`, or an empty text."""
        if len(name) > 128 or self._budget < len(known):
            return ""
        self._budget -= len(known)
        # Case is the commonest fault, and difflib counts it as any other difference.
        folded: dict[str, str] = {}
        for candidate in known:
            folded.setdefault(candidate.lower(), candidate)
        close = get_close_matches(name.lower(), list(folded), n=1, cutoff=0.6)
        return f'did you mean "{folded[close[0]]}"?' if close else ""

    def field_hint(self, name: str, known: Collection[str]) -> str:
        """As `hint`, for a field; without a near one, all that there are."""
        if len(name) > 128 or self._budget < len(known):
            return ""
        return self.hint(name, known) or f"the fields here are {', '.join(known)}"
