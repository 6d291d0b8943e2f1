"""Who needs a version of a code workflow that an app does not have any more.

    execution   an open one that runs it, or has a task that will: as its own workflow, as a
                `durable` task, or as the child of a `workflow` task. It says so by a property of
                its document (`orchestration.use_field`, written by `pins`)
    child       an open instance of Durable Functions that another code workflow has started: it has
                no execution, so Durable itself is asked
    schedule    one that names the version and will start it again

Executions that have failed do not count, although they may be retried: their retry waits, or fails,
until the version is there again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.domain import jsonvalues
from orchestrator.domain.errors import ConflictError, ErrorDetail, UnavailableError
from orchestrator.domain.orchestration import execution_in, function_name, use_field
from orchestrator.domain.status import TERMINAL_EXECUTION
from orchestrator.domain.topology import CATALOG, EXECUTIONS
from orchestrator.engine import catalog, instances, schedule_docs
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently
from orchestrator.ports import Document, Query, Where

Version = tuple[str, int]
SHOWN: Final = 20
PAGE: Final = 200
AT_ONCE: Final = 20
_WORDS: Final = {
    "execution": ("open executions", "deploy it again until they have ended, or cancel them"),
    "child": (
        "running children of executions",
        "deploy it again until they have ended, or cancel the executions",
    ),
    "schedule": ("schedules", "deploy it again, or let them start another version"),
}
"""Kind of use -> what it is, and the mend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeUse:
    """Those of one kind and tenant that need a version."""

    name: str
    version: int
    kind: str  # a key of `_WORDS`
    tenant: str  # "": not known, of instances whose execution is not there any more
    ids: Sequence[str]  # executions, or names of schedules


def gone(known: Mapping[str, Sequence[int]], have: Mapping[str, Sequence[int]]) -> list[Version]:
    """Versions that are known and not there."""
    return [
        (name, version)
        for name, versions in sorted(known.items())
        for version in sorted({*versions} - {*have.get(name, ())})
    ]


async def in_use(engine: Engine, versions: Sequence[Version]) -> list[CodeUse]:
    """Every use of these versions, of all tenants. Raises `UnavailableError`: Durable Functions
    cannot be asked."""
    if not versions:
        return []
    used: list[CodeUse] = []
    running = await _instances(engine, versions)
    for name, version in versions:
        executions = await _executions(engine, name, version)
        counted = {id for ids in executions.values() for id in ids}
        others = {execution_in(id) for id in running.get(function_name(name, version), ())}
        found = (
            ("execution", executions),
            ("child", await _tenants(engine, sorted(others - counted))),
            ("schedule", await _schedules(engine, name, version)),
        )
        used += [
            CodeUse(name=name, version=version, kind=kind, tenant=tenant, ids=ids)
            for kind, by_tenant in found
            for tenant, ids in sorted(by_tenant.items())
        ]
    return used


def refusal(used: Sequence[CodeUse], tenant: str) -> ConflictError:
    """CODE_VERSION_IN_USE with every use; what is `tenant`'s by its id."""
    details: list[ErrorDetail] = []
    for one in used:
        what, mend = _WORDS[one.kind]
        whose = f"of tenant {one.tenant!r}" if one.tenant else "that are not there any more"
        shown = ", ".join(one.ids[:SHOWN]) if one.tenant in (tenant, "") else ""
        message = f"{len(one.ids)} {what} {whose} need it" + (f": {shown}" if shown else "")
        place = f"{one.name} v{one.version}"
        details.append(ErrorDetail(place, message, "CODE_VERSION_IN_USE", mend))
    count = len({(one.name, one.version) for one in used})
    return ConflictError(
        f"versions of code workflows are gone that are in use: {count} of them",
        code="CODE_VERSION_IN_USE",
        details=details,
    )


async def _instances(engine: Engine, versions: Sequence[Version]) -> dict[str, list[str]]:
    names = frozenset(function_name(*one) for one in versions)
    try:
        return await instances.ask(engine, lambda hub: hub.open_of(names))
    except instances.Away as away:
        raise UnavailableError(
            f"what runs of the versions that are gone cannot be asked now ({away}); try again"
        ) from away


async def _executions(engine: Engine, name: str, version: int) -> dict[str, list[str]]:
    """Tenant -> ids of its executions that need the version and have not ended."""
    found: dict[str, list[str]] = {}
    where = (Where("type", "=", "execution"), Where(use_field(name, version), "=", True))
    for doc in await _all(engine, EXECUTIONS, where):
        if doc.body["status"] not in TERMINAL_EXECUTION:
            found.setdefault(doc.body["tenantId"], []).append(doc.id)
    return found


async def _tenants(engine: Engine, executions: Sequence[str]) -> dict[str, list[str]]:
    """Tenant -> those of the executions that are its own."""
    found: dict[str, list[str]] = {}
    for at in range(0, len(executions), AT_ONCE):
        some = executions[at : at + AT_ONCE]
        whose = await asyncio.gather(*(_tenant(engine, id) for id in some))
        for id, tenant in zip(some, whose, strict=True):
            found.setdefault(tenant, []).append(id)
    return found


async def _tenant(engine: Engine, execution: str) -> str:
    where = (Where("type", "=", "execution"), Where("executionId", "=", execution))
    query = Query(where=where, limit=1)
    page = await patiently(engine, engine.store.query, EXECUTIONS, query)
    return page[0].body["tenantId"] if page else ""


async def _schedules(engine: Engine, name: str, version: int) -> dict[str, list[str]]:
    """Tenant -> names of its schedules that start the version, unless the name is a definition
    there."""
    found: dict[str, list[str]] = {}
    where = (Where("type", "=", schedule_docs.TYPE), Where("workflow", "=", name))
    for doc in await _all(engine, CATALOG, where, "dueAt"):  # what is paused or over has none
        definition: Any = jsonvalues.loads(doc.body["definition"])
        if definition.get("version") == version:
            found.setdefault(doc.body["tenantId"], []).append(doc.body["name"])
    for tenant in list(found):
        if await catalog.published(engine, tenant, [name]):
            del found[tenant]
    return found


async def _all(
    engine: Engine, container: str, where: tuple[Where, ...], order: str = "id"
) -> list[Document]:
    found: list[Document] = []
    after: tuple[str | int, str] | None = None
    while True:
        query = Query(where=where, order_by=order, after=after, limit=PAGE)
        page = await patiently(engine, engine.store.query, container, query)
        found += page
        if len(page) < PAGE:
            return found
        last = page[-1]
        after = (last.id if order == "id" else last.body[order], last.id)
