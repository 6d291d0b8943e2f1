"""Workflow definitions: published once, immutable, versioned 1, 2, 3, …

Container `catalog`, partition (tenantId):

    workflow:{name}             workflow   latest version, archived flag, description
    version:{name}:{n:08}       version    definition as JSON text, its hash; created once

Publishing compares with the latest version only: content that equals an older one becomes a new
version, so that "publish what we had before" rolls back, as people expect of a deploy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain.compile import load_workflow
from orchestrator.domain.definition import Definition
from orchestrator.domain.errors import (
    InvalidError,
    NotFoundError,
    TooLargeError,
    UnavailableError,
)
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.own_child import own_version
from orchestrator.domain.support import unsupported
from orchestrator.domain.tenant_limits import Limit
from orchestrator.domain.topology import CATALOG, MAX_BODY_BYTES, SCHEMA_VERSION
from orchestrator.domain.validation import validate
from orchestrator.domain.workflow import Workflow
from orchestrator.engine import admission, documents
from orchestrator.engine import publish as publish_task
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views import PublishResult, VersionSummary, VersionView, WorkflowSummary
from orchestrator.ports import (
    Conflict,
    Create,
    Document,
    NotFound,
    Operation,
    PreconditionFailed,
    Query,
    Replace,
    Where,
)

PUBLISH_ATTEMPTS = 20
READ_AT_ONCE = 500
BYTES_PER_TASK = 4_000
"""What a task of a compiled definition takes in memory (measured: 1,200 without expressions, 3,600
with one)."""
After = tuple[str | int, str] | None


def _head_id(name: str) -> str:
    return f"workflow:{name}"


def _version_id(name: str, number: int) -> str:
    return f"version:{name}:{number:08}"


async def publish(
    engine: Engine, tenant: str, source: Json, *, dry_run: bool = False, published_by: str = ""
) -> PublishResult:
    """Check `source` and store it as the next version, unless the latest has the same content.

    Raises `InvalidError` with every problem found, `TooLargeError`, `LimitError` for a new name."""
    validated = await asyncio.to_thread(
        validate,
        source,
        activities=engine.activities.names(),
        targets=publish_task.targets(engine),
    )
    if missing := unsupported(validated):
        raise InvalidError(
            "the definition uses features that this version of Weft does not run yet",
            code="NOT_YET_SUPPORTED",
            details=missing,
        )
    definition = validated.raw
    text = jsonvalues.dumps(definition)
    if len(text) > MAX_BODY_BYTES:
        raise TooLargeError(f"the definition has {len(text)} bytes, the limit is {MAX_BODY_BYTES}")
    digest = jsonvalues.body_hash(definition)
    name = validated.definition.name
    for _ in range(PUBLISH_ATTEMPTS):
        head = await _read(engine, tenant, _head_id(name))
        latest = int(head.body["latest"]) if head else 0
        same = head is not None and head.body["hash"] == digest and not head.body["archived"]
        if not same and (own := own_version(validated.definition, latest + 1)):
            raise InvalidError(f"{own[0].field}: {own[0].message}", details=own)
        if same or dry_run:
            return PublishResult(
                name=name, version=latest if same else latest + 1, created=False, dry_run=dry_run
            )
        number = latest + 1
        if head is None:
            await admission.stored(engine, tenant, Limit.DEFINITIONS, "workflow", name)
        operations = _publication(
            engine, tenant, validated.definition, text, digest, head, published_by
        )
        try:
            await patiently(engine, engine.store.batch, CATALOG, (tenant,), operations)
        except (Conflict, PreconditionFailed, Unclear):
            # Somebody published at the same moment, or our own write was applied and its answer
            # lost: the next round sees which.
            continue
        return PublishResult(name=name, version=number, created=True)
    raise UnavailableError(f"workflow {name!r} is being published by many at once; try again")


def _publication(
    engine: Engine,
    tenant: str,
    definition: Definition,
    text: bytes,
    digest: str,
    head: Document | None,
    published_by: str,
) -> list[Operation]:
    now = engine.clock.now()
    number = (int(head.body["latest"]) if head else 0) + 1
    name = definition.name
    new_head: dict[str, Any] = {
        "id": _head_id(name),
        "type": "workflow",
        "tenantId": tenant,
        "v": SCHEMA_VERSION,
        "name": name,
        "description": definition.description or "",
        "latest": number,
        "hash": digest,
        "archived": False,
        "createdAt": head.body["createdAt"] if head else now,
        "updatedAt": now,
    }
    version: dict[str, Any] = {
        "id": _version_id(name, number),
        "type": "version",
        "tenantId": tenant,
        "v": SCHEMA_VERSION,
        "name": name,
        "version": number,
        "hash": digest,
        "definition": text.decode(),
        "createdAt": now,
        "publishedBy": published_by,
    }
    return [Replace(new_head, head.etag) if head else Create(new_head), Create(version)]


async def workflow(engine: Engine, tenant: str, name: str) -> WorkflowSummary:
    """Raises `NotFoundError`."""
    return _summary((await head(engine, tenant, name)).body)


async def workflows(
    engine: Engine, tenant: str, *, limit: int, after: After
) -> tuple[list[WorkflowSummary], After]:
    """A page of the tenant's workflows by name, archived ones included."""
    found = await engine.store.query(
        CATALOG,
        Query(
            partition=(tenant,), where=(Where("type", "=", "workflow"),), limit=limit, after=after
        ),
    )
    return [_summary(doc.body) for doc in found], _next(found, limit)


async def versions(
    engine: Engine, tenant: str, name: str, *, limit: int, after: After
) -> tuple[list[VersionSummary], After]:
    """A page of a workflow's versions, oldest first. Raises `NotFoundError`."""
    await head(engine, tenant, name)
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
    found = await head(engine, tenant, name)
    doc = await _read(engine, tenant, _version_id(name, number))
    if doc is None:
        raise NotFoundError(
            f"workflow {name!r} has no version {number}; the latest is {found.body['latest']}",
            code="VERSION_NOT_FOUND",
        )
    return VersionView(
        **_version_fields(doc.body),
        archived=found.body["archived"],
        definition=jsonvalues.loads(doc.body["definition"]),
    )


async def archive(engine: Engine, tenant: str, name: str) -> None:
    """No new executions from now on; running ones go on. Publishing again brings it back.
    Idempotent. Raises `NotFoundError`."""
    for _ in range(PUBLISH_ATTEMPTS):
        found = await head(engine, tenant, name)
        if found.body["archived"]:
            return
        body = {**found.body, "archived": True, "updatedAt": engine.clock.now()}
        try:
            await patiently(
                engine,
                engine.store.replace,
                CATALOG,
                (tenant,),
                body,
                if_match=found.etag,
            )
            return
        except (PreconditionFailed, Unclear):
            continue
    raise UnavailableError(f"workflow {name!r} is being changed by many at once; try again")


async def head(engine: Engine, tenant: str, name: str) -> Document:
    """The workflow's head document. Raises `NotFoundError`."""
    found = await _read(engine, tenant, _head_id(name))
    if found is None:
        raise unknown(name)
    return found


def unknown(name: str) -> NotFoundError:
    """There is no such workflow."""
    return NotFoundError(
        f"no workflow {name!r}; publish it first, or see GET /v1/workflows",
        code="WORKFLOW_NOT_FOUND",
    )


async def latest(engine: Engine, tenant: str, names: Sequence[str]) -> dict[str, int]:
    """Name -> latest version, of those that exist and are not archived."""
    result: dict[str, int] = {}
    for at in range(0, len(names), READ_AT_ONCE):
        ids = [_head_id(name) for name in names[at : at + READ_AT_ONCE]]
        found = await patiently(engine, engine.store.read_many, CATALOG, (tenant,), ids)
        heads = [doc.body for doc in found.values() if not doc.body["archived"]]
        result |= {head["name"]: int(head["latest"]) for head in heads}
    return result


async def compiled(engine: Engine, tenant: str, name: str, number: int) -> Workflow:
    """The runnable form of a version; cached, because versions never change. Raises
    `NotFoundError`."""
    key = (tenant, name, number)
    cached: Workflow | None = engine.definitions.get(key)
    if cached is not None:
        return cached
    doc = await _read(engine, tenant, _version_id(name, number))
    if doc is None:
        raise NotFoundError(f"workflow {name!r} has no version {number}", code="VERSION_NOT_FOUND")
    cached = engine.definitions.get(key)
    if cached is not None:  # others waited for the same read: compiling is the long part
        return cached
    result = load_workflow(jsonvalues.loads(doc.body["definition"]))
    engine.definitions.put(key, result, BYTES_PER_TASK * len(result.tasks))
    return result


async def _read(engine: Engine, tenant: str, id: str) -> Document | None:
    try:
        found = await patiently(engine, engine.store.read, CATALOG, (tenant,), id)
    except (NotFound, Unclear):  # unclear are writes only: this says that it is not there
        return None
    documents.check_version(found.body)
    return found


def _next(found: list[Document], limit: int) -> After:
    return (found[-1].id, found[-1].id) if len(found) == limit else None


def _summary(body: dict[str, Any]) -> WorkflowSummary:
    return WorkflowSummary(
        name=body["name"],
        description=body["description"],
        latest_version=body["latest"],
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
