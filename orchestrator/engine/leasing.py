"""A lease as it is written into a task document, and recognised there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.domain.topology import EXECUTIONS
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently

if TYPE_CHECKING:
    from orchestrator.engine.claims import Claim


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


async def still_held(engine: Engine, claim: Claim) -> bool:
    """After a conflict: whether the document still carries our lease, because the only other
    write was an earlier one of ours whose answer was lost. `claim.etag` is then the stored one.
    The caller holds `claim.lock`."""
    etag = await held(engine, claim.aggregate.partition, claim.id, claim.token)
    if etag is None or etag == claim.etag:
        return False
    claim.etag = etag
    return True
