"""Compete for an execution: load, decide, commit; and again if somebody else committed first.

The one loop behind everything that changes an execution, whether a message or an operator asks for
it: see `commit.Outdated`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from orchestrator.domain.errors import UnavailableError
from orchestrator.engine.commit import Outdated
from orchestrator.engine.core import Engine

T = TypeVar("T")

CONFLICT_WAIT_MS = 2
PATIENT_CONFLICTS = 2
"""Conflicts after which the competitors wait a little longer each time: the first few are over
before a wait would end."""


async def compete(
    engine: Engine, partition: tuple[str, str], once: Callable[[bool], Awaitable[T]]
) -> T:
    """The answer of `once(fresh)`, called again (up to `Tunables.commit_attempts` times) while it
    raises `Outdated`. `fresh`: what is remembered of the execution has proved old, read it. Raises
    `Outdated` after too many conflicts, and whatever else `once` raises."""
    for conflicts in range(engine.tunables.commit_attempts):
        try:
            return await once(conflicts > 0)
        except Outdated:
            engine.metrics.count("weft_commit_conflicts_total")
            engine.aggregates.drop(partition)
            if conflicts > PATIENT_CONFLICTS:
                await engine.clock.sleep(CONFLICT_WAIT_MS * conflicts)
    raise Outdated(f"{engine.tunables.commit_attempts} conflicts in a row")


async def operate(
    engine: Engine, partition: tuple[str, str], once: Callable[[bool], Awaitable[T]]
) -> T:
    """`compete` for a person who waits for the answer: too many conflicts are an
    `UnavailableError`."""
    try:
        return await compete(engine, partition, once)
    except Outdated:
        raise too_fast() from None


def too_fast() -> UnavailableError:
    """Too many commits came in between."""
    return UnavailableError("the execution changes too fast; send the same request again")
