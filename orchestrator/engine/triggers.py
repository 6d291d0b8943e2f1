"""Event triggers as they are stored and changed.

Container `catalog`, partition (tenantId):

    trigger:{name}    trigger     definition as JSON text, paused or not
    triggers          triggers    how many there are, and a version that rises with every change

Every change is one batch of both, so that a process knows by one small read whether the triggers
that it remembers are still those that are stored (`trigger_book`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain.errors import (
    ConflictError,
    ErrorDetail,
    InvalidError,
    NotFoundError,
    PreconditionError,
    TooLargeError,
    UnavailableError,
)
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.topology import CATALOG, SCHEMA_VERSION
from orchestrator.domain.triggers import Trigger, compile_trigger, input_faults
from orchestrator.engine import audit, catalog
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
MAX_TRIGGER_BYTES = 64 * 1024
CHANGE_ATTEMPTS = 20
After = tuple[str | int, str] | None
Change = Callable[[Document | None], dict[str, Any] | None]
"""What is stored -> what shall be stored: the same body changes nothing, None deletes."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A trigger, its ETag, and whether this call created it."""

    view: TriggerView
    etag: str
    created: bool = False


async def create(engine: Engine, tenant: str, raw: Json, *, by: str = "") -> Stored:
    """Store a new trigger; the same content again changes nothing.

    Raises `InvalidError` with every finding, `ConflictError` (the name has other content; too many
    triggers), `TooLargeError`, `UnavailableError`."""
    trigger, text = await _checked(engine, tenant, raw)
    digest = jsonvalues.body_hash(jsonvalues.loads(text))
    fresh = _fresh(engine, tenant, trigger, text, digest, by)

    def change(found: Document | None) -> dict[str, Any]:
        if found is None:
            return fresh
        if found.body["hash"] != digest:
            raise ConflictError(
                f"there is a trigger {trigger.name!r} with other content; change it with PUT",
                code="TRIGGER_EXISTS",
            )
        return found.body

    done = await _change(engine, tenant, trigger.name, change)
    return await _audited(engine, tenant, done, fresh, "create", by)


async def put(
    engine: Engine, tenant: str, name: str, raw: Json, *, if_match: str | None = None, by: str = ""
) -> Stored:
    """Store a trigger, whatever there was. `paused` stays as it is unless `raw` says it.

    Raises as `create` does, and `PreconditionError` if `if_match` is not its ETag."""
    if isinstance(raw, dict):
        raw = {"name": name, **raw}
    trigger, text = await _checked(engine, tenant, raw)
    if trigger.name != name:
        path, message = "$.name", f"must be {name!r}, as in the address, or left out"
        raise InvalidError(f"{path}: {message}", details=[ErrorDetail(path, message, "BAD_VALUE")])
    said = isinstance(raw, dict) and "paused" in raw
    digest = jsonvalues.body_hash(jsonvalues.loads(text))
    fresh = _fresh(engine, tenant, trigger, text, digest, by)

    def change(found: Document | None) -> dict[str, Any]:
        _match(found, if_match, fresh["change"])
        if found is None:
            return fresh
        paused = trigger.paused if said else found.body["paused"]
        if found.body["hash"] == digest and found.body["paused"] == paused:
            return found.body
        kept = {name: found.body[name] for name in ("createdAt", "origin")}
        return {**fresh, "paused": paused, **kept}

    done = await _change(engine, tenant, name, change)
    return await _audited(engine, tenant, done, fresh, "put", by)


async def pause(
    engine: Engine,
    tenant: str,
    name: str,
    paused: bool,
    *,
    if_match: str | None = None,
    by: str = "",
) -> Stored:
    """Let it start nothing any more (events that come meanwhile pass it by), or again. Idempotent.
    Raises `NotFoundError`, `PreconditionError`, `UnavailableError`."""
    changed = {
        "paused": paused,
        "updatedAt": engine.clock.now(),
        "updatedBy": by,
        "change": engine.ids.new(),
    }

    def change(found: Document | None) -> dict[str, Any]:
        _match(found, if_match, changed["change"])
        if found is None:
            raise _unknown(name)
        return found.body if found.body["paused"] is paused else {**found.body, **changed}

    done = await _change(engine, tenant, name, change)
    return await _audited(engine, tenant, done, changed, "pause" if paused else "resume", by)


async def delete(
    engine: Engine, tenant: str, name: str, *, if_match: str | None = None, by: str = ""
) -> None:
    """Remove it. What it has started goes on. Raises `NotFoundError`, `PreconditionError`,
    `UnavailableError`."""
    tries = 0

    def change(found: Document | None) -> None:
        nonlocal tries
        tries += 1
        if found is None and tries == 1:
            raise _unknown(name)
        if found is not None:
            _match(found, if_match, None)

    await _change(engine, tenant, name, change)
    await audit.record(engine, tenant, action="trigger.delete", execution="", task=name, by=by)


async def show(engine: Engine, tenant: str, name: str) -> Stored:
    """One trigger. Raises `NotFoundError`."""
    doc = await read(engine, tenant, name)
    return Stored(view(doc.body), doc.etag)


async def page(
    engine: Engine, tenant: str, *, limit: int, after: After
) -> tuple[list[TriggerView], After]:
    """A page of the tenant's triggers by name."""
    found = await query(engine, tenant, limit=limit, after=after)
    more = (found[-1].id, found[-1].id) if len(found) == limit else None
    return [view(doc.body) for doc in found], more


async def query(engine: Engine, tenant: str, *, limit: int, after: After) -> list[Document]:
    """Like `page`, as stored."""
    wanted = Query(partition=(tenant,), where=(Where("type", "=", TYPE),), limit=limit, after=after)
    found = await patiently(engine, engine.store.query, CATALOG, wanted)
    return [doc for doc in found if doc.body["tenantId"] == tenant]


async def read(engine: Engine, tenant: str, name: str) -> Document:
    """The stored trigger. Raises `NotFoundError`."""
    id = _id(name)
    found = await patiently(engine, engine.store.read_many, CATALOG, (tenant,), [id])
    if id not in found:
        raise _unknown(name)
    return found[id]


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


async def _checked(engine: Engine, tenant: str, raw: Json) -> tuple[Trigger, bytes]:
    """The trigger, and its definition as it is stored: without `paused`, which operators
    change."""
    trigger = compile_trigger(raw)
    assert isinstance(raw, dict)  # or it would not compile
    text = jsonvalues.dumps({key: value for key, value in raw.items() if key != "paused"})
    if len(text) > MAX_TRIGGER_BYTES:
        raise TooLargeError(
            f"the trigger has {len(text)} bytes, at most {MAX_TRIGGER_BYTES} are allowed"
        )
    found: list[ErrorDetail] = []
    try:
        head = await catalog.head(engine, tenant, trigger.workflow)
    except NotFoundError:
        message = f'there is no workflow "{trigger.workflow}"'
        found = [ErrorDetail("$.workflow", message, "UNKNOWN_WORKFLOW", "publish it first")]
    else:
        if head.body["archived"]:
            message = f'the workflow "{trigger.workflow}" is archived'
            found = [ErrorDetail("$.workflow", message, "WORKFLOW_ARCHIVED", "publish it again")]
        else:
            version = await catalog.compiled(engine, tenant, trigger.workflow, head.body["latest"])
            found = input_faults(raw, trigger, version.input_schema)
    if found:
        raise InvalidError(f"{found[0].field}: {found[0].message}", details=found)
    return trigger, text


def _fresh(
    engine: Engine, tenant: str, trigger: Trigger, text: bytes, digest: str, by: str
) -> dict[str, Any]:
    now, change = engine.clock.now(), engine.ids.new()
    return {
        "id": _id(trigger.name),
        "type": TYPE,
        "tenantId": tenant,
        "v": SCHEMA_VERSION,
        "name": trigger.name,
        "workflow": trigger.workflow,
        "definition": text.decode(),
        "hash": digest,
        "paused": trigger.paused,
        "createdAt": now,
        "updatedAt": now,
        "updatedBy": by,
        "change": change,  # tells our own write, when its answer was lost
        "origin": change,  # the change that created it
    }


async def _change(engine: Engine, tenant: str, name: str, change: Change) -> Document | None:
    """The trigger after `change`, None once deleted. `change` is asked again after each conflict,
    and may raise."""
    id = _id(name)
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


async def _audited(
    engine: Engine,
    tenant: str,
    done: Document | None,
    wanted: dict[str, Any],
    action: str,
    by: str,
) -> Stored:
    assert done is not None
    ours = done.body["change"] == wanted["change"]
    if ours:
        name = done.body["name"]
        await audit.record(
            engine, tenant, action=f"trigger.{action}", execution="", task=name, by=by
        )
    return Stored(view(done.body), done.etag, done.body["origin"] == wanted["change"])


def _match(found: Document | None, if_match: str | None, change: str | None) -> None:
    """Raises `PreconditionError` unless the stored trigger is the one that the caller knows."""
    if if_match is None or (found is not None and found.body["change"] == change):
        return
    if found is None or (if_match != "*" and found.etag != if_match):
        raise PreconditionError("the trigger has changed since; read it again (If-Match)")


def _id(name: str) -> str:
    return f"trigger:{name}"


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(f"no trigger {name!r}; see GET /v1/triggers", code="TRIGGER_NOT_FOUND")
