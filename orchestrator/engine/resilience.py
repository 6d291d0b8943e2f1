"""Keep trying while the store throttles or does not answer, within a budget.

A 429 says that nothing was written. `Unavailable` leaves a write's fate unknown: the caller's
operation must then be safe to repeat, or ask "was that mine?" when the repeat conflicts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from orchestrator.engine.core import Engine
from orchestrator.ports import StoreError, Throttled, Unavailable

T = TypeVar("T")
P = ParamSpec("P")

UNAVAILABLE_WAIT_MS = 200
MAX_WAIT_MS = 5_000


class Unclear(Exception):
    """The repeated operation failed with `error`, but an earlier try may have been applied."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(str(error))
        self.error = error


async def patiently(
    engine: Engine, operation: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Await `operation(*args, **kwargs)`, again after 429 and `Unavailable`, until
    `throttle_budget_ms` is used up.

    Raises the last error; raises `Unclear` if an error other than these two follows an
    `Unavailable`.
    """
    waited, unclear = 0, False
    while True:
        try:
            return await operation(*args, **kwargs)
        except Throttled as error:
            engine.metrics.count("weft_store_throttled_total")
            wait = max(1, min(error.retry_after_ms, MAX_WAIT_MS))
            last: StoreError = error
        except Unavailable as error:
            engine.metrics.count("weft_store_unavailable_total")
            unclear = True
            wait = min(UNAVAILABLE_WAIT_MS + waited // 2, MAX_WAIT_MS)
            last = error
        except StoreError as error:
            if unclear:
                raise Unclear(error) from error
            raise
        if waited + wait > engine.tunables.throttle_budget_ms:
            raise last
        await engine.clock.sleep(wait)
        waited += wait
