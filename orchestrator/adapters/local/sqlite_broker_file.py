"""The broker's file as something that may vanish: deleted, replaced or damaged at any moment.

Losing it loses nothing, so the answer is always a new file. Without this, a process would go on
writing into a deleted file that no other process sees, or stop because of a damaged one.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

from orchestrator.adapters.local.sqlite_broker_schema import create_layout
from orchestrator.adapters.local.sqlite_common import (
    connect,
    identity,
    never_wait,
    opening,
    primary_code,
    remove_log,
)
from orchestrator.ports import TransportError

CHECKPOINT_PAGES: Final = 2_000  # 4 MB of log; unsynced, so a commit can afford to checkpoint

_RUINED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class BrokerFile:
    """One connection to the file that is at `path` now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._identity = (0, 0)  # device and inode of the open file
        self._suspect = False  # an error made us doubt the open file
        self._ruined = False  # ... and it is damaged: replace it

    def connection(self) -> sqlite3.Connection:
        """The connection; a new one if the file was deleted, replaced or found damaged.

        Asked before every use: a look at the file's inode costs 2 us. Raises `sqlite3.Error` and
        `OSError`.
        """
        if self._db is not None and not self._suspect:
            with contextlib.suppress(FileNotFoundError):
                if identity(self._path) == self._identity:
                    return self._db
        self.close()
        with opening(self._path):
            if self._ruined and self._path.exists() and identity(self._path) == self._identity:
                self._remove()
            try:
                self._db = _open(self._path)
            except sqlite3.DatabaseError as error:
                if primary_code(error) not in _RUINED:
                    raise
                self._remove()
                self._db = _open(self._path)
            self._identity = identity(self._path)
        self._suspect = self._ruined = False
        return self._db

    def failed(self, error: Exception) -> TransportError:
        """A database error as a port error; the file is looked at before it is used again."""
        if isinstance(error, sqlite3.Error) and primary_code(error) != sqlite3.SQLITE_BUSY:
            self._suspect = True
            self._ruined = self._ruined or primary_code(error) in _RUINED
        failure = TransportError(f"broker: {type(error).__name__}: {error}")
        failure.__cause__ = error
        return failure

    def close(self) -> None:
        """Release the file; `connection` opens it again."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _remove(self) -> None:
        self._path.unlink(missing_ok=True)
        remove_log(self._path)


def _open(path: Path) -> sqlite3.Connection:
    db = connect(path, durable=False, checkpoint_pages=CHECKPOINT_PAGES)
    try:
        create_layout(db)
        never_wait(db)
    except BaseException:
        db.close()
        raise
    return db
