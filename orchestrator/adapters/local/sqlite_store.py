"""Documents in one SQLite file that several processes may share: Cosmos DB's manners, no cloud.

Writes are grouped (`sqlite_group`), statements run on the event loop's thread, and a write is
answered only after its commit is on disk. Reads run inline and see committed data only. The layout
is in `sqlite_schema`, what may be stored in `document_rules`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import orjson

from orchestrator.adapters.document_rules import (
    check_partition,
    container_spec,
    encode_batch,
    is_storable_id,
)
from orchestrator.adapters.local.sqlite_common import (
    check_same,
    checkpoint,
    connect,
    identity,
    never_wait,
    opening,
    read,
)
from orchestrator.adapters.local.sqlite_group import INLINE_COMMIT_S, GroupWriter, Hooks, Untouched
from orchestrator.adapters.local.sqlite_operations import apply, prepare, unavailable
from orchestrator.adapters.local.sqlite_query import compile_count, compile_query, partition_text
from orchestrator.adapters.local.sqlite_schema import create_layout, statements
from orchestrator.adapters.local.system import SystemClock
from orchestrator.domain.topology import CONTAINERS
from orchestrator.ports import (
    BadCursor,
    ChangePage,
    Clock,
    Create,
    Delete,
    Document,
    NotFound,
    Operation,
    Partition,
    Query,
    Replace,
    StoreError,
    Unavailable,
    Upsert,
)

logger = logging.getLogger("orchestrator.adapters.local")

CHECKPOINT_CHANGES: Final = 4_000
"""Row changes between checkpoints in the background: some 10 MB of log at most."""
CHECKPOINT_PAGES: Final = 16_384
"""Log pages (32 MB) at which a commit itself checkpoints, if the background could not finish
because writers never paused. Nearly all pages are copied by then, so this is short."""
PURGE_EVERY_MS: Final = 10_000
PURGE_AT_ONCE: Final = 500  # expired documents per container and purge; bounds the group's time

_CURSOR: Final = re.compile(r"lsn1\.([0-9a-f]{12})\.([a-z]+)\.(0|[1-9][0-9]{0,17})")
_READ_MANY: Final = 100  # ids per statement


class SqliteStore:
    """`DocumentStore` on one file. Call `open` before, and `close` after, in one event loop."""

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock | None = None,
        inline_commit_s: float = INLINE_COMMIT_S,
    ) -> None:
        """`clock` decides what has expired. `inline_commit_s`: see `GroupWriter`."""
        self._path = Path(path)
        self._now: Callable[[], int] = (clock or SystemClock()).now
        self._inline_commit_s = inline_commit_s
        self._lsn = 0  # the last one given out; right only inside a group
        self._lsn_before = 0
        self._purged_at = 0
        self._changes_at_checkpoint = 0
        self._checkpoint: Future[None] | None = None
        self._gone = False  # the file at the path is not ours any more
        self._closed = True

    async def open(self) -> None:
        """Create or open the file, also while others do. Raises `Unavailable`."""
        try:
            with opening(self._path):
                self._db = connect(self._path, durable=True, checkpoint_pages=CHECKPOINT_PAGES)
                try:
                    self._instance = create_layout(self._db)
                    # Reads while a COMMIT runs in the thread. At other times the write connection
                    # serves them, because its page cache survives our own writes.
                    self._second = connect(self._path, durable=True, checkpoint_pages=0)
                    never_wait(self._db)
                    never_wait(self._second)
                    self._identity = identity(self._path)
                except BaseException:
                    self._db.close()
                    raise
        except (sqlite3.Error, OSError) as error:
            raise Unavailable(f"cannot open {self._path.name}: {error}") from error
        self._writer = GroupWriter(
            Hooks(
                connection=self._current,
                failed=unavailable,
                begun=self._begun,
                ending=self._ending,
                ended=self._ended,
            ),
            inline_commit_s=self._inline_commit_s,
        )
        self._background = ThreadPoolExecutor(1, thread_name_prefix="weft-checkpoint")
        self._closed = False

    async def close(self) -> None:
        """Commit what was submitted, then release the file. Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        await self._writer.drain()
        await asyncio.to_thread(self._background.shutdown, wait=True)
        self._second.close()
        self._db.close()  # the last connection of all checkpoints and removes the log

    # --- reads ------------------------------------------------------------------------------------

    async def read(self, container: str, partition: Partition, id: str) -> Document:
        """One document. Raises `NotFound`."""
        pk = _key(container, partition)
        if is_storable_id(id):
            for lsn, body in self._select(statements(container).read, (pk, id, self._now())):
                return Document(id, orjson.loads(body), str(lsn))
        raise NotFound(f"no {container} document {id!r:.80}")

    async def read_many(
        self, container: str, partition: Partition, ids: Sequence[str]
    ) -> dict[str, Document]:
        """Those of `ids` that exist, by id."""
        pk = _key(container, partition)
        wanted = [id for id in ids if is_storable_id(id)]
        found: dict[str, Document] = {}
        for start in range(0, len(wanted), _READ_MANY):
            some = wanted[start : start + _READ_MANY]
            sql = (
                f"SELECT id, lsn, body FROM docs_{container} WHERE pk = ? "
                "AND (expires_at IS NULL OR expires_at > ?) "
                f"AND id IN ({', '.join('?' * len(some))})"
            )
            for id, lsn, body in self._select(sql, (pk, self._now(), *some)):
                found[id] = Document(id, orjson.loads(body), str(lsn))
        return found

    async def query(self, container: str, query: Query) -> list[Document]:
        """Documents that match; see `ports.Query`."""
        sql, values = compile_query(container_spec(container), query, self._now())
        return [
            Document(id, orjson.loads(body), str(lsn))
            for id, lsn, body in self._select(sql, values)
        ]

    async def count(self, container: str, query: Query) -> int:
        """How many `query` would give; see `ports.DocumentStore.count`."""
        sql, values = compile_count(container_spec(container), query, self._now())
        ((found,),) = self._select(sql, values)
        return found

    async def changes(self, container: str, cursor: str | None, limit: int) -> ChangePage:
        """Documents changed since `cursor`; see `ports.DocumentStore.changes`."""
        container_spec(container)
        after = 0
        if cursor is not None:
            match = _CURSOR.fullmatch(cursor)
            if match is None or match[1] != self._instance or match[2] != container:
                raise BadCursor(f"not a cursor of {container} in this store")
            after = int(match[3])
        rows = self._select(statements(container).changes, (after, self._now(), limit))
        if rows:
            after = rows[-1][1]
        return ChangePage(
            [Document(id, orjson.loads(body), str(lsn)) for id, lsn, body in rows],
            f"lsn1.{self._instance}.{container}.{after}",
        )

    def _select(self, sql: str, values: Sequence[Any]) -> list[Any]:
        if self._closed:
            raise Unavailable("the store is closed")
        if self._gone:
            raise Unavailable(f"{self._path.name} is gone")
        db = self._second if self._writer.committing else self._db
        try:
            return read(db, sql, values)
        except sqlite3.Error as error:
            raise unavailable(error) from error

    # --- writes -----------------------------------------------------------------------------------

    async def create(self, container: str, partition: Partition, body: dict[str, Any]) -> str:
        """Store a new document; its etag. Raises `Conflict`."""
        return (await self._write(container, partition, [Create(body)], single=True))[0]

    async def replace(
        self,
        container: str,
        partition: Partition,
        body: dict[str, Any],
        *,
        if_match: str | None = None,
    ) -> str:
        """Overwrite; the new etag. Raises `NotFound`, `PreconditionFailed`."""
        operations = [Replace(body, if_match)]
        return (await self._write(container, partition, operations, single=True))[0]

    async def upsert(self, container: str, partition: Partition, body: dict[str, Any]) -> str:
        """Create or overwrite; the new etag."""
        return (await self._write(container, partition, [Upsert(body)], single=True))[0]

    async def delete(
        self, container: str, partition: Partition, id: str, *, if_match: str | None = None
    ) -> None:
        """Remove. Raises `NotFound`, `PreconditionFailed`."""
        await self._write(container, partition, [Delete(id, if_match)], single=True)

    async def batch(
        self, container: str, partition: Partition, operations: Sequence[Operation]
    ) -> list[str]:
        """All or nothing; see `ports.DocumentStore.batch`."""
        return await self._write(container, partition, operations, single=False)

    async def _write(
        self,
        container: str,
        partition: Partition,
        operations: Sequence[Operation],
        *,
        single: bool,
    ) -> list[str]:
        pk = _key(container, partition)
        try:
            bodies = encode_batch(container_spec(container), partition, operations)
        except StoreError as error:
            if single:
                error.operation = None
            raise
        texts = statements(container)
        now = self._now()
        # Everything is copied out of the bodies here: the caller may change them while we wait.
        steps = [
            prepare(pk, operation, raw, now)
            for operation, raw in zip(operations, bodies, strict=True)
        ]

        def work(db: sqlite3.Connection) -> list[str]:
            etags: list[str] = []
            for position, step in enumerate(steps):
                try:
                    self._lsn += 1
                    etags.append(apply(db, texts, pk, step, self._lsn, self._now()))
                except StoreError as error:
                    error.operation = None if single else position
                    if position == 0:
                        raise Untouched(error) from None
                    raise
            return etags

        return await self._submit(work)

    async def _submit(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        if self._closed:
            raise Unavailable("the store is closed")
        return await self._writer.submit(work)

    # --- what each group of writes brings with it -------------------------------------------------

    def _current(self) -> sqlite3.Connection:
        try:
            check_same(self._path, self._identity)
        except sqlite3.Error as error:
            if not self._gone:
                logger.critical("%s", error, extra={"action": "store.gone"})
            self._gone = True  # health is told by reads
            raise
        return self._db

    def _begun(self, db: sqlite3.Connection) -> None:
        ((self._lsn,),) = db.execute("SELECT value FROM meta WHERE key = 'lsn'").fetchall()
        self._lsn_before = self._lsn

    def _ending(self, db: sqlite3.Connection) -> None:
        now = self._now()
        if abs(now - self._purged_at) >= PURGE_EVERY_MS:  # abs: the clock may be set back
            self._purged_at = now
            for container in CONTAINERS:
                db.execute(statements(container).purge, (now, PURGE_AT_ONCE))
        if self._lsn != self._lsn_before:
            db.execute("UPDATE meta SET value = ? WHERE key = 'lsn'", (self._lsn,))

    def _ended(self) -> None:
        """Copy the log into the database every now and then, in the background: done by a commit,
        as is SQLite's default, it would hold up everybody who waits for that commit."""
        if self._db.total_changes - self._changes_at_checkpoint < CHECKPOINT_CHANGES:
            return
        if self._closed or not (self._checkpoint is None or self._checkpoint.done()):
            return
        self._changes_at_checkpoint = self._db.total_changes
        self._checkpoint = self._background.submit(checkpoint, self._path)


@lru_cache(4096)
def _key(container: str, partition: Partition) -> str:
    check_partition(container_spec(container), partition)
    return partition_text(partition)
