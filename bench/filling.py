"""Fills a file with finished executions: copies of one that really ran, under ids of their own.

Each is one batch of all its documents through the store, so the file has the rows and the index
entries that it would have, only sooner.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from bench import harness
from bench.harness import TENANT, Platform
from orchestrator.domain.topology import EXECUTIONS, LEASES
from orchestrator.engine import submit
from orchestrator.ports import Create, Query, Where

AT_ONCE: Final = 32
LOOK_S: Final = 0.1


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
    await _fed(platform)


async def _fed(platform: Platform) -> None:
    """Until the change feed has passed all of it: catching up is not the next run's cost."""
    store, latest = platform.engine.store, Query(where=(Where("type", "=", "changeFeedLease"),))
    while True:
        leases = await store.query(LEASES, latest)
        places = [lease.body["cursor"] for lease in leases]
        behind = [await store.changes(EXECUTIONS, place, 1) for place in places]
        if places and not any(page.documents for page in behind):
            return
        await asyncio.sleep(LOOK_S)


def _copy(doc: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {**doc, "executionId": new, "id": new if doc["id"] == old else doc["id"]}
