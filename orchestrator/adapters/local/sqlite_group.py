"""Group commit: all writes of one tick of the event loop share one transaction.

A sync per write would cap the engine at the disk's sync rate; a writer thread would fight the
event loop for the interpreter lock at every statement. So statements run on the loop's thread, and
only COMMIT may leave it:

- where syncs are quick (measured as we go), COMMIT runs inline too. Handing it to a thread means
  waiting twice for the interpreter lock, up to 5 ms each while the loop is busy;
- where the disk is slow, COMMIT runs in a thread, and what arrives meanwhile is the next group.

A future resolves only after the COMMIT of its group. Work that fails after it has already written
spoils nobody: the group is rolled back and repeated, each piece under a savepoint. That is rare, so
the usual path pays for no savepoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.adapters.local.sqlite_common import is_busy

Work = Callable[[sqlite3.Connection], Any]
Outcome = tuple["asyncio.Future[Any]", Any, Exception | None]  # who waits, result, or error

MAX_GROUP: Final = 128  # pieces of work; bounds how long the loop and other processes wait
LOCK_PATIENCE_S: Final = 30.0  # another process may hold the write lock this long
INLINE_COMMIT_S: Final = 0.002  # commits that take less on average run on the loop's thread
PROBE_EVERY: Final = 32  # in thread mode, one commit in so many is tried inline


class Untouched(Exception):
    """Raised by work that failed before it wrote anything; `error` goes to the caller."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What the owner of the file adds to each group."""

    connection: Callable[[], sqlite3.Connection]  # the write connection, reopened if need be
    failed: Callable[[Exception], Exception]  # a database error as a fresh error of our ports
    begun: Callable[[sqlite3.Connection], None]  # right after BEGIN
    ending: Callable[[sqlite3.Connection], None]  # right before COMMIT
    ended: Callable[[], None]  # after a successful COMMIT, on the loop's thread


class GroupWriter:
    """Collects work, runs it in grouped transactions, resolves the futures after COMMIT."""

    def __init__(self, hooks: Hooks, *, inline_commit_s: float = INLINE_COMMIT_S) -> None:
        """`inline_commit_s`: 0 sends every COMMIT to the thread."""
        self._hooks = hooks
        self._inline_limit = inline_commit_s
        self._loop = asyncio.get_running_loop()
        self._pending: deque[tuple[Work, asyncio.Future[Any]]] = deque()
        self._scheduled = False  # a flush is on its way, at once or by timer
        self._careful = False  # the next group runs under savepoints
        self._committing = False
        self._lock_since: float | None = None  # waiting for another process since
        self._average = 0.0  # seconds per inline COMMIT, smoothed
        self._commits = 0
        self._executor: ThreadPoolExecutor | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def committing(self) -> bool:
        """Whether a COMMIT is in the thread: the write connection is not ours just now."""
        return self._committing

    def submit(self, work: Work) -> asyncio.Future[Any]:
        """Run `work` in the next group. The future has its result once it is committed.

        `work` raises `Untouched` if it failed before writing; anything else undoes its writes.
        A future that is cancelled before its group starts is skipped.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        self._pending.append((work, future))
        if not self._scheduled and not self._committing:
            self._scheduled = True
            self._idle.clear()
            self._loop.call_soon(self._flush)
        return future

    async def drain(self) -> None:
        """Wait until everything submitted so far is committed or failed; end the thread."""
        await self._idle.wait()
        if self._executor is not None:
            self._executor.shutdown(wait=True)
            self._executor = None

    def _flush(self) -> None:
        self._scheduled = False
        if not self._pending:
            self._idle.set()
            return
        try:
            db = self._hooks.connection()
            db.execute("BEGIN IMMEDIATE")
        except Exception as error:  # whatever it is, nobody may wait for ever
            if isinstance(error, sqlite3.Error) and is_busy(error) and self._may_wait():
                return
            self._lock_since = None
            self._resolve(
                [(future, None, self._hooks.failed(error)) for _, future in self._pending]
            )
            self._pending.clear()
            self._idle.set()
            return
        self._lock_since = None
        group = [self._pending.popleft() for _ in range(min(MAX_GROUP, len(self._pending)))]
        try:
            self._hooks.begun(db)
            outcomes = self._run_carefully(db, group) if self._careful else _run(db, group)
            if outcomes is None:  # something must be undone: the same group again, with savepoints
                _rollback(db)
                self._pending.extendleft(reversed(group))
                self._careful = True
                self._schedule()
                return
            self._careful = False
            self._hooks.ending(db)
        except Exception as error:
            _rollback(db)
            self._careful = False
            self._finish([(future, None, None) for _, future in group], error)
            return
        self._commit(db, outcomes)

    def _may_wait(self) -> bool:
        """Try again soon for the lock of another process. A timer instead of a busy handler: the
        handler would block the loop, or need a thread, and sleeps up to 100 ms at a time."""
        now = time.monotonic()
        if self._lock_since is None:
            self._lock_since = now
        waited = now - self._lock_since
        if waited > LOCK_PATIENCE_S:
            return False
        self._scheduled = True
        longest = min(0.010, 0.001 + waited / 10)
        self._loop.call_later(longest * (0.5 + random.random() / 2), self._flush)
        return True

    def _run_carefully(
        self, db: sqlite3.Connection, group: list[tuple[Work, asyncio.Future[Any]]]
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for work, future in group:
            if future.cancelled():
                continue
            db.execute("SAVEPOINT piece")
            try:
                outcomes.append((future, work(db), None))
            except Exception as error:
                db.execute("ROLLBACK TO piece")  # raises if the transaction itself is gone
                if isinstance(error, Untouched):
                    error = error.error
                elif isinstance(error, sqlite3.Error):
                    error = self._hooks.failed(error)
                outcomes.append((future, None, error))
            db.execute("RELEASE piece")
        return outcomes

    def _commit(self, db: sqlite3.Connection, outcomes: list[Outcome]) -> None:
        self._commits += 1
        if self._average < self._inline_limit or (
            self._inline_limit > 0 and self._commits % PROBE_EVERY == 0
        ):
            started = time.perf_counter()
            error = _commit(db)
            # One hiccup must not count for ever, hence the bound.
            took = min(time.perf_counter() - started, 4 * self._inline_limit)
            self._average += (took - self._average) / 5
            self._finish(outcomes, error)
            return
        self._committing = True
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="weft-commit")

        def in_thread() -> None:
            error = _commit(db)
            with contextlib.suppress(RuntimeError):  # the loop was closed under us: nobody waits
                self._loop.call_soon_threadsafe(self._finish, outcomes, error)

        self._executor.submit(in_thread)

    def _finish(self, outcomes: list[Outcome], error: Exception | None) -> None:
        self._committing = False
        if error is None:
            self._resolve(outcomes)
            self._hooks.ended()
        else:
            self._resolve([(future, None, self._hooks.failed(error)) for future, _, _ in outcomes])
        if self._pending:
            self._schedule()
        else:
            self._idle.set()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    @staticmethod
    def _resolve(outcomes: list[Outcome]) -> None:
        for future, result, error in outcomes:
            if future.done():  # its caller was cancelled meanwhile
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


def _run(
    db: sqlite3.Connection, group: list[tuple[Work, asyncio.Future[Any]]]
) -> list[Outcome] | None:
    """The quick way; None if something failed that has to be undone."""
    outcomes: list[Outcome] = []
    for work, future in group:
        if future.cancelled():
            continue
        try:
            outcomes.append((future, work(db), None))
        except Untouched as untouched:
            outcomes.append((future, None, untouched.error))
        except Exception:  # whatever it is, the careful repetition finds whose it is
            return None
    return outcomes


def _commit(db: sqlite3.Connection) -> sqlite3.Error | None:
    try:
        db.execute("COMMIT")
    except sqlite3.Error as error:
        _rollback(db)
        return error
    return None


def _rollback(db: sqlite3.Connection) -> None:
    """Leave no transaction open, whatever state an error left it in."""
    if db.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
