"""Work that grows with what users wrote, beside the event loop: expressions, JSON Schemas.

What one evaluation and one check may cost is bounded (`cel_budget`, `schema_keywords`), and still
a second or more; a decision may make many. On the loop everything else would stand meanwhile, the
renewal of leases first of all. In a thread it gets its turn whenever the work comes back to Python,
which loops of expressions do piece by piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from orchestrator.domain.errors import ErrorDetail
from orchestrator.domain.jsonschemas import check_value
from orchestrator.domain.jsontypes import Json

LARGE_BYTES: Final = 256 * 1024
"""Of JSON: an expression that is given so much may take long, whatever it says."""
LARGE_WEIGHT: Final = 1_000
"""Values, and hundreds of characters; holding so many against a schema takes some milliseconds."""

T = TypeVar("T")


async def aside(work: Callable[[], T], *, heavy: bool) -> T:
    """`work()`, in a thread if it is `heavy`. Raises what it raises."""
    return await asyncio.to_thread(work) if heavy else work()


async def faults_of(schema: Any, value: Json, path: str = "$") -> list[ErrorDetail]:
    """As `check_value`, in a thread if the schema or the value is large."""
    large = _is_large(schema) or _is_large(value)
    return await aside(lambda: check_value(schema, value, path), heavy=large)


def _is_large(value: object) -> bool:
    """Looks at no more than `LARGE_WEIGHT` values."""
    weight, waiting = 0, [value]
    while waiting and weight <= LARGE_WEIGHT:
        one = waiting.pop()
        weight += 1
        if isinstance(one, str):
            weight += len(one) // 100
        elif isinstance(one, dict | list):
            inner = cast("dict[str, object] | list[object]", one)
            if len(inner) > LARGE_WEIGHT:
                return True
            waiting.extend(inner.values() if isinstance(inner, dict) else inner)
    return weight > LARGE_WEIGHT
