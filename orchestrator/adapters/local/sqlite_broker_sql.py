"""What the broker does with its file: functions that run inside a group of writes, or read."""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Sequence
from typing import Any, Final

import orjson

from orchestrator.adapters.local import sqlite_broker_schema as schema
from orchestrator.adapters.local.sqlite_common import read
from orchestrator.domain.topology import DEAD_LETTER_SUFFIX, QUEUES, QueueSpec
from orchestrator.ports import MessageLockLost, OutMessage, QueueCounts, Received

MAX_DELIVERIES_REASON: Final = "MaxDeliveryCountExceeded"  # the reasons that Service Bus gives
EXPIRED_REASON: Final = "TTLExpiredException"

GENERATION_MS: Final = max(spec.duplicate_window_seconds for spec in QUEUES.values()) * 1000
"""As long as the longest window, so that this generation and the one before cover it."""

_NEVER: Final = 2**62  # deliveries that no message reaches
_MANY: Final = 100  # ids per statement


def source_of(queue: str) -> str:
    """The queue itself, or for a dead-letter queue the one it belongs to."""
    return queue.removesuffix(DEAD_LETTER_SUFFIX)


def max_deliveries(queue: str) -> int:
    """How often a message of this queue may be delivered. Dead letters: any number of times."""
    spec = QUEUES.get(queue)
    return _NEVER if spec is None else spec.max_delivery_count


def insert(
    db: sqlite3.Connection,
    spec: QueueSpec,
    messages: Sequence[OutMessage],
    now: int,
    ttl: int | None,
) -> int:
    """Add those messages whose id was not seen within the window; how many."""
    gen = now // GENERATION_MS
    ids = [message.message_id for message in messages]
    known: set[str] = set()
    for start in range(0, len(ids), _MANY):
        some = ids[start : start + _MANY]
        sql = schema.SEEN.format(",".join("?" * len(some)))
        known.update(
            id for (id,) in db.execute(sql, (gen, gen - 1, spec.name, now, *some)).fetchall()
        )
    ((highest,),) = db.execute(schema.SEQ).fetchall()
    # Microseconds, so that numbers grow although the table may have been empty meanwhile.
    seq = max((highest or 0) + 1, time.time_ns() // 1000)
    until = now + spec.duplicate_window_seconds * 1000
    rows: list[tuple[Any, ...]] = []
    fresh: list[tuple[Any, ...]] = []
    for message in messages:
        if message.message_id in known:
            continue
        known.add(message.message_id)
        fresh.append((gen, spec.name, message.message_id, until))
        at = now if message.due_at is None else max(now, message.due_at)
        expires = None if ttl is None else at + ttl
        properties = orjson.dumps(dict(message.properties)).decode() if message.properties else None
        rows.append(
            (seq, spec.name, at, expires, expires, at, message.message_id, message.body, properties)
        )
        seq += 1
    db.executemany(schema.REMEMBER, fresh)
    db.executemany(schema.INSERT, rows)
    return len(rows)


def forget(db: sqlite3.Connection, now: int, limit: int) -> None:
    """Drop up to `limit` ids that no window reaches any more."""
    db.execute(schema.OLD_IDS, (now // GENERATION_MS - 1, limit))


def is_ready(db: sqlite3.Connection, queue: str, now: int) -> bool:
    """Whether a message can be delivered, or there is something to bury first."""
    return bool(
        read(db, schema.READY, (queue, now)) or read(db, schema.BURIABLE, (source_of(queue), now))
    )


def next_at(db: sqlite3.Connection, queue: str) -> int | None:
    """When, without a new message, `is_ready` can become true next (epoch ms)."""
    ((at,),) = read(db, schema.NEXT, (queue, source_of(queue)))
    return at


def bury(db: sqlite3.Connection, queue: str, now: int) -> int:
    """Make dead letters of what was delivered too often or has expired; how many."""
    if not db.execute(schema.BURIABLE, (queue, now)).fetchall():
        return 0
    limit = max_deliveries(queue)
    if not QUEUES[queue].dead_letter_on_expiration:
        db.execute(
            "DELETE FROM messages WHERE queue = ? AND bury_at <= ? AND deliveries < ?",
            (queue, now, limit),
        )
    dead = queue + DEAD_LETTER_SUFFIX
    values = (dead, now, limit, MAX_DELIVERIES_REASON, EXPIRED_REASON, queue, now)
    return db.execute(schema.BURY, values).rowcount


def lock(db: sqlite3.Connection, queue: str, limit: int, now: int) -> list[Received]:
    """Deliver up to `limit` messages."""
    token = secrets.randbits(62 - schema.PID_BITS) << schema.PID_BITS | os.getpid()
    until = now + QUEUES[source_of(queue)].lock_seconds * 1000
    values = (token, until, max_deliveries(queue), until, until, queue, now, limit)
    rows = db.execute(schema.LOCK + schema.ROW, values).fetchall()
    if len(rows) > 1:
        rows.sort()  # RETURNING promises no order
    return [_received(queue, row, f"{token:x}.{row[0]:x}") for row in rows]


def peek(db: sqlite3.Connection, queue: str, limit: int) -> list[Received]:
    """The first messages by sequence number."""
    return [_received(queue, row, "") for row in read(db, schema.PEEK, (queue, limit))]


def counts(db: sqlite3.Connection, queue: str, now: int) -> QueueCounts:
    """How many messages wait for what."""
    ((total, active, locked),) = read(db, schema.COUNTS, (now, queue))
    dead = 0
    if queue in QUEUES:
        ((dead, _, _),) = read(db, schema.COUNTS, (now, queue + DEAD_LETTER_SUFFIX))
    return QueueCounts(active=active, locked=locked, scheduled=total - active - locked, dead=dead)


def oldest(db: sqlite3.Connection, now: int) -> dict[str, int]:
    """By queue, since when the oldest receivable message is that."""
    return {queue: since for queue, since in read(db, schema.OLDEST, (now,)) if queue in QUEUES}


def complete(db: sqlite3.Connection, messages: Sequence[Received], now: int) -> list[str]:
    """Remove those whose lock is held; the ids of the others."""
    groups: dict[tuple[str, int], dict[int, str]] = {}
    for message in messages:
        key = (message.queue, _token(message))
        groups.setdefault(key, {})[message.sequence_number] = message.message_id
    lost: list[str] = []
    for (queue, token), members in groups.items():
        seqs = list(members)
        for start in range(0, len(seqs), _MANY):
            some = seqs[start : start + _MANY]
            sql = schema.COMPLETE.format(",".join("?" * len(some)))
            done = db.execute(sql, (*some, token, queue, now)).fetchall()
            if len(done) != len(some):
                gone = {seq for (seq,) in done}
                lost += [members[seq] for seq in some if seq not in gone]
    return lost


def abandon(db: sqlite3.Connection, message: Received, now: int) -> None:
    """Give a delivery back; it counts. Raises `MessageLockLost`."""
    _settle(db, schema.ABANDON, (max_deliveries(message.queue),), message, now)


def release(db: sqlite3.Connection, message: Received, now: int) -> None:
    """Take a delivery back that nobody has seen; it does not count."""
    _settle(db, schema.RELEASE, (), message, now)


def dead_letter(
    db: sqlite3.Connection, message: Received, reason: str, description: str, now: int
) -> None:
    """Move to the dead-letter queue. Raises `MessageLockLost`."""
    target = source_of(message.queue) + DEAD_LETTER_SUFFIX
    _settle(db, schema.DEAD_LETTER, (target, now, reason, description), message, now)


def renew(db: sqlite3.Connection, message: Received, now: int) -> int:
    """Lock for another period; until when. Raises `MessageLockLost`."""
    until = now + QUEUES[source_of(message.queue)].lock_seconds * 1000
    _settle(db, schema.RENEW, (until, max_deliveries(message.queue), until, until), message, now)
    return until


def give_back_of_dead(db: sqlite3.Connection, now: int) -> int:
    """Give back what processes that are gone had locked; the deliveries count. How many.

    A process that took over a dead one's number hides it: its locks then end by themselves."""
    count = 0
    for queue, pid in db.execute(schema.HOLDERS, (now,)).fetchall():
        if not _lives(pid):
            values = (max_deliveries(queue), queue, pid, now)
            count += db.execute(schema.GIVE_BACK, values).rowcount
    return count


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # asks only
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's process
        return True
    return True


def _settle(
    db: sqlite3.Connection, sql: str, values: tuple[Any, ...], message: Received, now: int
) -> None:
    held = (message.sequence_number, _token(message), message.queue, now)
    if db.execute(sql, (*values, *held)).rowcount != 1:
        raise lock_lost([message.message_id])


def lock_lost(ids: Sequence[str]) -> MessageLockLost:
    """The error for deliveries whose lock is not held any more."""
    return MessageLockLost(
        f"lock lost of {len(ids)} message(s), first {ids[0]:.128}: expired, settled before, or "
        "the message is gone",
        lost=ids,
    )


def _token(message: Received) -> int:
    """-1, which no delivery has, for a token that is not ours."""
    token, _, _ = message.lock_token.partition(".")
    try:
        return min(int(token, 16), 2**62)
    except ValueError:
        return -1


def _received(queue: str, row: tuple[Any, ...], lock_token: str) -> Received:
    seq, message_id, body, text, deliveries, enqueued_at, reason, description, available_at = row
    properties: dict[str, str] = orjson.loads(text) if text else {}
    if reason is not None:
        properties["DeadLetterReason"] = reason
        properties["DeadLetterErrorDescription"] = description or ""
    return Received(
        queue=queue,
        message_id=message_id,
        body=body,
        properties=properties,
        lock_token=lock_token,
        locked_until=available_at if lock_token else 0,
        delivery_count=deliveries,
        sequence_number=seq,
        enqueued_at=enqueued_at,
    )
