"""A lease as it is written into a task document, and recognised there."""

from __future__ import annotations

from typing import Any

from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently


def lease(engine: Engine, token: str, now: int) -> dict[str, Any]:
    """Lease fields of a task document: valid for `lease_ms`, swept when it has expired."""
    until = now + engine.tunables.lease_ms
    return {
        "lease": {"worker": engine.worker, "token": token, "until": until, "beatAt": now},
        "sweepAt": until,
    }


async def held(engine: Engine, partition: tuple[str, str], id: str, token: str) -> str | None:
    """The ETag of the task document if it carries the lease `token`."""
    found = await patiently(engine, engine.store.read_many, EXECUTIONS, partition, [id])
    doc = found.get(id)
    if doc is None or doc.body.get("lease", {}).get("token") != token:
        return None
    return doc.etag
