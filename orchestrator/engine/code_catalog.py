"""Code workflows in the catalog: which there are, and which of their versions may be removed.

They are deployed with the app, so every tenant has them, unless it has published a definition of
the same name. A version always compiles to the same thing, one task that runs the orchestration, so
no definition is stored. Only what was deployed is, in container `catalog`, partition (`_platform`):

    code-workflows      codeWorkflows     versions (name -> numbers) as of the last `publish`

An execution of one says so in its header (`kind`), and which versions it needs as long as it runs
(`orchestration.use_field`).
"""

from __future__ import annotations

from typing import Any, Final

from orchestrator.domain import built_in, jsonvalues
from orchestrator.domain.compile import code_definition, code_workflow
from orchestrator.domain.errors import ConflictError, ErrorDetail, UnavailableError
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.orchestration import use_field
from orchestrator.domain.status import TERMINAL_EXECUTION
from orchestrator.domain.topology import CATALOG, EXECUTIONS, SCHEMA_VERSION
from orchestrator.domain.workflow import Workflow
from orchestrator.engine.core import Engine
from orchestrator.engine.documents import PLATFORM_TENANT
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views_code import CodeUse, CodeWorkflowsView, CodeWorkflowView
from orchestrator.ports import Conflict, Document, NotFound, PreconditionFailed, Query, Where

KIND: Final = "code"
DOCUMENT: Final = "code-workflows"
DESCRIPTION: Final = "A code workflow of the app"
SHOWN_EXECUTIONS = 20
PAGE = 200
ATTEMPTS = 5
REMEMBERED_MS = 10 * 60_000


def head(engine: Engine, tenant: str, name: str) -> Document | None:
    """What a head document of `name` would say; None if it is not registered."""
    versions = engine.code.versions(name)
    if not versions:
        return None
    body: dict[str, Any] = {
        "name": name,
        "description": DESCRIPTION,
        "latest": versions[-1],
        "versions": list(versions),
        "hash": digest(engine, name, versions[-1]),
        "archived": False,
        "createdAt": None,
        "updatedAt": None,
        "kind": KIND,
    }
    return Document(f"workflow:{name}", body, "")


def definition(engine: Engine, name: str, version: int) -> dict[str, Json]:
    """What a version of it would be as a definition. Raises `KeyError`."""
    return code_definition(name, version, engine.code.input_schema(name, version))


def digest(engine: Engine, name: str, version: int) -> str:
    """Hash of a registered version's definition."""
    return jsonvalues.body_hash(definition(engine, name, version))


def compiled(engine: Engine, name: str, version: int) -> Workflow:
    """The runnable form of a version, also of one that is not registered any more: what runs of it
    needs no schema."""
    key = (PLATFORM_TENANT, name, version)
    cached: Workflow | None = engine.definitions.get(key)
    if cached is None:
        registered = version in engine.code.versions(name)
        schema = engine.code.input_schema(name, version) if registered else None
        cached = code_workflow(name, version, schema)
        engine.definitions.put(key, cached, 4_000)
    return cached


class Missing:
    """Versions that tasks wanted to start and this process does not have, with when that was."""

    def __init__(self, engine: Engine) -> None:
        self._seen: dict[tuple[str, int], int] = {}

    def note(self, name: str, version: int, now: int) -> None:
        """A task waits for it."""
        self._seen[name, version] = now

    def lately(self, now: int) -> list[str]:
        """Those of the last ten minutes, as people name them."""
        self._seen = {key: at for key, at in self._seen.items() if now - at < REMEMBERED_MS}
        return [f"{name} v{version}" for name, version in sorted(self._seen)]


async def deployed(engine: Engine) -> CodeWorkflowsView:
    """What is registered in this process, and what was recorded as deployed."""
    recorded = await _recorded(engine)
    return _view(engine, None if recorded is None else recorded.body)


async def publish(engine: Engine, *, tenant: str, by: str) -> CodeWorkflowsView:
    """Record what is registered now as deployed. Raises `ConflictError` with every recorded version
    that is gone although executions of it are open, those of `tenant` by id; nothing is recorded
    then."""
    for _ in range(ATTEMPTS):
        found = await _recorded(engine)
        before: dict[str, list[int]] = {} if found is None else found.body["versions"]
        if used := await in_use(engine, before):
            raise _in_use(used, tenant)
        versions = {name: list(engine.code.versions(name)) for name in sorted(engine.code.names())}
        if found is not None and versions == before:
            return _view(engine, found.body)
        body: dict[str, Any] = {
            "id": DOCUMENT,
            "type": "codeWorkflows",
            "tenantId": PLATFORM_TENANT,
            "v": SCHEMA_VERSION,
            "versions": versions,
            "publishedAt": engine.clock.now(),
            "publishedBy": by,
        }
        partition = (PLATFORM_TENANT,)
        try:
            if found is None:
                await patiently(engine, engine.store.create, CATALOG, partition, body)
            else:
                replace, etag = engine.store.replace, found.etag
                await patiently(engine, replace, CATALOG, partition, body, if_match=etag)
        except (Conflict, PreconditionFailed, NotFound, Unclear):
            continue
        return _view(engine, body)
    raise UnavailableError("the code workflows are being published by others; try again")


async def in_use(engine: Engine, recorded: dict[str, list[int]] | None = None) -> list[CodeUse]:
    """Versions that were deployed and are not any more, with the open executions that need them, of
    all tenants. `recorded`: what was deployed; None: as of the last `publish`."""
    if recorded is None:
        found = await _recorded(engine)
        before: dict[str, list[int]] = {} if found is None else found.body["versions"]
    else:
        before = recorded
    used: list[CodeUse] = []
    for name, versions in sorted(before.items()):
        for version in sorted(set(versions) - set(engine.code.versions(name))):
            for tenant, ids in sorted((await _open(engine, name, version)).items()):
                used.append(
                    CodeUse(
                        name=name,
                        version=version,
                        tenant=tenant,
                        count=len(ids),
                        executions=ids[:SHOWN_EXECUTIONS],
                    )
                )
    return used


async def _open(engine: Engine, name: str, version: int) -> dict[str, list[str]]:
    """Tenant -> ids of its executions that need the version and have not ended."""
    found: dict[str, list[str]] = {}
    after: tuple[str | int, str] | None = None
    while True:
        query = Query(
            where=(Where("type", "=", "execution"), Where(use_field(name, version), "=", True)),
            after=after,
            limit=PAGE,
        )
        page = await patiently(engine, engine.store.query, EXECUTIONS, query)
        for doc in page:
            if doc.body["status"] not in TERMINAL_EXECUTION:
                found.setdefault(doc.body["tenantId"], []).append(doc.id)
        if len(page) < PAGE:
            return found
        after = (page[-1].id, page[-1].id)


async def _recorded(engine: Engine) -> Document | None:
    try:
        return await patiently(engine, engine.store.read, CATALOG, (PLATFORM_TENANT,), DOCUMENT)
    except (NotFound, Unclear):
        return None


def _view(engine: Engine, recorded: dict[str, Any] | None) -> CodeWorkflowsView:
    before: dict[str, list[int]] = {} if recorded is None else recorded["versions"]
    items: list[CodeWorkflowView] = []
    for name in sorted(engine.code.names() | before.keys()):
        registered = engine.code.versions(name)
        for version in sorted({*registered, *before.get(name, ())}):
            here = version in registered
            items.append(
                CodeWorkflowView(
                    name=name,
                    version=version,
                    deployed=here,
                    published=version in before.get(name, ()),
                    built_in=name in built_in.NAMES,
                    function=engine.code.function(name, version) if here else None,
                    input_schema=engine.code.input_schema(name, version) if here else None,
                    output_schema=engine.code.output_schema(name, version) if here else None,
                )
            )
    return CodeWorkflowsView(
        items=items,
        published_at=None if recorded is None else recorded["publishedAt"],
        published_by="" if recorded is None else recorded["publishedBy"],
    )


def _in_use(used: list[CodeUse], tenant: str) -> ConflictError:
    details = [
        ErrorDetail(
            f"{one.name} v{one.version}",
            f"{one.count} open executions of tenant {one.tenant!r} need it"
            + (": " + ", ".join(one.executions) if one.tenant == tenant else ""),
            "CODE_VERSION_IN_USE",
            "deploy it again until they have ended, or cancel them",
        )
        for one in used
    ]
    return ConflictError(
        f"versions of code workflows are gone that open executions need: {len(used)} of them",
        code="CODE_VERSION_IN_USE",
        details=details,
    )
