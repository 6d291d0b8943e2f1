"""Evaluation of expressions that may take long, beside the event loop.

What one evaluation may cost is bounded (`cel_budget`), and still about a second; a decision may
make many. On the loop everything else would stand meanwhile, the renewal of leases first of all.
In a thread it gets its turn whenever the library comes back to Python, which loops do piece by
piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")


LARGE_BYTES: Final = 256 * 1024
"""Of JSON: an expression that is given so much may take long, whatever it says."""


async def aside(work: Callable[[], T], *, heavy: bool) -> T:
    """`work()`, in a thread if it is `heavy`. Raises what it raises."""
    return await asyncio.to_thread(work) if heavy else work()
