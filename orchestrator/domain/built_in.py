"""Code workflows that belong to Weft itself.

They run with the rights of whoever submitted them, so nothing but their own routes may start them:
no definition, schedule, trigger or code workflow names one, and no list of workflows shows one.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "weft-"
"""No other code workflow's name begins like that."""
BULK: Final = "weft-bulk"
"""One action on all that a filter finds."""
NAMES: Final = frozenset({BULK})
