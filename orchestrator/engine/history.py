"""Reading the events documents of an execution: its history, commit by commit."""

from __future__ import annotations

from typing import Any

from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import documents
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently
from orchestrator.ports import Query, Where

PAGE = 200


async def commits(
    engine: Engine,
    partition: tuple[str, str],
    *,
    first: int = 0,
    last: int,
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """Bodies of the events documents of commits `first` to `last`, in order, at most `limit`.
    Commits after `last` belong to a state that the caller has not read."""
    result: list[dict[str, Any]] = []
    low, after = documents.events_id(first), None
    while limit is None or len(result) < limit:
        size = PAGE if limit is None else min(PAGE, limit - len(result))
        query = Query(
            partition=partition,
            where=(
                Where("id", ">=", low),
                Where("id", "<=", documents.events_id(last)),
                Where("type", "=", "events"),
            ),
            after=after,
            limit=size,
        )
        found = await patiently(engine, engine.store.query, EXECUTIONS, query)
        result += [doc.body for doc in found]
        if len(found) < size:
            break
        after = (found[-1].id, found[-1].id)
    return result
