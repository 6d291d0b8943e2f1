"""Code workflows in the catalog: which there are, and which of their versions may be removed.

They are deployed with the app, so every tenant has them, unless it has published a definition of
the same name. A version always compiles to the same thing, one task that runs the orchestration, so
no definition is stored. Only what was deployed is, in container `catalog`, partition (`_platform`):

    code-workflows      codeWorkflows     versions (name -> numbers) as of the last `code_publish`

An execution of one says so in its header (`kind`). Who needs a version: `code_uses`.
"""

from __future__ import annotations

from typing import Any, Final

from orchestrator.domain import built_in, jsonvalues
from orchestrator.domain.compile import code_definition, code_workflow
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.topology import CATALOG
from orchestrator.domain.workflow import Workflow
from orchestrator.engine.core import Engine
from orchestrator.engine.documents import PLATFORM_TENANT
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views_code import CodeWorkflowsView, CodeWorkflowView
from orchestrator.ports import Document, NotFound

KIND: Final = "code"
DOCUMENT: Final = "code-workflows"
DESCRIPTION: Final = "A code workflow of the app"
REMEMBERED_MS = 10 * 60_000


def head(engine: Engine, tenant: str, name: str) -> Document | None:
    """What a head document of `name` would say; None if it is not registered."""
    versions = engine.code.versions(name)
    if not versions:
        return None
    body: dict[str, Any] = {
        "name": name,
        "description": engine.code.description(name, versions[-1]) or DESCRIPTION,
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
    found = await recorded(engine)
    return view(engine, None if found is None else found.body)


async def recorded(engine: Engine) -> Document | None:
    """What was deployed as of the last `code_publish.publish`; None: it was never called."""
    try:
        return await patiently(engine, engine.store.read, CATALOG, (PLATFORM_TENANT,), DOCUMENT)
    except (NotFound, Unclear):
        return None


def view(engine: Engine, record: dict[str, Any] | None) -> CodeWorkflowsView:
    """What is registered in this process and what was recorded (body of `recorded`)."""
    before: dict[str, list[int]] = {} if record is None else record["versions"]
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
        published_at=None if record is None else record["publishedAt"],
        published_by="" if record is None else record["publishedBy"],
    )
