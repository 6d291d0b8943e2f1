"""Fills a file with finished executions: copies of one that really ran, under ids of their own.

Each is one batch of all its documents through the store, so the file has the rows and the index
entries that it would have, only sooner.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from bench import harness
from bench.harness import TENANT, Platform
from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine import submit
from orchestrator.ports import Create

AT_ONCE: Final = 32


async def fill(platform: Platform, definition: dict[str, Any], count: int) -> None:
    """Bring the number of finished executions of `definition` to `count`."""
    engine = platform.engine
    await harness.run(platform, definition, 1, len(definition["tasks"]))
    started = await submit.start(engine, TENANT, definition["name"], None)
    await platform.host.run_until_idle()
    model = await harness.documents(engine, started.id)
    left = iter(range(count - 2))

    async def work() -> None:
        for _ in left:
            id = engine.ids.new()
            await engine.store.batch(
                EXECUTIONS, (TENANT, id), [Create(_copy(doc, started.id, id)) for doc in model]
            )

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def _copy(doc: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {**doc, "executionId": new, "id": new if doc["id"] == old else doc["id"]}
