"""Schedules as the API shows them: one, a page of them, the history of one."""

from __future__ import annotations

from typing import Any, TypeAlias

from orchestrator.domain import jsonvalues, schedule_cron
from orchestrator.domain.errors import NotFoundError
from orchestrator.domain.schedule import Schedule, due_at, next_ticks
from orchestrator.domain.topology import CATALOG
from orchestrator.engine import schedule_docs
from orchestrator.engine.core import Engine
from orchestrator.engine.views_schedules import FireTime, FireView, ScheduleSummary, ScheduleView
from orchestrator.ports import Document, Query, Where

After: TypeAlias = tuple[Any, ...] | None


async def get(engine: Engine, tenant: str, name: str) -> ScheduleView:
    """One schedule with its next fire times. Raises `NotFoundError`."""
    return view(engine, (await found(engine, tenant, name)).body)


async def list_all(
    engine: Engine, tenant: str, *, limit: int, after: After
) -> tuple[list[ScheduleSummary], After]:
    """A page of the tenant's schedules by name."""
    page = await engine.store.query(
        CATALOG,
        Query(
            partition=(tenant,),
            where=(Where("type", "=", schedule_docs.TYPE),),
            limit=limit,
            after=None if after is None else (after[0], after[1]),
        ),
    )
    items = [ScheduleSummary(**_summary(engine, doc.body)) for doc in page]
    return items, (page[-1].id, page[-1].id) if len(page) == limit else None


async def history(
    engine: Engine, tenant: str, name: str, *, limit: int, after: After
) -> tuple[list[FireView], After]:
    """A page of what happened to the last ticks, newest first. Raises `NotFoundError`."""
    entries = (await found(engine, tenant, name)).body["history"]
    older = [entry for entry in reversed(entries) if after is None or entry["n"] < after[0]]
    page = [FireView(**entry) for entry in older[:limit]]
    return page, (page[-1].n,) if len(older) > limit else None


async def found(engine: Engine, tenant: str, name: str) -> Document:
    """The stored schedule. Raises `NotFoundError`."""
    stored = await schedule_docs.read(engine, tenant, name)
    if stored is None:
        raise unknown(name)
    return stored


def unknown(name: str) -> NotFoundError:
    """There is no such schedule."""
    return NotFoundError(f"no schedule {name!r}; see GET /v1/schedules", code="SCHEDULE_NOT_FOUND")


def _summary(engine: Engine, body: dict[str, Any]) -> dict[str, Any]:
    schedule = schedule_docs.compiled(engine, body)
    after = max(body["cursor"], engine.clock.now())
    tick = next(schedule.after(after), None)
    status = "PAUSED" if body["paused"] else "ACTIVE" if tick or body["waiting"] else "ENDED"
    last = body["history"][-1] if body["history"] else None
    return {
        "name": body["name"],
        "workflow": body["workflow"],
        "status": status,
        "revision": body["revision"],
        "created_at": body["createdAt"],
        "updated_at": body["updatedAt"],
        "next_at": None if body["paused"] else tick,
        "waiting": len(body["waiting"]),
        "last": FireView(**last) if last else None,
    }


def fire_times(schedule: Schedule, tenant: str, after: int) -> list[FireTime]:
    """The next fire times later than `after`."""
    return [
        FireTime(
            at=tick,
            local=schedule_cron.from_ms(tick, schedule.zone).isoformat(),
            due_at=due_at(schedule, tenant, tick),
        )
        for tick in next_ticks(schedule, after)
    ]


def view(engine: Engine, body: dict[str, Any]) -> ScheduleView:
    """A stored schedule as it is shown."""
    schedule = schedule_docs.compiled(engine, body)
    own = f"/v1/schedules/{body['name']}"
    return ScheduleView(
        **_summary(engine, body),
        definition=jsonvalues.loads(body["definition"]),
        next=fire_times(schedule, body["tenantId"], max(body["cursor"], engine.clock.now())),
        counts=body["counts"],
        active=body["active"],
        links={"self": own, "history": f"{own}/history"},
    )
