"""Event triggers as they are stored.

Container `catalog`, partition (tenantId):

    trigger:{name}    trigger     definition as JSON text, paused or not
    triggers          triggers    how many there are, and a version that rises with every change

Every change is one batch of both, so that a process knows by one small read whether the triggers
that it remembers are still those that are stored (`trigger_book`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain.errors import ConflictError, NotFoundError, UnavailableError
from orchestrator.domain.topology import CATALOG, SCHEMA_VERSION
from orchestrator.domain.triggers import Trigger, compile_trigger
from orchestrator.engine import documents
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.views_events import TriggerView
from orchestrator.ports import (
    Conflict,
    Create,
    Delete,
    Document,
    NotFound,
    Operation,
    PreconditionFailed,
    Query,
    Replace,
    Where,
)

TYPE = "trigger"
HEAD = "triggers"
MAX_TRIGGERS = 1_000  # of one tenant; every event is held against all of them
CHANGE_ATTEMPTS = 20
After = tuple[str | int, str] | None
Change = Callable[[Document | None], dict[str, Any] | None]
"""What is stored -> what shall be stored: the same body changes nothing, None deletes."""


async def query(engine: Engine, tenant: str, *, limit: int, after: After) -> list[Document]:
    """A page of the tenant's triggers by name, as stored."""
    wanted = Query(partition=(tenant,), where=(Where("type", "=", TYPE),), limit=limit, after=after)
    found = await patiently(engine, engine.store.query, CATALOG, wanted)
    return [doc for doc in found if doc.body["tenantId"] == tenant]


async def read(engine: Engine, tenant: str, name: str) -> Document:
    """The stored trigger. Raises `NotFoundError`."""
    id = stored_id(name)
    found = await patiently(engine, engine.store.read_many, CATALOG, (tenant,), [id])
    if id not in found:
        raise unknown(name)
    return documents.checked(found)[id]


def compiled(doc: dict[str, Any]) -> Trigger:
    """The trigger of a stored document. Raises `InvalidError` if newer code wrote it."""
    raw: Any = jsonvalues.loads(doc["definition"])
    return compile_trigger({**raw, "paused": doc["paused"]})


def view(doc: dict[str, Any]) -> TriggerView:
    """The view of a stored document."""
    raw: Any = jsonvalues.loads(doc["definition"])
    return TriggerView(
        **raw,
        paused=doc["paused"],
        created_at=doc["createdAt"],
        updated_at=doc["updatedAt"],
        updated_by=doc["updatedBy"],
    )


async def change_one(engine: Engine, tenant: str, name: str, change: Change) -> Document | None:
    """The trigger after `change`, None once deleted. `change` is asked again after each conflict,
    and may raise."""
    id = stored_id(name)
    for _ in range(CHANGE_ATTEMPTS):
        docs = await patiently(engine, engine.store.read_many, CATALOG, (tenant,), [HEAD, id])
        found, head = docs.get(id), docs.get(HEAD)
        body = change(found)
        if found is not None and body is found.body:
            return found
        if body is None and found is None:
            return None
        count = head.body["count"] if head else 0
        count += (body is not None) - (found is not None)
        if found is None and count > MAX_TRIGGERS:
            raise ConflictError(
                f"there are {MAX_TRIGGERS} triggers, more are not allowed; delete some, or let one "
                "trigger match several types",
                code="TOO_MANY_TRIGGERS",
            )
        revision = (head.body["version"] if head else 0) + 1
        next_head = {
            "id": HEAD,
            "type": HEAD,
            "tenantId": tenant,
            "v": SCHEMA_VERSION,
            "version": revision,
            "count": count,
            # The newest revision that a trigger has, unless that one was deleted since.
            "written": revision if body is not None else 0,
        }
        if body is not None:
            body = {**body, "revision": revision}
            step: Operation = Replace(body, found.etag) if found else Create(body)
        else:
            assert found is not None
            step = Delete(id, found.etag)
        first = Replace(next_head, head.etag) if head else Create(next_head)
        try:
            etags = await patiently(engine, engine.store.batch, CATALOG, (tenant,), [first, step])
        except (Conflict, PreconditionFailed, NotFound, Unclear):
            continue  # somebody else, or our own write with its answer lost: the next round sees
        return None if body is None else Document(id, body, etags[1])
    raise UnavailableError("the triggers are being changed by many at once; try again")


def public_etag(stored: str) -> str:
    """A store's ETag as callers see it: stores differ in the characters that they use."""
    return hashlib.sha256(stored.encode()).hexdigest()[:24]


def stored_id(name: str) -> str:
    """Id of a trigger's document."""
    return f"trigger:{name}"


def unknown(name: str) -> NotFoundError:
    """There is no such trigger."""
    return NotFoundError(f"no trigger {name!r}; see GET /v1/triggers", code="TRIGGER_NOT_FOUND")
