"""Who did what, when and why: one document per action of a person, append-only.

Container `audit`, partition (tenantId), id a fresh sortable id. Written after the action's commit:
the history of the execution has the action too, so a record lost to a crash in between can be
found there.
"""

from __future__ import annotations

import logging

from orchestrator.domain.topology import AUDIT, SCHEMA_VERSION
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import StoreError

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
) -> None:
    """Append a record. Never raises: the action has happened."""
    body = {
        "id": engine.ids.new(),
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
