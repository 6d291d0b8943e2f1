"""Long CPU work of async activities, taken off the event loop.

Checking 33 MiB of JSON takes more than a second in Python. On the loop that would stop everything
else, the renewal of leases first of all; in a thread the loop gets its turn every few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from pydantic import BaseModel

LARGE_NODES: Final = 2_000  # values; checking so many takes about 1 ms, moving to a thread 0.1 ms
LARGE_BYTES: Final = 256 * 1024

T = TypeVar("T")


async def off_loop(work: Callable[[], T], *, large: bool) -> T:
    """`work()`, in a thread if it is `large`. Raises what it raises."""
    if not large:
        return work()
    result, error = await asyncio.to_thread(_capture, work)
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def is_large(value: Any) -> bool:
    """Whether `value` holds more than `LARGE_NODES` values or `LARGE_BYTES` characters of text.
    Looks at no more than that."""
    nodes, size, waiting = 0, 0, [value]
    while waiting:
        one = waiting.pop()
        nodes += 1
        if isinstance(one, str | bytes):
            size += len(one)
        else:
            inner = one.__dict__ if isinstance(one, BaseModel) else one
            if isinstance(inner, dict | list | tuple | set | frozenset):
                if len(inner) > LARGE_NODES:
                    return True
                waiting.extend(inner.values() if isinstance(inner, dict) else inner)
        if nodes + len(waiting) > LARGE_NODES or size > LARGE_BYTES:
            return True
    return False


def _capture(work: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """Result or error as a value: an executor cannot hand over a `StopIteration`."""
    try:
        return work(), None
    except BaseException as exc:
        return None, exc
