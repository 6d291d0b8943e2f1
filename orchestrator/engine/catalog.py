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

from orchestrator.domain import built_in, jsonvalues
from orchestrator.domain.compile import load_workflow
from orchestrator.domain.definition import Definition
from orchestrator.domain.errors import (
    ConflictError,
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
from orchestrator.engine import admission, code_catalog, documents
from orchestrator.engine import publish as publish_task
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views import PublishResult
from orchestrator.ports import (
    Conflict,
    Create,
    Document,
    NotFound,
    Operation,
    PreconditionFailed,
    Replace,
)

PUBLISH_ATTEMPTS = 20
READ_AT_ONCE = 500
BYTES_PER_TASK = 4_000
"""What a task of a compiled definition takes in memory (measured: 1,200 without expressions, 3,600
with one)."""


def head_id(name: str) -> str:
    """Id of a workflow's head document."""
    return f"workflow:{name}"


def version_id(name: str, number: int) -> str:
    """Id of a version's document."""
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
        orchestrations={
            name: engine.code.versions(name) for name in engine.code.names() - built_in.NAMES
        },
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
        head = await read(engine, tenant, head_id(name))
        if name in built_in.NAMES or (head is None and name in engine.code.names()):
            raise _is_code(name, "choose another name for the definition")
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
        "id": head_id(name),
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
        "id": version_id(name, number),
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


async def archive(engine: Engine, tenant: str, name: str) -> None:
    """No new executions from now on; running ones go on. Publishing again brings it back.
    Idempotent. Raises `NotFoundError`."""
    for _ in range(PUBLISH_ATTEMPTS):
        found = await head(engine, tenant, name)
        if is_code(found):
            raise _is_code(name, "it goes when the app is deployed without it")
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
    """The workflow's head document; of a code workflow, what it would be. Raises
    `NotFoundError`, also for one of Weft's own."""
    if name in built_in.NAMES:
        raise unknown(name)
    found = await read(engine, tenant, head_id(name))
    if found is None:
        found = code_catalog.head(engine, tenant, name)
    if found is None:
        raise unknown(name)
    return found


def unknown(name: str) -> NotFoundError:
    """There is no such workflow."""
    return NotFoundError(
        f"no workflow {name!r}; publish it first, or see GET /v1/workflows (`weft workflows list`)",
        code="WORKFLOW_NOT_FOUND",
    )


async def latest(engine: Engine, tenant: str, names: Sequence[str]) -> dict[str, int]:
    """Name -> latest version, of those that exist and are not archived."""
    result: dict[str, int] = {}
    for at in range(0, len(names), READ_AT_ONCE):
        ids = [head_id(name) for name in names[at : at + READ_AT_ONCE]]
        found = await patiently(engine, engine.store.read_many, CATALOG, (tenant,), ids)
        heads = [doc.body for doc in found.values() if not doc.body["archived"]]
        result |= {head["name"]: int(head["latest"]) for head in heads}
        own = {doc.body["name"] for doc in found.values()}
        for name in set(names[at : at + READ_AT_ONCE]) - own:
            if versions := engine.code.versions(name):
                result[name] = versions[-1]
    return result


async def published(engine: Engine, tenant: str, names: Sequence[str]) -> set[str]:
    """Those of the names that the tenant has published a definition of, archived ones included."""
    ids = [head_id(name) for name in names]
    found = await patiently(engine, engine.store.read_many, CATALOG, (tenant,), ids)
    return {str(doc.body["name"]) for doc in found.values()}


def is_code(head: Document) -> bool:
    """Whether it is of a code workflow."""
    return head.body.get("kind") == code_catalog.KIND


def kind_fields(head: Document) -> dict[str, Any]:
    """What the header of an execution says about the kind of its workflow."""
    return {"kind": code_catalog.KIND} if is_code(head) else {}


def number_of(head: Document, version: int | None) -> int:
    """The version that is meant; None: the latest. Raises `NotFoundError`."""
    latest = int(head.body["latest"])
    known = head.body["versions"] if is_code(head) else range(1, latest + 1)
    if version is not None and version not in known:
        raise no_version(head, version)
    return latest if version is None else version


async def runnable(
    engine: Engine, tenant: str, head: Document, version: int | None = None
) -> Workflow:
    """The runnable form of a version, or of the latest. Raises `NotFoundError`."""
    number = int(head.body["latest"]) if version is None else version
    return await compiled(engine, tenant, head.body["name"], number, code=is_code(head))


def no_version(head: Document, number: int) -> NotFoundError:
    """There is no such version."""
    name, latest = head.body["name"], head.body["latest"]
    return NotFoundError(
        f"workflow {name!r} has no version {number}; the latest is {latest}",
        code="VERSION_NOT_FOUND",
    )


def _is_code(name: str, hint: str) -> ConflictError:
    message = f"{name!r} is a code workflow, which is deployed with the app; {hint}"
    return ConflictError(message, code="CODE_WORKFLOW")


async def compiled(
    engine: Engine, tenant: str, name: str, number: int, *, code: bool = False
) -> Workflow:
    """The runnable form of a version, of a code workflow if `code`; cached, because versions never
    change. Raises `NotFoundError`."""
    if code:
        return code_catalog.compiled(engine, name, number)
    key = (tenant, name, number)
    cached: Workflow | None = engine.definitions.get(key)
    if cached is not None:
        return cached
    doc = await read(engine, tenant, version_id(name, number))
    if doc is None:
        raise NotFoundError(f"workflow {name!r} has no version {number}", code="VERSION_NOT_FOUND")
    cached = engine.definitions.get(key)
    if cached is not None:  # others waited for the same read: compiling is the long part
        return cached
    result = load_workflow(jsonvalues.loads(doc.body["definition"]))
    engine.definitions.put(key, result, BYTES_PER_TASK * len(result.tasks))
    return result


async def read(engine: Engine, tenant: str, id: str) -> Document | None:
    """A document of the tenant's catalog; None if it is not there."""
    try:
        found = await patiently(engine, engine.store.read, CATALOG, (tenant,), id)
    except (NotFound, Unclear):  # unclear are writes only: this says that it is not there
        return None
    documents.check_version(found.body)
    return found
