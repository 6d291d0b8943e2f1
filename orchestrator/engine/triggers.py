"""Create, change, pause and delete event triggers; `trigger_store` says how they are kept.

A trigger's workflow must exist, and must accept what the trigger gives it, as far as that can be
seen without an event. Anything else would be found out only by events that become dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from orchestrator.domain import jsonvalues
from orchestrator.domain.errors import (
    ConflictError,
    ErrorDetail,
    InvalidError,
    NotFoundError,
    PreconditionError,
    TooLargeError,
)
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.topology import SCHEMA_VERSION
from orchestrator.domain.triggers import Trigger, compile_trigger, input_faults
from orchestrator.engine import audit, catalog
from orchestrator.engine.core import Engine
from orchestrator.engine.trigger_store import (
    TYPE,
    After,
    change_one,
    public_etag,
    query,
    read,
    stored_id,
    unknown,
    view,
)
from orchestrator.engine.views_events import TriggerView
from orchestrator.ports import Document

MAX_TRIGGER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Stored:
    """A trigger, its ETag, and whether this call created it."""

    view: TriggerView
    etag: str  # see `public_etag`
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

    done = await change_one(engine, tenant, trigger.name, change)
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

    was: dict[str, str] = {}

    def change(found: Document | None) -> dict[str, Any]:
        _match(found, if_match, fresh["change"])
        if found is None:
            return fresh
        if found.body["change"] != fresh["change"]:  # else our own write, its answer lost
            was["before"] = found.body["hash"]
        paused = trigger.paused if said else found.body["paused"]
        if found.body["hash"] == digest and found.body["paused"] == paused:
            return found.body
        kept = {name: found.body[name] for name in ("createdAt", "origin")}
        return {**fresh, "paused": paused, **kept}

    done = await change_one(engine, tenant, name, change)
    return await _audited(engine, tenant, done, fresh, "put", by, was)


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
    changed: dict[str, Any] = {
        "paused": paused,
        "updatedAt": engine.clock.now(),
        "updatedBy": by,
        "change": engine.ids.new(),
    }

    def change(found: Document | None) -> dict[str, Any]:
        _match(found, if_match, changed["change"])
        if found is None:
            raise unknown(name)
        return found.body if found.body["paused"] is paused else {**found.body, **changed}

    done = await change_one(engine, tenant, name, change)
    return await _audited(engine, tenant, done, changed, "pause" if paused else "resume", by)


async def delete(
    engine: Engine, tenant: str, name: str, *, if_match: str | None = None, by: str = ""
) -> None:
    """Remove it. What it has started goes on. Raises `NotFoundError`, `PreconditionError`,
    `UnavailableError`."""
    tries = 0
    was: dict[str, str] = {}

    def change(found: Document | None) -> None:
        nonlocal tries
        tries += 1
        if found is None and tries == 1:
            raise unknown(name)
        if found is not None:
            _match(found, if_match, None)
            was["before"] = found.body["hash"]

    await change_one(engine, tenant, name, change)
    await audit.record(
        engine,
        tenant,
        action="trigger.delete",
        execution="",
        task=name,
        by=by,
        resource=f"trigger:{name}",
        details=was,
    )


async def show(engine: Engine, tenant: str, name: str) -> Stored:
    """One trigger. Raises `NotFoundError`."""
    doc = await read(engine, tenant, name)
    return Stored(view(doc.body), public_etag(doc.etag))


async def page(
    engine: Engine, tenant: str, *, limit: int, after: After
) -> tuple[list[TriggerView], After]:
    """A page of the tenant's triggers by name."""
    found = await query(engine, tenant, limit=limit, after=after)
    more = (found[-1].id, found[-1].id) if len(found) == limit else None
    return [view(doc.body) for doc in found], more


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
            version = await catalog.runnable(engine, tenant, head)
            found = input_faults(raw, trigger, version.input_schema)
    if found:
        raise InvalidError(f"{found[0].field}: {found[0].message}", details=found)
    return trigger, text


def _fresh(
    engine: Engine, tenant: str, trigger: Trigger, text: bytes, digest: str, by: str
) -> dict[str, Any]:
    now, change = engine.clock.now(), engine.ids.new()
    return {
        "id": stored_id(trigger.name),
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


async def _audited(
    engine: Engine,
    tenant: str,
    done: Document | None,
    wanted: dict[str, Any],
    action: str,
    by: str,
    was: Mapping[str, str] = MappingProxyType({}),
) -> Stored:
    """`was`: the hash before, if it changes."""
    assert done is not None
    ours = done.body["change"] == wanted["change"]
    if ours:
        name = done.body["name"]
        await audit.record(
            engine,
            tenant,
            action=f"trigger.{action}",
            execution="",
            task=name,
            by=by,
            resource=f"trigger:{name}",
            details={**was, "after": done.body["hash"]},
        )
    created = done.body["origin"] == wanted["change"]
    return Stored(view(done.body), public_etag(done.etag), created)


def _match(found: Document | None, if_match: str | None, change: str | None) -> None:
    """Raises `PreconditionError` unless the stored trigger is the one that the caller knows."""
    if if_match is None or (found is not None and found.body["change"] == change):
        return
    if found is None or (if_match != "*" and public_etag(found.etag) != if_match):
        raise PreconditionError("the trigger has changed since; read it again (If-Match)")
