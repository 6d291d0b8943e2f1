"""Record which code workflows an app has, unless a version is gone that something needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.domain import built_in
from orchestrator.domain.errors import UnavailableError
from orchestrator.domain.topology import CATALOG, SCHEMA_VERSION
from orchestrator.engine import code_catalog, code_uses
from orchestrator.engine.core import Engine
from orchestrator.engine.documents import PLATFORM_TENANT
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views_code import CodeWorkflowsView
from orchestrator.ports import Conflict, NotFound, PreconditionFailed

ATTEMPTS = 5


async def publish(
    engine: Engine,
    *,
    tenant: str,
    by: str,
    dry_run: bool = False,
    versions: Mapping[str, Sequence[int]] | None = None,
) -> CodeWorkflowsView:
    """Record what is registered now as deployed. Raises `ConflictError` with every recorded version
    that is gone although something needs it (`code_uses`), what is `tenant`'s by name; nothing is
    recorded then. Raises `UnavailableError` where that cannot be asked.

    `dry_run`: only look. `versions`: of an app that is to take this one's place (name -> numbers),
    held against what is registered and recorded here."""
    for _ in range(ATTEMPTS):
        found = await code_catalog.recorded(engine)
        before: dict[str, list[int]] = {} if found is None else found.body["versions"]
        here = {name: list(engine.code.versions(name)) for name in sorted(engine.code.names())}
        have, known = (here, before) if versions is None else (versions, _both(before, here))
        if used := await code_uses.in_use(engine, code_uses.gone(known, have)):
            raise code_uses.refusal(used, tenant)
        if dry_run or (found is not None and here == before):
            return code_catalog.view(engine, None if found is None else found.body)
        body: dict[str, Any] = {
            "id": code_catalog.DOCUMENT,
            "type": "codeWorkflows",
            "tenantId": PLATFORM_TENANT,
            "v": SCHEMA_VERSION,
            "versions": here,
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
        return code_catalog.view(engine, body)
    raise UnavailableError("the code workflows are being published by others; try again")


def _both(
    one: Mapping[str, Sequence[int]], other: Mapping[str, Sequence[int]]
) -> dict[str, list[int]]:
    """But Weft's own, which are in every app."""
    names = sorted((one.keys() | other.keys()) - built_in.NAMES)
    return {name: sorted({*one.get(name, ()), *other.get(name, ())}) for name in names}
