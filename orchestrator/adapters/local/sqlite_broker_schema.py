"""The broker's file: layout and statements. `sqlite_broker_sql` says what each is for.

    messages   seq           sequence number and order of arrival
               available_at  epoch ms from which it may be delivered: arrival, due time, or the end
                             of the present lock. So an expired lock needs nobody to clean up
               token         of the delivery that holds (or held) the lock, its last `PID_BITS`
                             the process that it was made to; NULL: not delivered
               deliveries    begun so far
               bury_at       when it becomes a dead letter if nothing else happens: the end of its
                             last permitted lock, or its expiry; mostly NULL
    seen       message ids for duplicate detection. `gen` numbers periods of time; whole periods
               are dropped when they are too old, which costs no index by time

Locking moves a message within one index and completing removes it: nothing else is kept up.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from orchestrator.adapters.local.sqlite_common import begin_patiently

_LAYOUT: Final = """
CREATE TABLE IF NOT EXISTS messages (
  seq INTEGER PRIMARY KEY, queue TEXT NOT NULL, available_at INTEGER NOT NULL, token INTEGER,
  deliveries INTEGER NOT NULL, bury_at INTEGER, expires_at INTEGER, enqueued_at INTEGER NOT NULL,
  message_id TEXT NOT NULL, body BLOB NOT NULL, properties TEXT, reason TEXT, description TEXT);
CREATE INDEX IF NOT EXISTS messages_ready ON messages (queue, available_at);
CREATE INDEX IF NOT EXISTS messages_bury ON messages (queue, bury_at) WHERE bury_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS seen (
  gen INTEGER NOT NULL, queue TEXT NOT NULL, id TEXT NOT NULL, until INTEGER NOT NULL,
  PRIMARY KEY (gen, queue, id)) WITHOUT ROWID
"""

PID_BITS: Final = 22
"""Process ids are below 2**22 on Linux (and far below on other systems)."""
_PID: Final = f"(token & {2**PID_BITS - 1})"

SEQ: Final = "SELECT max(seq) FROM messages"
SEEN: Final = "SELECT id FROM seen WHERE gen IN (?, ?) AND queue = ? AND until > ? AND id IN ({})"
REMEMBER: Final = "INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)"
INSERT: Final = (
    "INSERT INTO messages (seq, queue, available_at, deliveries, bury_at, expires_at, enqueued_at, "
    "message_id, body, properties) VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, ?)"
)
OLD_IDS: Final = (
    "DELETE FROM seen WHERE (gen, queue, id) IN "
    "(SELECT gen, queue, id FROM seen WHERE gen < ? ORDER BY gen, queue, id LIMIT ?)"
)
READY: Final = "SELECT 1 FROM messages WHERE queue = ? AND available_at <= ? LIMIT 1"
BURIABLE: Final = "SELECT 1 FROM messages WHERE queue = ? AND bury_at <= ? LIMIT 1"
LOCK: Final = (
    "UPDATE messages SET token = ?, available_at = ?, deliveries = deliveries + 1, "
    # max() with NULL is NULL: no expiry, nothing to bury. A locked message does not expire.
    "bury_at = CASE WHEN deliveries + 1 >= ? THEN ? ELSE max(expires_at, ?) END "
    "WHERE seq IN (SELECT seq FROM messages INDEXED BY messages_ready "
    "WHERE queue = ? AND available_at <= ? ORDER BY available_at, seq LIMIT ?) RETURNING "
)
ROW: Final = (
    "seq, message_id, body, properties, deliveries, enqueued_at, reason, description, available_at"
)
BURY: Final = (
    "UPDATE messages SET queue = ?, available_at = ?, token = NULL, bury_at = NULL, "
    "expires_at = NULL, reason = CASE WHEN deliveries >= ? THEN ? ELSE ? END, "
    "description = 'after ' || deliveries || ' deliveries', deliveries = 0 "
    "WHERE queue = ? AND bury_at <= ?"
)
HELD: Final = "WHERE seq = ? AND token = ? AND queue = ? AND available_at > ?"
COMPLETE: Final = (
    "DELETE FROM messages WHERE seq IN ({}) AND token = ? AND queue = ? AND available_at > ? "
    "RETURNING seq"
)
ABANDON: Final = (
    # Back to its old place in front. A last delivery given back is a dead letter at once.
    "UPDATE messages SET available_at = enqueued_at, token = NULL, "
    f"bury_at = CASE WHEN deliveries >= ? THEN 0 ELSE expires_at END {HELD}"
)
HOLDERS: Final = (
    f"SELECT DISTINCT queue, {_PID} FROM messages WHERE token IS NOT NULL AND available_at > ?"
)
GIVE_BACK: Final = (  # as ABANDON, of all that one process holds
    "UPDATE messages SET available_at = enqueued_at, token = NULL, "
    "bury_at = CASE WHEN deliveries >= ? THEN 0 ELSE expires_at END "
    f"WHERE queue = ? AND {_PID} = ? AND available_at > ?"
)
RELEASE: Final = (
    "UPDATE messages SET available_at = enqueued_at, token = NULL, bury_at = expires_at, "
    f"deliveries = deliveries - 1 {HELD}"
)
DEAD_LETTER: Final = (
    "UPDATE messages SET queue = ?, available_at = ?, token = NULL, bury_at = NULL, "
    f"expires_at = NULL, deliveries = 0, reason = ?, description = ? {HELD}"
)
RENEW: Final = (
    "UPDATE messages SET available_at = ?, "
    f"bury_at = CASE WHEN deliveries >= ? THEN ? ELSE max(expires_at, ?) END {HELD}"
)
NEXT: Final = (
    "SELECT min(at) FROM (SELECT min(available_at) AS at FROM messages WHERE queue = ? UNION ALL "
    "SELECT min(bury_at) FROM messages WHERE queue = ? AND bury_at IS NOT NULL)"
)
PEEK: Final = (
    f"SELECT {ROW} FROM messages INDEXED BY messages_ready WHERE queue = ? ORDER BY seq LIMIT ?"
)
COUNTS: Final = (
    "SELECT count(*), coalesce(sum(available_at <= ?1), 0), "
    "coalesce(sum(available_at > ?1 AND token IS NOT NULL), 0) FROM messages WHERE queue = ?2"
)
OLDEST: Final = (
    "SELECT queue, min(available_at) FROM messages WHERE available_at <= ? GROUP BY queue"
)


def create_layout(db: sqlite3.Connection) -> None:
    """Create what is missing."""
    begin_patiently(db)
    for statement in _LAYOUT.split(";"):
        db.execute(statement)
    db.execute("COMMIT")
