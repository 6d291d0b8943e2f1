"""What users do with schedules: create, edit, pause, resume, run now, delete.

The scheduler's own side is `schedule.py`. Both change the same documents under their ETags; a
user's edit keeps the scheduler's fencing token as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final, cast

from orchestrator.domain import jsonvalues, schedule_spec
from orchestrator.domain.cel_scan import ExpressionError
from orchestrator.domain.codec import iso
from orchestrator.domain.errors import (
    ConflictError,
    ErrorDetail,
    InvalidError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
)
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.schedule import Schedule, render_input
from orchestrator.domain.tenant_limits import Limit
from orchestrator.domain.topology import CATALOG
from orchestrator.engine import (
    admission,
    audit,
    catalog,
    schedule_docs,
    schedule_fire,
    schedule_reads,
    submission,
    submit,
)
from orchestrator.engine.aside import aside
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.engine.schedule_docs import note
from orchestrator.engine.views import StartResult
from orchestrator.engine.views_schedules import ScheduleView
from orchestrator.ports import Conflict, Document, NotFound, PreconditionFailed

ATTEMPTS: Final = 20
TIMING: Final = ("cron", "interval", "at", "timeZone", "anchor", "start", "end")
"""Changing one of these makes other ticks: those before the change are not made up for."""


async def create(
    engine: Engine, tenant: str, raw: Json, *, by: str = ""
) -> tuple[ScheduleView, bool]:
    """Store a new schedule; it, and whether it is new: the same definition again changes nothing.

    Raises `InvalidError` with every problem (also: unknown workflow, input that does not fit it,
    no tick to come), `ConflictError` (the name is taken by another one; the workflow is archived),
    `LimitError`.
    """
    now = engine.clock.now()
    schedule = schedule_spec.parse(raw, created_at=now)
    definition = cast("dict[str, Json]", raw)
    if known := await schedule_docs.read(engine, tenant, schedule.name):
        return _same(engine, known, definition), False
    await _check(engine, tenant, schedule, now)
    await admission.stored(engine, tenant, Limit.SCHEDULES, schedule_docs.TYPE, schedule.name)
    body = schedule_docs.new_body(tenant, definition, schedule, now)
    body["paused"] = definition.get("paused") is True
    schedule_docs.set_due(body, schedule)
    try:
        await patiently(engine, engine.store.create, CATALOG, (tenant,), body)
    except (Conflict, Unclear):
        found = await schedule_reads.found(engine, tenant, schedule.name)
        return _same(engine, found, definition), found.body["createdAt"] == now
    await _audit(engine, body, "create", by, after=body["hash"])
    return schedule_reads.view(engine, body), True


def _same(engine: Engine, found: Document, definition: dict[str, Json]) -> ScheduleView:
    if found.body["hash"] != schedule_docs.digest(definition):
        raise ConflictError(
            f"there is another schedule {found.body['name']!r}; change it with PUT, or choose "
            "another name",
            code="SCHEDULE_EXISTS",
        )
    return schedule_reads.view(engine, found.body)


async def update(
    engine: Engine, tenant: str, name: str, raw: Json, *, revision: int | None = None, by: str = ""
) -> ScheduleView:
    """Replace the definition (`name` may be left out in it; `paused` left out stays as it is).
    What was due before is still decided by the old one; the new one does not look back.

    Raises `NotFoundError`, `InvalidError`, `ConflictError` (archived workflow),
    `PreconditionError` (`revision` is not the stored one)."""
    definition: dict[str, Json] = {"name": name, **raw} if isinstance(raw, dict) else {}
    if not isinstance(raw, dict) or definition["name"] != name:
        raise InvalidError(
            f"the body must be an object whose name is {name!r}, or that has none",
            code="BAD_SCHEDULE",
            details=[ErrorDetail("$.name", f"must be {name!r}", "BAD_NAME")],
        )
    first = await schedule_reads.found(engine, tenant, name)
    schedule = schedule_spec.parse(definition, created_at=first.body["createdAt"])
    await _check(engine, tenant, schedule, engine.clock.now())

    def change(body: dict[str, Any], now: int) -> bool:
        if revision is not None and body["revision"] != revision:
            raise PreconditionError(
                f"the schedule has revision {body['revision']}, not {revision}; look at it again"
            )
        before = cast("dict[str, Json]", jsonvalues.loads(body["definition"]))
        paused = definition.get("paused", body["paused"]) is True
        if body["hash"] == schedule_docs.digest(definition) and paused == body["paused"]:
            return False
        if any(before.get(part) != definition.get(part) for part in TIMING):
            if not body["paused"]:
                schedule_fire.accept(engine, body, schedule_docs.compiled(engine, body), now)
            body["cursor"] = max(body["cursor"], now)
        body["workflow"] = schedule.workflow
        body["definition"] = jsonvalues.dumps(definition).decode()
        body["hash"] = schedule_docs.digest(definition)
        if paused != body["paused"]:
            _set_paused(engine, body, paused, now)
        return True

    return await _change(engine, tenant, name, change, "update", by)


async def pause(engine: Engine, tenant: str, name: str, *, by: str = "") -> ScheduleView:
    """No more ticks until it is resumed. Twice is the same as once. Raises `NotFoundError`."""
    return await _pause(engine, tenant, name, True, by)


async def resume(engine: Engine, tenant: str, name: str, *, by: str = "") -> ScheduleView:
    """Go on. The misfire policy decides about the ticks of the pause, as about those of an outage;
    with `skip` nothing starts at once, however short the pause. Raises `NotFoundError`."""
    return await _pause(engine, tenant, name, False, by)


async def _pause(engine: Engine, tenant: str, name: str, wanted: bool, by: str) -> ScheduleView:
    def change(body: dict[str, Any], now: int) -> bool:
        if body["paused"] == wanted:
            return False
        _set_paused(engine, body, wanted, now)
        return True

    return await _change(engine, tenant, name, change, "pause" if wanted else "resume", by)


def _set_paused(engine: Engine, body: dict[str, Any], paused: bool, now: int) -> None:
    schedule = schedule_docs.compiled(engine, body)
    if not paused and schedule.catch_up == 0:
        waited: list[int] = body["waiting"]
        missed = schedule.count(body["cursor"], now) + len(waited)
        if missed:
            first = waited[0] if waited else next(schedule.after(body["cursor"]))
            note(body, "missed", at=now, tick=first, count=missed, code="PAUSED")
        body["waiting"] = []
        body["cursor"] = max(body["cursor"], now)
    body["paused"] = paused


async def run(
    engine: Engine,
    tenant: str,
    name: str,
    *,
    key: str | None = None,
    by: str = "",
    traceparent: str = "",
) -> StartResult:
    """Start an execution now, beside the ticks; also of a paused schedule. The same `key` again
    gives the first answer. Raises `NotFoundError`, and what `submit.start` raises."""
    found = await schedule_reads.found(engine, tenant, name)
    schedule = schedule_docs.compiled(engine, found.body)
    now = engine.clock.now()
    id = None if key is None else manual_id(tenant, name, key)
    known = await _known(engine, tenant, id)
    if known is not None:
        return known
    try:
        result = await submit.start(
            engine,
            tenant,
            schedule.workflow,
            _rendered(schedule, now),
            version=schedule.version,
            tags=schedule.tags,
            started_by=f"schedule:{name}",
            traceparent=traceparent,
            id=id,
            more={"schedule": name},
        )
    except ConflictError:
        # The same request on another instance was faster, at another millisecond.
        known = await _known(engine, tenant, id)
        if known is None:
            raise
        return known
    if not result.created:
        return result

    def change(body: dict[str, Any], at: int) -> bool:
        note(body, "manual", at=at, execution=result.id, by=by)
        return True

    await _change(engine, tenant, name, change, "run", by, revise=False)
    return result


def manual_id(tenant: str, name: str, key: str) -> str:
    """Id of the execution of a manual run with an idempotency key."""
    return "m" + hashlib.sha256(f"{tenant}\0{name}\0{key}".encode()).hexdigest()[:31]


async def _known(engine: Engine, tenant: str, id: str | None) -> StartResult | None:
    """The answer to a manual run that was asked for before. What was asked is not compared: the
    input may name the time, and the request says nothing."""
    if id is None:
        return None
    return await submission.repeat(engine, tenant, id, None, "")


async def delete(engine: Engine, tenant: str, name: str, *, by: str = "") -> None:
    """Remove it. What it started goes on. Raises `NotFoundError`."""
    found = await schedule_reads.found(engine, tenant, name)
    try:
        await patiently(engine, engine.store.delete, CATALOG, (tenant,), schedule_docs.doc_id(name))
    except (NotFound, Unclear):
        return  # somebody else, or an own try whose answer was lost
    await _audit(engine, found.body, "delete", by, before=found.body["hash"])


# --- together -------------------------------------------------------------------------------------


async def _change(
    engine: Engine,
    tenant: str,
    name: str,
    change: Callable[[dict[str, Any], int], bool],
    action: str,
    by: str,
    *,
    revise: bool = True,
) -> ScheduleView:
    """Load, change, replace by ETag, until it holds. `change` says whether it did anything."""
    for _ in range(ATTEMPTS):
        found = await schedule_reads.found(engine, tenant, name)
        now = engine.clock.now()
        body = dict(found.body)
        if not change(body, now):
            return schedule_reads.view(engine, found.body)
        if revise:
            body |= {"revision": body["revision"] + 1, "updatedAt": now}
        schedule_docs.set_due(body, schedule_docs.compiled(engine, body), recheck=now)
        try:
            await patiently(
                engine, engine.store.replace, CATALOG, (tenant,), body, if_match=found.etag
            )
        except (PreconditionFailed, NotFound, Unclear):
            continue
        await _audit(engine, body, action, by, before=found.body["hash"], after=body["hash"])
        return schedule_reads.view(engine, body)
    raise UnavailableError(f"schedule {name!r} is being changed by many at once; try again")


async def _check(engine: Engine, tenant: str, schedule: Schedule, now: int) -> None:
    """What only the catalog and the clock know."""
    first = next(schedule.after(now), None)
    if first is None:
        raise InvalidError(
            "the schedule never fires: no tick of it lies after now, and between start and end",
            code="NEVER_FIRES",
            details=[ErrorDetail("$", "no tick lies in the future", "NEVER_FIRES")],
        )
    try:
        head = await catalog.head(engine, tenant, schedule.workflow)
    except NotFoundError as error:
        raise _wrong("$.workflow", error) from None
    if head.body["archived"]:
        raise ConflictError(
            f"workflow {schedule.workflow!r} is archived; publish it again to schedule it",
            code="WORKFLOW_ARCHIVED",
        )
    try:
        number = catalog.number_of(head, schedule.version)
        workflow = await catalog.runnable(engine, tenant, head, number)
    except NotFoundError as error:
        raise _wrong("$.version", error) from None
    rendered = await aside(lambda: _rendered(schedule, first), heavy=schedule.input.heavy)
    await submit.check_input(workflow, rendered)


def _wrong(field: str, error: NotFoundError) -> InvalidError:
    detail = ErrorDetail(field, error.message, error.code)
    return InvalidError(error.message, code=error.code, details=[detail])


def _rendered(schedule: Schedule, tick: int) -> Json:
    try:
        return render_input(schedule, iso(tick))
    except ExpressionError as error:
        detail = ErrorDetail(f"$.input{error.path}", error.reason, "BAD_EXPRESSION")
        raise InvalidError(f"the input has no value: {error}", details=[detail]) from None


async def _audit(engine: Engine, body: dict[str, Any], action: str, by: str, **hashes: str) -> None:
    await audit.record(
        engine,
        body["tenantId"],
        action=f"schedule.{action}",
        execution=body["id"],
        by=by,
        resource=body["id"],
        details={"revision": body["revision"], **hashes},
    )
