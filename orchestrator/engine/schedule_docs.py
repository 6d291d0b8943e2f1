"""How a schedule is stored, and the one way in which it is changed.

Container `catalog`, partition (tenantId):

    schedule:{name}   schedule   the definition as JSON text, `revision` (grows with a user's edit),
                                 `cursor` (every tick up to it is decided), `dueAt`, `waiting`
                                 (ticks to be started, oldest first), `active` (executions that may
                                 still run), `counts`, `history` (the last 50 fires), `fence`

`dueAt` is the one property that the scheduler asks for, across tenants: when something is to be
done next; absent if paused or at its end. `fence` is the highest token of a leader that wrote: a
leader with a lower one is refused. Users' edits keep it; they are guarded by the ETag alone.
"""

from __future__ import annotations

from typing import Any, Final

from orchestrator.domain import jsonvalues, schedule_spec
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.schedule import Schedule, due_at
from orchestrator.domain.topology import CATALOG, SCHEMA_VERSION
from orchestrator.engine import documents
from orchestrator.engine.core import Engine
from orchestrator.engine.lru import Lru
from orchestrator.engine.resilience import Unclear, patiently
from orchestrator.ports import Document, NotFound

TYPE: Final = "schedule"
MAX_HISTORY: Final = 50
MAX_ACTIVE: Final = 20
MAX_MESSAGE_CHARS: Final = 500
COMPILED: Final = 2_000
BYTES: Final = 3_000
BYTES_PER_CHAR: Final = 10
"""What a compiled schedule takes in memory, generously."""


class Deposed(Exception):
    """A leader with this newer token has written the schedule: this process leads no more."""

    def __init__(self, token: int) -> None:
        super().__init__(f"a leader with token {token} has written this schedule")
        self.token = token


def doc_id(name: str) -> str:
    """Id of a schedule's document."""
    return f"{TYPE}:{name}"


def new_body(tenant: str, raw: dict[str, Json], schedule: Schedule, now: int) -> dict[str, Any]:
    """The document of a new schedule, not paused."""
    return {
        "id": doc_id(schedule.name),
        "type": TYPE,
        "tenantId": tenant,
        "v": SCHEMA_VERSION,
        "name": schedule.name,
        "workflow": schedule.workflow,
        "definition": jsonvalues.dumps(raw).decode(),
        "hash": digest(raw),
        "revision": 1,
        "paused": False,
        "createdAt": now,
        "updatedAt": now,
        "cursor": now,
        "waiting": [],
        "active": [],
        "counts": {},
        "fires": 0,
        "history": [],
        "fence": 0,
    }


def digest(raw: dict[str, Json]) -> str:
    """Of what was written, without `paused`, which is changed by buttons too."""
    return jsonvalues.body_hash({key: value for key, value in raw.items() if key != "paused"})


class _Compiled:
    def __init__(self, engine: Engine) -> None:
        self.known: Lru[Schedule] = Lru(COMPILED, limit=engine.tunables.cache_bytes)


def compiled(engine: Engine, body: dict[str, Any]) -> Schedule:
    """The runnable form of a stored schedule; remembered, because the text says all."""
    key = (body["createdAt"], body["definition"])
    known = engine.part(_Compiled).known
    found = known.get(key)
    if found is None:
        found = schedule_spec.parse(
            jsonvalues.loads(body["definition"]), created_at=body["createdAt"]
        )
        known.put(key, found, BYTES + BYTES_PER_CHAR * len(body["definition"]))
    return found


def note(
    body: dict[str, Any],
    outcome: str,
    *,
    at: int,
    tick: int | None = None,
    count: int = 1,
    **more: Any,
) -> None:
    """Add an entry to the history and the counts; empty values of `more` are left out."""
    body["fires"] += 1
    entry: dict[str, Any] = {"n": body["fires"], "at": at, "outcome": outcome}
    if tick is not None:
        entry["tick"] = tick
    if count != 1:
        entry["count"] = count
    entry |= {name: value for name, value in more.items() if value not in (None, "")}
    body["history"] = [*body["history"], entry][-MAX_HISTORY:]
    body["counts"] = {**body["counts"], outcome: body["counts"].get(outcome, 0) + count}


def set_due(body: dict[str, Any], schedule: Schedule, *, recheck: int | None = None) -> None:
    """Compute `dueAt` from cursor, pause and what waits. `recheck`: when to look at that again."""
    body.pop("dueAt", None)
    if body["paused"]:
        return
    tick = next(schedule.after(body["cursor"]), None)
    times = [] if tick is None else [due_at(schedule, body["tenantId"], tick)]
    if body["waiting"]:
        times.append(recheck if recheck is not None else body["waiting"][0])
    if times:
        body["dueAt"] = min(times)


async def read(engine: Engine, tenant: str, name: str) -> Document | None:
    """The stored schedule, or None. Raises `NewerSchema`."""
    try:
        found = await patiently(engine, engine.store.read, CATALOG, (tenant,), doc_id(name))
    except (NotFound, Unclear):  # unclear are writes only
        return None
    documents.check_version(found.body)
    return found


async def write_fenced(
    engine: Engine, found: Document, body: dict[str, Any], token: int
) -> Document:
    """Replace what `found` shows, as the leader with `token`. Raises `Deposed`,
    `PreconditionFailed` (changed meanwhile), `NotFound`, `Unclear`."""
    if found.body["fence"] > token:
        raise Deposed(found.body["fence"])
    body = {**body, "fence": token}
    etag = await patiently(
        engine,
        engine.store.replace,
        CATALOG,
        (body["tenantId"],),
        body,
        if_match=found.etag,
    )
    return Document(found.id, body, etag)
