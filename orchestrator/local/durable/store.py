"""`durable.db`: instances, their histories and the work that is due, in SQLite.

Every change is one transaction: a turn appends its history, takes what it heard out of the inbox
and puts in what it wants done, all or nothing. So a crash at any moment loses nothing, and an
activity whose end was recorded does not run again. Several processes share the file by leases: who
claims a turn or an activity has it until `lease_until`, and a late writer finds its lease gone.

All calls block on the disk for a moment; `hub` makes them in a thread of their own.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from orchestrator.adapters.local import sqlite_common
from orchestrator.local.durable import events as ev
from orchestrator.local.durable.events import Event
from orchestrator.local.durable.protocol import Identity, Turn
from orchestrator.local.durable.store_rows import (
    append,
    deliver,
    end,
    enqueue,
    history,
    reset,
)
from orchestrator.local.durable.store_schema import LAYOUT, TABLES
from orchestrator.ports import StoreError
from orchestrator.ports_durable import InstanceStatus

CHECKPOINT_PAGES: Final = 1_000


F = TypeVar("F", bound=Callable[..., Any])


def repeatable(method: F) -> F:
    """Mark a write that need not reach the disk by itself: what a power cut takes back is simply
    done again, since nothing outside of the file has seen it. Whatever follows takes it along."""
    method.repeatable = True  # type: ignore[attr-defined]
    return method


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A turn to be run: all that it needs. Ours until the lease ends."""

    identity: Identity
    owner: str
    history: list[Event]
    news: list[Event]
    held: list[Event]
    rows: dict[int, int]  # identity of an event object: its row in the inbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An activity to be run. Ours until the lease ends."""

    row: int
    owner: str
    instance: str
    execution: str
    task: int
    name: str
    payload: str | None  # JSON text


class DurableStore:
    """One connection to the file. Not to be used by two threads at once."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        """Create or open. `durable` false: a power cut may lose the last writes. Raises
        `StoreError`: the file cannot be used, or newer code has written it."""
        self._path = path
        self._grouped = False
        # `PRAGMA synchronous`: of whoever is not told otherwise, of what comes next, as it is set.
        self._durable = self._level = self._synced = "FULL" if durable else "OFF"
        try:
            with sqlite_common.opening(path):
                self.db = sqlite_common.connect(
                    path, durable=durable, checkpoint_pages=CHECKPOINT_PAGES
                )
                try:
                    self._prepare()
                    self._identity = sqlite_common.identity(path)
                except BaseException:
                    self.db.close()
                    raise
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{path} cannot be opened: {error}") from error

    def _prepare(self) -> None:
        sqlite_common.begin_patiently(self.db)
        ((version,),) = self.db.execute("PRAGMA user_version").fetchall()
        if version > LAYOUT:
            raise sqlite3.DatabaseError(f"layout {version} is newer than this code's {LAYOUT}")
        if version < LAYOUT:
            for statement in filter(None, map(str.strip, TABLES.split(";"))):
                self.db.execute(statement)
            self.db.execute(f"PRAGMA user_version={LAYOUT}")
        self.db.execute("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        self.db.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; on the disk when it ends, or when the `group` does that it is in."""
        if not self.db.in_transaction:
            sqlite_common.check_same(self._path, self._identity)
            if self._level != self._synced:
                self.db.execute(f"PRAGMA synchronous={self._level}")
                self._synced = self._level
            sqlite_common.begin_patiently(self.db)
        # Also where it is alone: one way of undoing.
        self.db.execute("SAVEPOINT one")
        try:
            yield self.db
        except BaseException:
            self.db.execute("ROLLBACK TO one")
            self.db.execute("RELEASE one")
            if not self._grouped:
                self.db.execute("ROLLBACK")
            raise
        self.db.execute("RELEASE one")
        if not self._grouped:
            self.db.execute("COMMIT")

    @contextlib.contextmanager
    def group(self, *, sync: bool) -> Iterator[None]:
        """All transactions within are one commit. `sync` false: a power cut may lose it."""
        self._grouped = True
        self._level = self._durable if sync else "NORMAL"
        try:
            yield
            if self.db.in_transaction:
                self.db.execute("COMMIT")
        finally:
            self._grouped = False
            self._level = self._durable
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")

    @repeatable
    def foreign_commits(self) -> int:
        """A number that changes when another process has written."""
        ((version,),) = self.db.execute("PRAGMA data_version").fetchall()
        return version

    @repeatable
    def next_due(self, now: int) -> int | None:
        """When something is to be done next: `now` or earlier if it is already."""
        found = self.db.execute(
            "SELECT min(due) FROM (SELECT min(fire_at) AS due FROM timers UNION ALL"
            " SELECT min(lease_until) FROM activities UNION ALL"
            " SELECT min(lease_until) FROM instances WHERE wake = 1 AND suspended = 0)"
        ).fetchone()
        return found[0]

    @repeatable
    def fire_timers(self, now: int) -> int:
        """Timers that are due become events, in the order of their times. How many."""
        sql = "SELECT instance, execution, task, fire_at FROM timers WHERE fire_at <= ? "
        if not self.db.execute(sql + "LIMIT 1", (now,)).fetchall():
            return 0
        with self.transaction() as db:
            due = db.execute(sql + "ORDER BY fire_at, task", (now,)).fetchall()
            for instance, execution, task, fire_at in due:
                event = ev.event(ev.TIMER_FIRED, now, TimerId=task, FireAt=ev.timestamp(fire_at))
                deliver(db, instance, event, execution)
            db.execute("DELETE FROM timers WHERE fire_at <= ?", (now,))
        return len(due)

    @repeatable
    def claim_turns(self, owner: str, now: int, until: int, limit: int) -> list[Claim]:
        """Instances that have heard something, at most `limit`. `owner` must be fresh."""
        due = (
            "SELECT id FROM instances WHERE wake = 1 AND suspended = 0 AND lease_until <= ?"
            " ORDER BY updated LIMIT ?"  # who had no turn for longest
        )
        if not self.db.execute(due, (now, limit)).fetchall():
            return []
        claims: list[Claim] = []
        with self.transaction() as db:
            for (instance,) in db.execute(due, (now, limit)).fetchall():
                db.execute(
                    "UPDATE instances SET owner = ?, lease_until = ? WHERE id = ?",
                    (owner, until, instance),
                )
                claims.append(_load(db, instance, owner))
        return claims

    def commit_turn(self, claim: Claim, turn: Turn, now: int, fresh: str) -> bool:
        """Make `turn` true; `fresh`: a new execution id. False: the lease was lost, or the instance
        was ended or started anew meanwhile, and nothing was written."""
        identity, outcome = claim.identity, turn.outcome
        with self.transaction() as db:
            row = db.execute(
                "SELECT parent, parent_execution, parent_task FROM instances"
                " WHERE id = ? AND owner = ? AND execution = ?",
                (identity.instance, claim.owner, identity.execution),
            ).fetchone()
            if row is None:
                return False
            held = {id(event) for event in turn.held}
            gone = [seq for event, seq in claim.rows.items() if event not in held]
            kept = [seq for event, seq in claim.rows.items() if event in held]
            _mark(db, "DELETE FROM inbox", gone)
            append(db, identity.instance, turn.events)
            enqueue(db, identity, turn.scheduled, now, timers=outcome is None)
            status = InstanceStatus.RUNNING if outcome is None else outcome.status
            if outcome is None:
                _mark(db, "UPDATE inbox SET held = 1", kept)
            elif outcome.status == "ContinuedAsNew":
                reset(db, identity.instance, keep_events=True)
                db.execute(
                    "UPDATE instances SET execution = ?, payload = ? WHERE id = ?",
                    (fresh, outcome.value, identity.instance),
                )
                started = ev.started(now, identity.name, outcome.value)
                deliver(db, identity.instance, started)
                status = InstanceStatus.RUNNING
            else:
                end(db, identity.instance, outcome.status, outcome.value, now, row)
            db.execute(
                "UPDATE instances SET status = ?, custom_status = coalesce(?, custom_status),"
                " updated = ?, owner = NULL, lease_until = 0, wake = EXISTS"
                " (SELECT 1 FROM inbox WHERE instance = instances.id AND held = 0) WHERE id = ?",
                (str(status), turn.custom_status, now, identity.instance),
            )
        return True

    @repeatable
    def claim_calls(self, owner: str, now: int, until: int, limit: int) -> list[Call]:
        """Activities to be run, the oldest first, at most `limit`."""
        due = (
            "SELECT id, instance, execution, task, name, payload FROM activities"
            " WHERE lease_until <= ? ORDER BY id LIMIT ?"
        )
        if not self.db.execute(due, (now, limit)).fetchall():
            return []
        with self.transaction() as db:
            rows = db.execute(due, (now, limit)).fetchall()
            sql = "UPDATE activities SET owner = ?, lease_until = ?"
            _mark(db, sql, [row[0] for row in rows], owner, until, key="id")
        names = ("row", "instance", "execution", "task", "name", "payload")
        return [Call(owner=owner, **dict(zip(names, row, strict=True))) for row in rows]

    def finish_call(self, call: Call, event: Event) -> bool:
        """Record how an activity ended, once. False: the lease was lost to another, who does it."""
        with self.transaction() as db:
            done = db.execute(
                "DELETE FROM activities WHERE id = ? AND owner = ?", (call.row, call.owner)
            )
            if done.rowcount:
                deliver(db, call.instance, event, call.execution)
        return bool(done.rowcount)

    @repeatable
    def renew(self, calls: Iterable[Call], claims: Iterable[Claim], until: int) -> None:
        """Prolong the leases of what is still running."""
        with self.transaction() as db:
            db.executemany(
                "UPDATE activities SET lease_until = ? WHERE id = ? AND owner = ?",
                [(until, call.row, call.owner) for call in calls],
            )
            db.executemany(
                "UPDATE instances SET lease_until = ? WHERE id = ? AND owner = ?",
                [(until, claim.identity.instance, claim.owner) for claim in claims],
            )

    def release(self, calls: Iterable[Call], claims: Iterable[Claim]) -> None:
        """Give back what was claimed and will not be run: others need not wait for the leases."""
        self.renew(calls, claims, 0)


def _load(db: sqlite3.Connection, instance: str, owner: str) -> Claim:
    name, execution, payload, parent = db.execute(
        "SELECT name, execution, payload, parent FROM instances WHERE id = ?", (instance,)
    ).fetchone()
    rows = db.execute(
        "SELECT seq, held, event FROM inbox WHERE instance = ? ORDER BY kind <> ?, seq",
        (instance, ev.EXECUTION_STARTED),  # after continue-as-new kept events are older than it
    ).fetchall()
    inbox = [(seq, held, json.loads(text)) for seq, held, text in rows]
    return Claim(
        identity=Identity(
            name=name, instance=instance, execution=execution, payload=payload, parent=parent
        ),
        owner=owner,
        history=history(db, instance),
        news=[event for _, held, event in inbox if not held],
        held=[event for _, held, event in inbox if held],
        rows={id(event): seq for seq, _, event in inbox},
    )


def _mark(
    db: sqlite3.Connection, sql: str, keys: Sequence[int], *values: Any, key: str = "seq"
) -> None:
    db.executemany(f"{sql} WHERE {key} = ?", [(*values, one) for one in keys])
