"""Opening SQLite files that several processes share, each pragma with the failure it prevents.

Without this, processes that start together meet "database is locked" while one of them switches
the file to WAL, and a file that was deleted and made anew could swallow the old file's log.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

OPEN_PATIENCE_S: Final = 10.0
"""How long an opening process waits for others that create or recover the same file."""

_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def primary_code(error: sqlite3.Error) -> int:
    """The primary result code; -1 if the error is not from the database itself."""
    code = getattr(error, "sqlite_errorcode", None)
    return -1 if code is None else code & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds the lock, so that trying again is right."""
    return primary_code(error) in _BUSY


def connect(path: Path, *, durable: bool, checkpoint_pages: int) -> sqlite3.Connection:
    """A connection in autocommit mode with our settings; the file is created if missing.

    It may be used by any thread, one at a time: the callers hand it over, they never share it.
    """
    db = sqlite3.connect(
        path,
        isolation_level=None,  # no implicit BEGIN: transactions are grouped by hand
        check_same_thread=False,
        cached_statements=512,  # queries are generated per shape; recompiling costs 20 us each
        timeout=5.0,
    )
    try:
        for pragma in (
            # A commit writes whole pages, and ours are scattered over many partitions: half the
            # bytes of the default 4 KB. Takes effect when the file is created.
            "page_size=2048",
            # Readers must not block the writer, nor the writer readers.
            "journal_mode=WAL",
            # FULL: a power cut must not lose a commit that was acknowledged (WAL's NORMAL does).
            # OFF: the broker's file may be lost, so it never waits for the disk.
            f"synchronous={'FULL' if durable else 'OFF'}",
            # A 2 MB default cache thrashes with 20,000 executions.
            "cache_size=-32768",
            # Some builds overwrite deleted rows with zeros: twice the log for every outbox delete.
            "secure_delete=OFF",
            # Sorts and savepoints must not write temporary files.
            "temp_store=MEMORY",
            # The log must not grow for ever; see `SqliteStore` for who usually checkpoints.
            f"wal_autocheckpoint={checkpoint_pages}",
            # After a checkpoint give back what a burst has taken.
            f"journal_size_limit={64 * 1024 * 1024}",
        ):
            db.execute(f"PRAGMA {pragma}").fetchall()
    except BaseException:
        db.close()
        raise
    return db


@contextlib.contextmanager
def opening(path: Path) -> Iterator[None]:
    """Hold the file's opening lock: one process at a time creates, recovers or replaces it.

    The kernel frees the lock when its holder dies, so a stale one never remains; the small
    `.lock` file itself stays and means nothing. If the database is missing, what is left of an
    older one is removed first: a process that still has the deleted file open would share its
    log's index with the new file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(
        path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        give_up = time.monotonic() + OPEN_PATIENCE_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise TimeoutError(f"{path}: another process is still opening it") from None
                time.sleep(0.002)
        if not path.exists():
            remove_log(path)
        yield
    finally:
        os.close(lock)


def identity(path: Path) -> tuple[int, int]:
    """Device and inode of the file at `path`. Raises `OSError`."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def check_same(path: Path, opened: tuple[int, int]) -> None:
    """Raise `sqlite3.OperationalError` unless the file at `path` is the one with the identity
    `opened`. SQLite goes on writing into a file that was deleted or replaced, and all of that is
    gone when its last process ends. Costs 2 us."""
    with contextlib.suppress(FileNotFoundError):
        if identity(path) == opened:
            return
    raise sqlite3.OperationalError(
        f"{path.name} was deleted or replaced while it was in use; stop the platform, then start it"
    )


def remove_log(path: Path) -> None:
    """Delete the write-ahead log and its index, if they exist."""
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def never_wait(db: sqlite3.Connection) -> None:
    """From now on a lock held by another process is an error at once. The event loop's thread must
    not sleep inside SQLite; it tries again by timer."""
    db.execute("PRAGMA busy_timeout=0").fetchall()


def read(db: sqlite3.Connection, sql: str, values: Sequence[Any]) -> list[Any]:
    """All rows. Always all: an unfinished statement would pin the log and stop checkpoints.

    Readers wait for nobody, but for another process that repairs the log after a crash: some ms.
    """
    try:
        return db.execute(sql, values).fetchall()
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
    db.execute("PRAGMA busy_timeout=5000").fetchall()
    try:
        return db.execute(sql, values).fetchall()
    finally:
        never_wait(db)


def checkpoint(path: Path) -> None:
    """Copy the log of a durable file into it, as far as no reader needs it. Blocks on the disk."""
    with contextlib.suppress(sqlite3.Error):  # another process does it just now; or the next time
        db = connect(path, durable=True, checkpoint_pages=0)
        try:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        finally:
            db.close()


def begin_patiently(db: sqlite3.Connection) -> None:
    """BEGIN IMMEDIATE while opening: waits out processes that write, close or recover.

    The busy timeout alone is not enough: SQLite skips it where waiting could be a deadlock.
    """
    give_up = time.monotonic() + OPEN_PATIENCE_S
    while True:
        try:
            db.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.002)
