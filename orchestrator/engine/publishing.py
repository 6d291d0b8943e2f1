"""Publish and archive workflows on behalf of a person: `catalog`, and the audit record of it."""

from __future__ import annotations

from orchestrator.domain.jsontypes import Json
from orchestrator.engine import audit, catalog, catalog_reads
from orchestrator.engine.core import Engine
from orchestrator.engine.views import PublishResult


async def publish(
    engine: Engine, tenant: str, source: Json, *, by: str, dry_run: bool = False
) -> PublishResult:
    """As `catalog.publish`; a new version is in the audit, with its hash and that of the version
    before. Raises as that does."""
    began = engine.clock.now()
    result = await catalog.publish(engine, tenant, source, dry_run=dry_run, published_by=by)
    if dry_run:
        return result
    name, number = result.name, result.version
    version = await catalog_reads.version(engine, tenant, name, number)
    if not result.created and ((version.published_at or 0) < began or version.published_by != by):
        return result  # it was there before; else it is ours, and the answer was lost
    details: dict[str, str | int] = {"version": number, "after": version.hash}
    if number > 1:
        details["before"] = (await catalog_reads.version(engine, tenant, name, number - 1)).hash
    await audit.record(
        engine,
        tenant,
        action="workflow.publish",
        execution="",
        resource=f"workflow:{name}",
        by=by,
        details=details,
        id=f"publish:{name}:{number}",
    )
    return result


async def archive(engine: Engine, tenant: str, name: str, *, by: str) -> None:
    """As `catalog.archive`, and in the audit unless it was archived before. Raises as that does."""
    found = await catalog.head(engine, tenant, name)
    await catalog.archive(engine, tenant, name)
    if not found.body["archived"]:
        await audit.record(
            engine,
            tenant,
            action="workflow.archive",
            execution="",
            resource=f"workflow:{name}",
            by=by,
            details={"version": found.body["latest"], "before": found.body["hash"]},
        )
