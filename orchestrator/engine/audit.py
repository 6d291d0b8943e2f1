"""Who did what, when, from where and why: an append-only log, a hash chain per tenant.

Container `audit`, partition (tenantId):

    head        auditHead   `n` and `hash` of the latest record, `expiresAt` if it has one
    (any id)    audit       a record; `domain/audit_chain.py` says how it is linked

A record and the new head are one batch under the head's ETag. So numbers have no gaps, and if two
processes append at once, one of them tries again. Records that wait in one process are written
together.

Records are written after the action's commit. The history of the execution (or the dead letter) has
the action too, so a record that a crash prevented can be found there. What can be done only once
(resolve a dead letter, make a replay under a key) has a record with an id of its own, so the same
request again writes it if it is missing. All others have a fresh sortable id. If the store takes no
record for half a minute, the record is given up: counted and logged, and the action stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.domain import audit_chain
from orchestrator.domain.audit_chain import HEAD_ID, RECORD_TYPE
from orchestrator.domain.topology import AUDIT, SCHEMA_VERSION
from orchestrator.engine import origin
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import (
    BadDocument,
    Conflict,
    Create,
    Document,
    NotFound,
    Operation,
    PreconditionFailed,
    Replace,
    StoreError,
)

log = logging.getLogger(__name__)

AT_ONCE = 50
"""Records in one batch."""
CONFLICT_WAIT_MS = 2
PATIENT_CONFLICTS = 2


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
    resource: str = "",
    details: Mapping[str, str | int] | None = None,
    id: str = "",
) -> None:
    """Append a record, once if it has an `id` of its own. Never raises: the action has happened.

    `resource`: what was changed, as kind:name; left out: the execution. `details`: hashes of it
    before and after, a version, whatever is small and no payload."""
    body: dict[str, Any] = {
        "id": id or engine.ids.new(),
        "type": RECORD_TYPE,
        "tenantId": tenant,
        "v": SCHEMA_VERSION,
        "at": engine.clock.now(),
        "action": action,
        "resource": resource or f"execution:{execution}",
        "execution": execution,
        "by": by,
        "reason": reason,
    }
    if task:
        body["task"] = task
    if dependency:
        body["dependency"] = dependency
    if details:
        body["details"] = dict(details)
    if where := origin.current():
        body |= {"origin": where.to_doc(), "reason": reason or where.reason}
    try:
        await engine.part(Appender).append(tenant, body)
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


async def head(engine: Engine, tenant: str) -> Document | None:
    """The head of the tenant's chain; None before the first record. Raises what the store raises,
    `BadDocument` if newer code wrote it."""
    try:
        found = await patiently(engine, engine.store.read, AUDIT, (tenant,), HEAD_ID)
    except (NotFound, Unclear):  # unclear are writes only: this says that it is not there
        return None
    if found.body["v"] > SCHEMA_VERSION:
        raise BadDocument("the audit was written by newer code")
    return found


@dataclass(slots=True, eq=False)
class _Entry:
    body: dict[str, Any]
    done: bool = False
    error: StoreError | Unclear | None = None


@dataclass(slots=True)
class _Lane:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_Entry] = field(default_factory=list[_Entry])


class Appender:
    """Appends to the chains, one batch at a time for each tenant."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lanes: dict[str, _Lane] = {}

    async def append(self, tenant: str, body: dict[str, Any]) -> None:
        """Write it after whatever is there; a body whose id is there already, not again. Raises
        what the store raises, `PreconditionFailed` if others were faster too often."""
        lane = self._lanes.setdefault(tenant, _Lane())
        entry = _Entry(body)
        lane.waiting.append(entry)
        try:
            async with lane.lock:
                if not entry.done:
                    await self._lead(tenant, lane.waiting[:AT_ONCE])
        finally:
            # Also when this one is cancelled: what it wrote for others they find written.
            lane.waiting = [one for one in lane.waiting if not one.done and one is not entry]
            if not lane.waiting:
                self._lanes.pop(tenant, None)
        if entry.error is not None:
            raise entry.error

    async def _lead(self, tenant: str, group: list[_Entry]) -> None:
        """Write for all of the group; each hears of a failure, so that a store that is away is
        waited for once and not by one after the other."""
        try:
            await self._write(tenant, group)
        except (StoreError, Unclear) as error:
            for entry in group:
                if not entry.done:
                    entry.done, entry.error = True, error

    async def _write(self, tenant: str, group: list[_Entry]) -> None:
        engine, conflicts = self._engine, 0
        while todo := [entry for entry in group if not entry.done]:
            found = await head(engine, tenant)
            records, fresh = audit_chain.link(
                found.body if found else None,
                [entry.body for entry in todo],
                tenant=tenant,
                now=engine.clock.now(),
                days=engine.tunables.audit_days,
            )
            operations: list[Operation] = [Create(one) for one in records]
            operations.append(Replace(fresh, found.etag) if found else Create(fresh))
            try:
                await patiently(engine, engine.store.batch, AUDIT, (tenant,), operations)
            except (Conflict, PreconditionFailed, NotFound, Unclear) as error:
                cause = error.error if isinstance(error, Unclear) else error
                if not isinstance(cause, Conflict | PreconditionFailed | NotFound):
                    raise
                at = cause.operation
                if isinstance(cause, Conflict) and at is not None and at < len(todo):
                    # Written before, by whoever did the same, or by us: the answer was lost.
                    todo[at].done = True
                    continue
                conflicts += 1
                if conflicts >= engine.tunables.commit_attempts:
                    raise cause from None
                if conflicts > PATIENT_CONFLICTS:
                    await engine.clock.sleep(CONFLICT_WAIT_MS * conflicts)
                continue
            for entry in todo:
                entry.done = True
