"""What clients may do to instances, each one transaction: the use cases behind `rpc`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.local.durable import events as ev
from orchestrator.local.durable.events import Event
from orchestrator.local.durable.protocol import Identity, drive
from orchestrator.local.durable.retelling import Rewound, rewind
from orchestrator.local.durable.store import DurableStore
from orchestrator.local.durable.store_rows import (
    ENDED,
    append,
    create,
    deliver,
    end,
    enqueue,
    history,
    reset,
    unread,
)

_COLUMNS: Final = (
    "id, name, execution, status, suspended, payload, output, custom_status, created, updated,"
    " parent"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One instance as clients see it. Texts are JSON."""

    id: str
    name: str
    execution: str
    status: str
    suspended: int
    payload: str | None
    output: str | None
    custom_status: str | None
    created: int  # epoch ms
    updated: int
    parent: str | None

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.status in ENDED

    @property
    def shown(self) -> str:
        """`runtimeStatus`."""
        return "Suspended" if self.suspended and not self.ended else self.status


def find(store: DurableStore, instance: str) -> Status | None:
    """One instance, or None."""
    found = select(store, "id = ?", [instance])
    return found[0] if found else None


def select(store: DurableStore, where: str, values: Sequence[Any], limit: int = -1) -> list[Status]:
    """Those that fulfil the condition, the oldest first."""
    sql = f"SELECT {_COLUMNS} FROM instances WHERE {where} ORDER BY created, id LIMIT ?"
    rows = store.db.execute(sql, (*values, limit)).fetchall()
    names = _COLUMNS.replace(" ", "").split(",")
    return [Status(**dict(zip(names, row, strict=True))) for row in rows]


def events_of(store: DurableStore, instance: str) -> list[Event]:
    """The history of its present execution."""
    return history(store.db, instance)


def start(
    store: DurableStore, instance: str, name: str, payload: str | None, now: int, execution: str
) -> bool:
    """Start it, or start it anew if it has ended. False: it exists and has not ended."""
    with store.transaction() as db:
        return create(db, instance, name, payload, now, execution)


def raise_event(store: DurableStore, instance: str, name: str, payload: str, now: int) -> bool:
    """Hand it an external event. False: it does not exist or has ended."""
    with store.transaction() as db:
        return deliver(db, instance, ev.raised(now, name, payload))


def terminate(store: DurableStore, instance: str, reason: str, now: int) -> bool:
    """End it now, and the sub-orchestrations that it waits for, and theirs. False: it does not
    exist or has ended. Activities under way run to their end; what they answer is dropped."""
    with store.transaction() as db:
        return _terminate(db, instance, reason, now)


def _terminate(db: sqlite3.Connection, instance: str, reason: str, now: int) -> bool:
    row = db.execute(
        "SELECT status, parent, parent_execution, parent_task, execution FROM instances"
        " WHERE id = ?",
        (instance,),
    ).fetchone()
    if row is None or row[0] in ENDED:
        return False
    append(db, instance, [ev.event(ev.EXECUTION_TERMINATED, now, Input=reason)])
    end(db, instance, "Terminated", json.dumps(reason), now, row[1:4])
    children = db.execute(
        "SELECT id FROM instances WHERE parent = ? AND parent_execution = ?", (instance, row[4])
    ).fetchall()
    for (child,) in children:
        _terminate(db, child, reason, now)
    return True


def suspend(store: DurableStore, instance: str, reason: str, now: int, *, on: bool) -> bool:
    """Let it rest (events are kept, what runs goes on), or go on (`on` false). False: it does not
    exist or has ended."""
    with store.transaction() as db:
        status = db.execute("SELECT status FROM instances WHERE id = ?", (instance,)).fetchone()
        if status is None or status[0] in ENDED:
            return False
        db.execute(
            "UPDATE instances SET suspended = ?, updated = ? WHERE id = ?", (on, now, instance)
        )
        append(db, instance, [ev.event(ev.SUSPENDED if on else ev.RESUMED, now, Reason=reason)])
    return True


def purge(store: DurableStore, instances: Sequence[str]) -> int:
    """Forget those that have ended. How many."""
    count = 0
    with store.transaction() as db:
        for instance in instances:
            gone = db.execute(
                "DELETE FROM instances WHERE id = ? AND status IN"
                " ('Completed', 'Failed', 'Terminated')",
                (instance,),
            )
            if gone.rowcount:
                count += 1
                reset(db, instance, keep_events=False)
                db.execute("DELETE FROM activities WHERE instance = ?", (instance,))
    return count


Functions = Callable[[str], Callable[[str], str] | None]
"""The orchestrator function of a name."""


def take_up(
    store: DurableStore, instance: str, reason: str, now: int, functions: Functions
) -> bool:
    """Rewind a failed instance, and the failed sub-orchestrations that it waited for: what failed
    is done again, what succeeded is not. False: it does not exist or has not failed."""
    with store.transaction() as db:
        return _take_up(db, instance, reason, now, functions, None)


def _take_up(
    db: sqlite3.Connection,
    instance: str,
    reason: str,
    now: int,
    functions: Functions,
    parent: tuple[str, int] | None,
) -> bool:
    row = db.execute(
        "SELECT name, execution, payload, parent FROM instances WHERE id = ? AND status = 'Failed'",
        (instance,),
    ).fetchone()
    if row is None:
        return False
    name, execution, payload, of = row
    identity = Identity(
        name=name, instance=instance, execution=execution, payload=payload, parent=of
    )
    function = functions(name)
    told, held = history(db, instance), unread(db, instance)
    again = (
        Rewound(history=[], open=[], news=[ev.started(now, name, payload)], held=held, children={})
        if function is None  # it will be told that there is no such function
        else drive(rewind(identity, told, held, now, reason), function)
    )
    reset(db, instance, keep_events=False)
    # What was under way is done again: its numbers may mean something else now.
    db.execute("DELETE FROM activities WHERE instance = ?", (instance,))
    db.execute(
        "UPDATE instances SET status = 'Running', output = NULL, updated = ?,"
        " parent_task = coalesce(?, parent_task) WHERE id = ?",
        (now, None if parent is None else parent[1], instance),
    )
    append(db, instance, again.history)
    fresh = [
        event
        for event in again.open
        if event["EventType"] != ev.CHILD_CREATED
        or not _goes_on(db, instance, event, reason, now, functions)
    ]
    enqueue(db, identity, fresh, now, timers=True)
    for event in (*again.held, *again.news):
        deliver(db, instance, event)
    return True


def _goes_on(
    db: sqlite3.Connection, instance: str, created: Event, reason: str, now: int, f: Functions
) -> bool:
    """Whether a sub-orchestration needs no start: it is running, or failed and is taken up."""
    child, number = created["InstanceId"], created["EventId"]
    if _take_up(db, child, reason, now, f, (instance, number)):
        return True
    running = db.execute(
        "UPDATE instances SET parent_task = ? WHERE id = ? AND parent = ? AND status"
        " NOT IN ('Completed', 'Failed', 'Terminated')",
        (number, child, instance),
    )
    return bool(running.rowcount)
