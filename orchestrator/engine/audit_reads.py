"""Read the audit: a page of it, newest first, and the check of its chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.domain import audit_chain
from orchestrator.domain.audit_chain import RECORD_TYPE, Finding, Walk
from orchestrator.domain.topology import AUDIT
from orchestrator.engine import audit
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently
from orchestrator.engine.views_audit import AuditCheck, AuditFinding, AuditView, OriginView
from orchestrator.ports import Document, Query, Where

After = tuple[str | int, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which records; all that is given must hold. Times in epoch ms, both included."""

    action: str | None = None
    resource: str | None = None
    execution: str | None = None
    by: str | None = None
    since: int | None = None
    until: int | None = None

    def where(self) -> tuple[Where, ...]:
        """As conditions of a query."""
        equal = (
            ("action", self.action),
            ("resource", self.resource),
            ("execution", self.execution),
            ("by", self.by),
        )
        found = [Where(name, "=", value) for name, value in equal if value is not None]
        if self.since is not None:
            found.append(Where("at", ">=", self.since))
        if self.until is not None:
            found.append(Where("at", "<=", self.until))
        return tuple(found)


async def page(
    engine: Engine, tenant: str, wanted: AuditFilter, *, limit: int, after: After
) -> tuple[list[AuditView], After]:
    """A page of the tenant's records, the latest first, and where the next begins."""
    query = Query(
        partition=(tenant,),
        where=(Where("type", "=", RECORD_TYPE), *wanted.where()),
        order_by="n",
        descending=True,
        after=after,
        limit=limit,
    )
    found = await patiently(engine, engine.store.query, AUDIT, query)
    more = (found[-1].body["n"], found[-1].id) if len(found) == limit else None
    return [_view(doc.body) for doc in found], more


async def verify(
    engine: Engine,
    tenant: str,
    *,
    start: int = 1,
    limit: int = 1_000,
    known: tuple[int, str] | None = None,
) -> AuditCheck:
    """Follow the chain from record `start` on, over `limit` records at most, and compare its end
    with the head. `known`: a number and the hash that somebody kept of that record elsewhere, the
    only proof against one who rewrites the whole chain. Raises what the store raises."""
    before = await audit.head(engine, tenant)
    most = limit if start == 1 else limit + 1
    rows = await _rows(engine, tenant, start, most)
    # From the record before `start` on: the first one of this part must follow it.
    overlap = start > 1 and bool(rows) and rows[0].body["n"] == start - 1
    walk = Walk(start - 1 if overlap else start, engine.clock.now())
    finding = _follow(walk, rows, before.body if before else None, known)
    full = len(rows) == most
    if finding is None and not full:
        after = await audit.head(engine, tenant)
        finding = walk.end(before.body if before else None, after.body if after else None)
        if finding is None and known is not None and known[0] > (after.body["n"] if after else 0):
            message = f"record {known[0]} is missing: the chain ends before it"
            finding = Finding(walk.expected, audit_chain.Fault.MISSING, message)
    checked = rows[1:] if overlap else rows
    return AuditCheck(
        ok=finding is None,
        checked=len(checked) if finding is None else sum(_before(one, finding) for one in checked),
        first=checked[0].body["n"] if checked else None,
        last=checked[-1].body["n"] if checked else None,
        head=before.body["n"] if before else 0,
        head_hash=before.body["hash"] if before else "",
        finding=_finding(finding),
        next=walk.expected if finding is None and full else None,
    )


def _follow(
    walk: Walk,
    rows: list[Document],
    head: dict[str, Any] | None,
    known: tuple[int, str] | None,
) -> Finding | None:
    kept = [known] if known else []
    if head is not None:
        kept.append((head["n"], head["hash"]))
    for row in rows:
        finding = walk.step(row.body)
        for n, hash in kept:
            finding = finding or audit_chain.confirmed(row.body, n, hash)
        if finding is not None:
            return finding
    return None


async def _rows(engine: Engine, tenant: str, start: int, limit: int) -> list[Document]:
    """`limit` records from `start` - 1 on, in pages that a store answers at once."""
    found: list[Document] = []
    after: After = None
    while len(found) < limit:
        size = min(limit - len(found), engine.tunables.sweep_page)
        query = Query(
            partition=(tenant,),
            where=(Where("type", "=", RECORD_TYPE), Where("n", ">=", start - 1)),
            order_by="n",
            after=after,
            limit=size,
        )
        rows = await patiently(engine, engine.store.query, AUDIT, query)
        found += rows
        if len(rows) < size:
            break
        after = (rows[-1].body["n"], rows[-1].id)
    return found


def _before(row: Document, finding: Finding) -> bool:
    return row.body["n"] < finding.n


def _finding(found: Finding | None) -> AuditFinding | None:
    if found is None:
        return None
    return AuditFinding(n=found.n, fault=found.fault, message=found.message)


def _view(body: dict[str, Any]) -> AuditView:
    where = body.get("origin")
    return AuditView(
        n=body["n"],
        at=body["at"],
        action=body["action"],
        resource=body["resource"],
        by=body["by"],
        reason=body["reason"],
        execution=body["execution"],
        task=body.get("task", ""),
        details=body.get("details", {}),
        origin=OriginView(**where) if where else None,
        hash=body["hash"],
        prev=body["prev"],
    )
