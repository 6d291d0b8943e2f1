"""Who did what, when and why: one document per action of a person, append-only.

Container `audit`, partition (tenantId). Written after the action's commit: the history of the
execution (or the dead letter) has the action too, so a record lost to a crash in between can be
found there. What can be done once only (resolve a dead letter, make a replay under a key) has a
record with an id of its own, so that the same request again writes it if it is missing; all others
have a fresh sortable id.
"""

from __future__ import annotations

import logging

from orchestrator.domain.topology import AUDIT, SCHEMA_VERSION
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import Conflict, StoreError

log = logging.getLogger(__name__)


async def record(
    engine: Engine,
    tenant: str,
    *,
    action: str,
    execution: str,
    by: str,
    reason: str = "",
    task: str = "",
    dependency: str = "",
    id: str = "",
) -> None:
    """Append a record, once if it has an `id` of its own. Never raises: the action has happened."""
    body = {
        "id": id or engine.ids.new(),
        "type": "audit",
        "tenantId": tenant,
        "v": SCHEMA_VERSION,
        "at": engine.clock.now(),
        "action": action,
        "execution": execution,
        "by": by,
        "reason": reason,
    }
    if task:
        body["task"] = task
    if dependency:
        body["dependency"] = dependency
    try:
        await patiently(engine, engine.store.create, AUDIT, (tenant,), body)
    except (StoreError, Unclear) as error:
        cause = error.error if isinstance(error, Unclear) else error
        if isinstance(cause, Conflict):
            return  # it is there: written before, or by this very call whose answer was lost
        engine.metrics.count("weft_audit_failures_total")
        log.error(
            "audit record not written",
            extra={
                "action": "audit.failed",
                "audited": action,
                "execution": execution,
                "error": type(error).__name__,
            },
        )
