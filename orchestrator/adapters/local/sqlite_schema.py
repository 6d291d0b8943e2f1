"""The layout of the document file, and the statements that the store runs on it.

One table per container, so that a busy container costs the change feed of a quiet one nothing:

    docs_NAME  pk          partition values, each followed by U+0000 (so "t" is no prefix of "t2")
               id          unique within pk
               lsn         position in the change feed; the etag is its decimal text
               type, sweep_at, created_at, tenant_id   copies of body properties that queries filter
                           or order by; NULL if missing or neither text nor number
               expires_at  epoch ms, NULL without `ttl`
               body        the document as JSON text

    meta       `lsn`       the last one given out. Kept apart, because the highest lsn of the tables
                           goes back when the newest document is deleted, and would be given twice
               `instance`  random, made with the file: cursors of another file are refused

Every lsn is given inside a write transaction, and SQLite has one writer at a time. So commit order
is lsn order, for any number of processes, and no document ever appears behind a cursor.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from functools import cache
from typing import Final

from orchestrator.adapters.local.sqlite_common import begin_patiently
from orchestrator.domain.topology import CONTAINERS

LAYOUT: Final = 1  # PRAGMA user_version

ALIVE: Final = "(expires_at IS NULL OR expires_at > ?)"
"""An expired document is invisible everywhere, although it is purged later. Parameter: now."""

COLUMN_OF: Final = {
    "id": "id",
    "type": "type",
    "sweepAt": "sweep_at",
    "createdAt": "created_at",
    "tenantId": "tenant_id",
}
"""Body properties that have a column."""

# Columns have no declared type: SQLite would turn "12" into 12 and 1.0 into 1.
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS docs_{0} (
  row INTEGER PRIMARY KEY,
  lsn INTEGER NOT NULL, pk TEXT NOT NULL, id TEXT NOT NULL,
  type, sweep_at, created_at, tenant_id, expires_at, body TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS docs_{0}_key ON docs_{0} (pk, id);
CREATE UNIQUE INDEX IF NOT EXISTS docs_{0}_lsn ON docs_{0} (lsn);
CREATE INDEX IF NOT EXISTS docs_{0}_sweep ON docs_{0} (sweep_at, id, type)
  WHERE sweep_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS docs_{0}_created ON docs_{0} (tenant_id, type, created_at, id)
  WHERE created_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS docs_{0}_expiry ON docs_{0} (expires_at)
  WHERE expires_at IS NOT NULL;
"""

# Each property that lists filter by, together with the order of lists.
_FILTER_INDEX: Final = """
CREATE INDEX IF NOT EXISTS {index} ON docs_{container}
  (tenant_id, type, {property}, created_at, id)
  WHERE created_at IS NOT NULL AND {property} IS NOT NULL
"""

# Each property that is asked for in order across partitions.
_ORDER_INDEX: Final = """
CREATE INDEX IF NOT EXISTS {index} ON docs_{container} ({property}, id)
  WHERE {property} IS NOT NULL
"""


def property_sql(field: str) -> str:
    """SQL for one of a container's `filters` or `orders`. A literal path and not a parameter: an
    index on an expression is used only for the very same expression."""
    return f"json_extract(body, '$.\"{field}\"')"


def filter_index(container: str, field: str) -> str:
    """Name of the index for lists filtered by `field`, one of the container's `filters`."""
    return f"docs_{container}_by_{field}"


def order_index(container: str, field: str) -> str:
    """Name of the index for queries ordered by `field`, one of the container's `orders`."""
    return f"docs_{container}_in_{field}"


def create_layout(db: sqlite3.Connection) -> str:
    """Create what is missing; returns the file's instance id.

    Raises `sqlite3.DatabaseError` for a file that newer code has written.
    """
    begin_patiently(db)
    try:
        (found,) = db.execute("PRAGMA user_version").fetchone()
        if found > LAYOUT:
            raise sqlite3.DatabaseError(f"layout {found} is newer than this code's {LAYOUT}")
        db.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID")
        db.execute("INSERT OR IGNORE INTO meta VALUES ('lsn', 0)")
        db.execute("INSERT OR IGNORE INTO meta VALUES ('instance', ?)", (os.urandom(6).hex(),))
        for container, spec in CONTAINERS.items():
            for statement in _TABLE.format(container).split(";"):
                db.execute(statement)
            for field in spec.filters:
                index, expression = filter_index(container, field), property_sql(field)
                db.execute(
                    _FILTER_INDEX.format(container=container, index=index, property=expression)
                )
            for field in spec.orders:
                index, expression = order_index(container, field), property_sql(field)
                db.execute(
                    _ORDER_INDEX.format(container=container, index=index, property=expression)
                )
        ((instance,),) = db.execute("SELECT value FROM meta WHERE key = 'instance'").fetchall()
        db.execute(f"PRAGMA user_version = {LAYOUT}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The statements of one container. Parameters in the order in which they appear."""

    read: str  # pk, id, now -> lsn, body
    insert: str  # the nine values of a row, now: takes the place of an expired document too
    upsert: str  # the nine values of a row
    update: str  # the nine values, now
    update_if: str  # the same, lsn
    delete: str  # pk, id, now
    delete_if: str  # the same, lsn
    changes: str  # lsn, now, limit -> id, lsn, body
    purge: str  # now, limit


@cache
def statements(container: str) -> Statements:
    """The statements of a container of `topology.CONTAINERS`."""
    table = f"docs_{container}"
    insert = (
        f"INSERT INTO {table} "
        "(lsn, type, sweep_at, created_at, tenant_id, expires_at, body, pk, id) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (pk, id) DO UPDATE SET "
        "lsn = excluded.lsn, type = excluded.type, sweep_at = excluded.sweep_at, "
        "created_at = excluded.created_at, tenant_id = excluded.tenant_id, "
        "expires_at = excluded.expires_at, body = excluded.body"
    )
    update = (
        f"UPDATE {table} SET lsn = ?, type = ?, sweep_at = ?, created_at = ?, tenant_id = ?, "
        f"expires_at = ?, body = ? WHERE pk = ? AND id = ? AND {ALIVE}"
    )
    delete = f"DELETE FROM {table} WHERE pk = ? AND id = ? AND {ALIVE}"
    return Statements(
        read=f"SELECT lsn, body FROM {table} WHERE pk = ? AND id = ? AND {ALIVE}",
        insert=f"{insert} WHERE expires_at <= ?",
        upsert=insert,
        update=update,
        update_if=f"{update} AND lsn = ?",
        delete=delete,
        delete_if=f"{delete} AND lsn = ?",
        changes=f"SELECT id, lsn, body FROM {table} WHERE lsn > ? AND {ALIVE} ORDER BY lsn LIMIT ?",
        purge=f"DELETE FROM {table} WHERE row IN "
        f"(SELECT row FROM {table} WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)",
    )
