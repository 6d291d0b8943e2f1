"""What every transaction on `durable.db` is made of: inboxes, histories, instances."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from orchestrator.local.durable import events as ev
from orchestrator.local.durable.events import Event
from orchestrator.local.durable.protocol import Identity

ENDED: Final = ("Completed", "Failed", "Terminated")
ALIVE: Final = "status NOT IN ('Completed', 'Failed', 'Terminated')"


def deliver(
    db: sqlite3.Connection, instance: str, event: Event, execution: str | None = None
) -> bool:
    """Put an event into an inbox. False: there is no such instance that goes on, or `execution` is
    not its present one."""
    woken = db.execute(
        f"UPDATE instances SET wake = 1 WHERE id = ? AND {ALIVE}"
        " AND execution = coalesce(?, execution)",
        (instance, execution),
    )
    if woken.rowcount:
        db.execute(
            "INSERT INTO inbox (instance, kind, event) VALUES (?, ?, ?)",
            (instance, event["EventType"], json.dumps(event)),
        )
    return bool(woken.rowcount)


def append(db: sqlite3.Connection, instance: str, events: Sequence[Event]) -> None:
    """Add to the history of the present execution."""
    ((last,),) = db.execute(
        "SELECT coalesce(max(seq), -1) FROM history WHERE instance = ?", (instance,)
    ).fetchall()
    db.executemany(
        "INSERT INTO history VALUES (?, ?, ?)",
        [(instance, last + n, json.dumps(event)) for n, event in enumerate(events, 1)],
    )


def enqueue(
    db: sqlite3.Connection, identity: Identity, work: Sequence[Event], now: int, *, timers: bool
) -> None:
    """Put what was scheduled where it is taken from. What an execution leaves behind runs on, as on
    Azure, but its `timers` would wake nobody."""
    for event in work:
        number, kind = event["EventId"], event["EventType"]
        if kind == ev.TASK_SCHEDULED:
            db.execute(
                "INSERT INTO activities (instance, execution, task, name, payload)"
                " VALUES (?, ?, ?, ?, ?)",
                (identity.instance, identity.execution, number, event["Name"], event["Input"]),
            )
        elif kind == ev.CHILD_CREATED:
            # The child's input is JSON text *of* JSON text, as if a client had sent it.
            payload = json.dumps(event["Input"])
            parent = (identity.instance, identity.execution, number)
            # No two executions share an id of ours, so this is as fresh as the parent's.
            execution = f"{identity.execution}.{number}"
            if not create(
                db, event["InstanceId"], event["Name"], payload, now, execution, parent=parent
            ):
                reason = f"an instance with the id '{event['InstanceId']}' has not ended"
                failure = ev.failed(ev.CHILD_FAILED, now, number, reason)
                deliver(db, identity.instance, failure, identity.execution)
        elif timers:
            db.execute(
                "INSERT INTO timers VALUES (?, ?, ?, ?)",
                (identity.instance, identity.execution, number, ev.milliseconds(event["FireAt"])),
            )


def create(
    db: sqlite3.Connection,
    instance: str,
    name: str,
    payload: str | None,
    now: int,
    execution: str,
    *,
    parent: tuple[str, str, int] | None = None,
) -> bool:
    """A new instance, or one that has ended anew. False: it exists and has not ended."""
    found = db.execute("SELECT status FROM instances WHERE id = ?", (instance,)).fetchone()
    if found is not None and found[0] not in ENDED:
        return False
    reset(db, instance, keep_events=False)
    db.execute(
        "INSERT OR REPLACE INTO instances (id, name, execution, status, payload, parent,"
        " parent_execution, parent_task, created, updated)"
        " VALUES (?, ?, ?, 'Pending', ?, ?, ?, ?, ?, ?)",
        (instance, name, execution, payload, *(parent or (None, None, None)), now, now),
    )
    return deliver(db, instance, ev.started(now, name, payload))


def reset(db: sqlite3.Connection, instance: str, *, keep_events: bool) -> None:
    """Forget an execution: history, timers and inbox (`keep_events`: but external events)."""
    db.execute("DELETE FROM history WHERE instance = ?", (instance,))
    db.execute("DELETE FROM timers WHERE instance = ?", (instance,))
    db.execute(
        "DELETE FROM inbox WHERE instance = ? AND NOT (? AND kind = ?)",
        (instance, keep_events, ev.EVENT_RAISED),
    )
    db.execute("UPDATE inbox SET held = 0 WHERE instance = ?", (instance,))


def end(
    db: sqlite3.Connection,
    instance: str,
    status: str,
    value: str,
    now: int,
    parent: tuple[str | None, str | None, int | None],
) -> None:
    """The execution is over; `value` is its output or why it failed, JSON text. Tells the parent,
    if it still waits."""
    fields = {"OrchestrationStatus": status, "Result": value}
    append(db, instance, [ev.event(ev.EXECUTION_COMPLETED, now, **fields)])
    db.execute("DELETE FROM timers WHERE instance = ?", (instance,))
    # A failed one may be taken up again, and whoever raised an event will not raise it twice.
    kept = status == "Failed"
    db.execute(
        "DELETE FROM inbox WHERE instance = ? AND NOT (? AND kind = ?)",
        (instance, kept, ev.EVENT_RAISED),
    )
    db.execute("UPDATE inbox SET held = 1 WHERE instance = ?", (instance,))
    db.execute(
        "UPDATE instances SET status = ?, output = ?, updated = ?, wake = 0, owner = NULL,"
        " lease_until = 0, suspended = 0 WHERE id = ?",
        (status, value, now, instance),
    )
    who, execution, task = parent
    if who is None or task is None:
        return
    if status == "Completed":
        told = ev.completed(ev.CHILD_COMPLETED, now, task, value)
    else:
        told = ev.failed(ev.CHILD_FAILED, now, task, str(json.loads(value)))
    deliver(db, who, told, execution)


def history(db: sqlite3.Connection, instance: str) -> list[Event]:
    """The events of the present execution."""
    rows = db.execute("SELECT event FROM history WHERE instance = ? ORDER BY seq", (instance,))
    return [json.loads(text) for (text,) in rows.fetchall()]


def unread(db: sqlite3.Connection, instance: str) -> list[Event]:
    """External events that nobody has waited for, in their order."""
    sql = "SELECT event FROM inbox WHERE instance = ? AND kind = ? ORDER BY seq"
    return [json.loads(text) for (text,) in db.execute(sql, (instance, ev.EVENT_RAISED)).fetchall()]
