"""The embedded broker: Service Bus's manners in a SQLite file that may be lost.

Queues and limits are those of `domain/topology`. The file is never synced and may be deleted at any
moment, also while processes use it: they notice, go on with a new one, and the sweeper sends again
what was lost. Sending and receiving run on the event loop's thread, grouped per tick.

Within a process a waiting `receive` wakes at once. Messages of other processes are noticed within
`POLL_S`, by SQLite's counter of foreign commits, which costs a few microseconds to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator.adapters.local import sqlite_broker_sql as sql
from orchestrator.adapters.local.sqlite_broker_file import BrokerFile
from orchestrator.adapters.local.sqlite_group import GroupWriter, Hooks, Untouched
from orchestrator.adapters.local.system import SystemClock
from orchestrator.adapters.local.waiting import WaitingLines
from orchestrator.adapters.message_rules import check_message
from orchestrator.domain.topology import (
    DEAD_LETTER_SUFFIX,
    QUEUES,
)
from orchestrator.ports import (
    Clock,
    OutMessage,
    QueueCounts,
    QueueNotFound,
    Received,
    TransportError,
)

POLL_S: Final = 0.02
FORGET_EVERY: Final = 500  # messages sent between two looks for outdated message ids
_ALWAYS_INLINE: Final = 1e9  # seconds: no COMMIT waits for a disk here


class SqliteBroker:
    """`Transport` and `Receiver` on one file. `open` before, `close` after, in one event loop."""

    def __init__(
        self, path: str | Path, *, clock: Clock | None = None, message_ttl_ms: int | None = None
    ) -> None:
        """`clock` decides what is due and which locks have ended. `message_ttl_ms`: unsettled
        messages become dead letters so long after they were due; None: never."""
        self._file = BrokerFile(Path(path))
        self._now: Callable[[], int] = (clock or SystemClock()).now
        self._ttl = message_ttl_ms
        self._lines = WaitingLines(
            name for queue in QUEUES for name in (queue, queue + DEAD_LETTER_SUFFIX)
        )
        self._last_db: sqlite3.Connection | None = None
        self._version = 0  # SQLite's counter of foreign commits, as last seen on `_last_db`
        self._arrived: dict[str, int] = {}  # by the group in progress, per queue
        self._unforgotten = 0  # messages sent since outdated ids were last looked for
        self._poll: asyncio.TimerHandle | None = None
        self._closed = True

    async def open(self) -> None:
        """Create or open the file, and give back what dead processes had locked in it: a worker
        that was killed and started again would wait minutes for its own locks to end. Raises
        `TransportError`."""
        self._loop = asyncio.get_running_loop()
        self._writer = GroupWriter(
            Hooks(
                connection=self._file.connection,
                failed=self._file.failed,
                begun=lambda _: self._arrived.clear(),
                ending=self._ending,
                ended=self._ended,
            ),
            inline_commit_s=_ALWAYS_INLINE,
        )
        try:
            self._file.connection()
        except (sqlite3.Error, OSError) as error:
            raise self._file.failed(error) from error
        self._closed = False
        with contextlib.suppress(TransportError):  # a damaged file is replaced when it is used
            await self._submit(lambda db: sql.give_back_of_dead(db, self._now()))

    async def close(self) -> None:
        """Finish what was submitted, wake all receivers (they get nothing), release the file."""
        if self._closed:
            return
        self._closed = True
        await self._writer.drain()
        self._lines.wake_all()
        if self._poll is not None:
            self._poll.cancel()
        self._file.close()

    # --- sending ----------------------------------------------------------------------------------

    async def send(self, messages: Sequence[OutMessage]) -> None:
        """All of them, or none if it raises `MessageTooLarge`, `QueueNotFound`, `TransportError`.
        An id seen within the queue's window is dropped silently."""
        by_queue: dict[str, list[OutMessage]] = {}
        for message in messages:
            check_message(message)
            by_queue.setdefault(message.queue, []).append(message)
        if not by_queue:
            return

        def work(db: sqlite3.Connection) -> None:
            now = self._now()
            for queue, some in by_queue.items():
                count = sql.insert(db, QUEUES[queue], some, now, self._ttl)
                self._arrived[queue] = self._arrived.get(queue, 0) + count

        await self._submit(work)

    # --- receiving --------------------------------------------------------------------------------

    async def receive(self, queue: str, max_messages: int, wait_ms: int) -> list[Received]:
        """See `ports.Receiver`. Returns early with nothing when the broker is closed. If it is
        cancelled, no message stays locked and no delivery is counted."""
        self._known(queue)
        if max_messages < 1:
            raise ValueError(f"max_messages {max_messages}: at least 1")
        deadline = self._loop.time() + wait_ms / 1000
        while not self._closed:
            if self._look(lambda db: sql.is_ready(db, queue, self._now())):
                messages = await self._lock(queue, max_messages)
                if messages:
                    if len(messages) == max_messages:
                        self._lines.wake(queue, 1)  # there may be more
                    return messages
            left = deadline - self._loop.time()
            if left <= 0:
                break
            await self._wait(queue, left)
        return []

    async def _lock(self, queue: str, limit: int) -> list[Received]:
        def work(db: sqlite3.Connection) -> list[Received]:
            now = self._now()
            self._bury(db, queue, now)
            return sql.lock(db, queue, limit, now)

        future = self._submit(work)
        try:
            return await future
        except asyncio.CancelledError:
            # Delivered to nobody: otherwise it would stay locked, for minutes on some queues.
            if future.done() and not future.cancelled() and future.exception() is None:
                for message in future.result():
                    self._let_go(message)
            self._lines.wake(queue, 1)
            raise

    def _let_go(self, message: Received) -> None:
        def work(db: sqlite3.Connection) -> None:
            with contextlib.suppress(TransportError):
                sql.release(db, message, self._now())
                self._arrived[message.queue] = self._arrived.get(message.queue, 0) + 1

        with contextlib.suppress(TransportError):  # closed: the lock will end by itself
            self._submit(work)

    async def complete(self, message: Received) -> None:
        """Done. Raises `MessageLockLost`."""
        await self.complete_many([message])

    async def complete_many(self, messages: Sequence[Received]) -> None:
        """All whose lock is held; raises `MessageLockLost` for the others."""
        if not messages:
            return
        lost = await self._submit(lambda db: sql.complete(db, messages, self._now()))
        if lost:
            raise sql.lock_lost(lost)

    async def abandon(self, message: Received) -> None:
        """Give it back; the delivery counts. Raises `MessageLockLost`."""

        def work(db: sqlite3.Connection) -> None:
            now = self._now()
            _untouched(lambda: sql.abandon(db, message, now))
            self._bury(db, message.queue, now)
            self._arrived[message.queue] = self._arrived.get(message.queue, 0) + 1

        await self._submit(work)

    async def dead_letter(self, message: Received, reason: str, description: str) -> None:
        """Move it to the dead-letter queue. Raises `MessageLockLost`."""

        def work(db: sqlite3.Connection) -> None:
            _untouched(lambda: sql.dead_letter(db, message, reason, description, self._now()))
            target = sql.source_of(message.queue) + DEAD_LETTER_SUFFIX
            self._arrived[target] = self._arrived.get(target, 0) + 1

        await self._submit(work)

    async def renew(self, message: Received) -> int:
        """A full lock from now; until when. Raises `MessageLockLost`."""
        return await self._submit(
            lambda db: _untouched(lambda: sql.renew(db, message, self._now()))
        )

    async def peek(self, queue: str, limit: int) -> list[Received]:
        """The first messages, without locking."""
        self._known(queue)
        await self._bury_now(queue)
        return self._look(lambda db: sql.peek(db, queue, limit))

    async def counts(self, queue: str) -> QueueCounts:
        """How many messages wait for what."""
        self._known(queue)
        await self._bury_now(queue)
        return self._look(lambda db: sql.counts(db, queue, self._now()))

    async def oldest(self) -> dict[str, int]:
        """See `ports_telemetry.Backlog`."""
        return self._look(lambda db: sql.oldest(db, self._now()))

    async def ping(self) -> None:
        """See `ports_telemetry.Pinging`: the file can be read."""
        await self.oldest()

    def _bury(self, db: sqlite3.Connection, queue: str, now: int) -> None:
        source = sql.source_of(queue)
        count = sql.bury(db, source, now)
        if count:
            dead = source + DEAD_LETTER_SUFFIX
            self._arrived[dead] = self._arrived.get(dead, 0) + count

    async def _bury_now(self, queue: str) -> None:
        await self._submit(lambda db: self._bury(db, queue, self._now()))

    # --- waiting ----------------------------------------------------------------------------------

    async def _wait(self, queue: str, longest: float) -> None:
        """Until something may have arrived, a message is due, a lock ends, or `longest` seconds."""
        at = self._look(lambda db: sql.next_at(db, queue))
        if at is not None:
            longest = min(longest, max(0.001, (at - self._now()) / 1000))
        if self._poll is None:
            self._poll = self._loop.call_later(POLL_S, self._look_around)
        await self._lines.wait(queue, longest)

    def _look_around(self) -> None:
        """Every `POLL_S` while anybody waits: did others write, is the file still there?"""
        self._poll = None
        if self._closed or not self._lines.anybody():
            return
        self._poll = self._loop.call_later(POLL_S, self._look_around)
        with contextlib.suppress(sqlite3.Error, OSError):  # the receivers will meet it themselves
            db = self._file.connection()
            ((version,),) = db.execute("PRAGMA data_version").fetchall()
            if db is self._last_db and version == self._version:
                return
            self._last_db, self._version = db, version
        self._lines.wake_all()

    # --- groups -----------------------------------------------------------------------------------

    def _known(self, queue: str) -> None:
        if queue not in self._lines:
            raise QueueNotFound(f"no queue {queue!r:.80}")

    def _submit(self, work: Callable[[sqlite3.Connection], Any]) -> asyncio.Future[Any]:
        if self._closed:
            raise TransportError("the broker is closed")
        return self._writer.submit(work)

    def _look(self, read: Callable[[sqlite3.Connection], Any]) -> Any:
        if self._closed:
            raise TransportError("the broker is closed")
        try:
            return read(self._file.connection())
        except (sqlite3.Error, OSError) as error:
            raise self._file.failed(error) from error

    def _ending(self, db: sqlite3.Connection) -> None:
        self._unforgotten += sum(self._arrived.values())
        if self._unforgotten >= FORGET_EVERY:
            # Twice as many as came, so that the table shrinks after a burst.
            sql.forget(db, self._now(), 2 * self._unforgotten)
            self._unforgotten = 0

    def _ended(self) -> None:
        for queue, count in self._arrived.items():
            self._lines.wake(queue, count)


def _untouched(work: Callable[[], Any]) -> Any:
    """A settlement that is refused has written nothing."""
    try:
        return work()
    except TransportError as error:
        raise Untouched(error) from None
