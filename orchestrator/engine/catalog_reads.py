"""What the API shows of workflow definitions: lists, versions, and what stands in them."""

from __future__ import annotations

from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain.topology import CATALOG
from orchestrator.engine import catalog, code_catalog
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently
from orchestrator.engine.views import VersionSummary, VersionView, WorkflowSummary
from orchestrator.ports import Document, Query, Where

After = tuple[str | int, str] | None


async def workflow(engine: Engine, tenant: str, name: str) -> WorkflowSummary:
    """Raises `NotFoundError`."""
    return _summary((await catalog.head(engine, tenant, name)).body)


async def workflows(
    engine: Engine, tenant: str, *, limit: int, after: After
) -> tuple[list[WorkflowSummary], After]:
    """A page of the tenant's workflows by name, archived ones included, and code workflows."""
    found = await engine.store.query(
        CATALOG,
        Query(
            partition=(tenant,), where=(Where("type", "=", "workflow"),), limit=limit, after=after
        ),
    )
    code = [catalog.head_id(name) for name in sorted(engine.code.names())]
    own = await patiently(engine, engine.store.read_many, CATALOG, (tenant,), code) if code else {}
    heads = [code_catalog.head(engine, tenant, name) for name in sorted(engine.code.names())]
    begin, full = "" if after is None else after[1], len(found) == limit
    more = [
        doc
        for doc in heads
        if doc is not None
        and doc.id not in own
        and doc.id > begin
        and not (full and doc.id > found[-1].id)
    ]
    merged = sorted([*found, *more], key=lambda doc: doc.id)
    shown = merged[:limit]
    items = [_summary(doc.body) for doc in shown]
    return items, (shown[-1].id, shown[-1].id) if full or len(merged) > limit else None


async def versions(
    engine: Engine, tenant: str, name: str, *, limit: int, after: After
) -> tuple[list[VersionSummary], After]:
    """A page of a workflow's versions, oldest first. Raises `NotFoundError`."""
    known = await catalog.head(engine, tenant, name)
    if catalog.is_code(known):
        begin = 0 if after is None or not str(after[0]).isdecimal() else int(after[0])
        some = [number for number in known.body["versions"] if number > begin]
        items = [VersionSummary(**_code_fields(engine, name, number)) for number in some[:limit]]
        return items, (some[limit - 1], "") if len(some) > limit else None
    found = await engine.store.query(
        CATALOG,
        Query(
            partition=(tenant,),
            where=(Where("type", "=", "version"), Where("name", "=", name)),
            limit=limit,
            after=after,
        ),
    )
    return [VersionSummary(**_version_fields(doc.body)) for doc in found], _next(found, limit)


async def version(engine: Engine, tenant: str, name: str, number: int) -> VersionView:
    """One version with its definition. Raises `NotFoundError`."""
    found = await catalog.head(engine, tenant, name)
    if catalog.is_code(found):
        return VersionView(
            **_code_fields(engine, name, catalog.number_of(found, number)),
            definition=code_catalog.definition(engine, name, number),
        )
    doc = await catalog.read(engine, tenant, catalog.version_id(name, number))
    if doc is None:
        raise catalog.no_version(found, number)
    return VersionView(
        **_version_fields(doc.body),
        archived=found.body["archived"],
        definition=jsonvalues.loads(doc.body["definition"]),
    )


def _code_fields(engine: Engine, name: str, number: int) -> dict[str, Any]:
    digest = code_catalog.digest(engine, name, number)
    return {"name": name, "version": number, "hash": digest, "kind": code_catalog.KIND}


def _next(found: list[Document], limit: int) -> After:
    return (found[-1].id, found[-1].id) if len(found) == limit else None


def _summary(body: dict[str, Any]) -> WorkflowSummary:
    return WorkflowSummary(
        name=body["name"],
        description=body["description"],
        latest_version=body["latest"],
        kind=body.get("kind", "definition"),
        archived=body["archived"],
        created_at=body["createdAt"],
        updated_at=body["updatedAt"],
    )


def _version_fields(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": body["name"],
        "version": body["version"],
        "hash": body["hash"],
        "published_at": body["createdAt"],
        "published_by": body["publishedBy"],
    }
