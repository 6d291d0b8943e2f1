"""A document store in memory that remembers every version of every document.

It passes the same contract suite as the real adapters (`test_contract.py`), is some ten times
quicker than SQLite, can answer as a replica did a while ago, and shows every commit to observers
before anybody else sees it, which is where most invariants are checked.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from orchestrator.adapters.document_rules import (
    check_partition,
    container_spec,
    encode_batch,
    is_storable_id,
)
from orchestrator.adapters.local.sqlite_query import compile_count, compile_query
from orchestrator.domain.topology import CONTAINERS
from orchestrator.ports import (
    BadCursor,
    ChangePage,
    Conflict,
    Create,
    Delete,
    Document,
    NotFound,
    Operation,
    Partition,
    PreconditionFailed,
    Query,
    Replace,
    StoreError,
    Unavailable,
    Upsert,
)
from tests.simulation.queries import matches, rank

Key = tuple[Partition, str]
_NOTHING: dict[str, Any] = {}


@dataclass(slots=True)
class Version:
    """One state of a document. `raw` None: deleted."""

    lsn: int
    raw: bytes | None
    fields: dict[str, Any]  # top-level scalars, for queries
    expires_at: int | None
    body: dict[str, Any] | None = None  # for who looks and changes nothing; parsed when first asked

    def alive(self, now: int) -> bool:
        """Whether a reader sees it."""
        return self.raw is not None and (self.expires_at is None or self.expires_at > now)


@dataclass(frozen=True, slots=True)
class Commit:
    """What a transaction changed: (id, body before, body after); None: not there."""

    lsn: int
    container: str
    partition: Partition
    changes: list[tuple[str, dict[str, Any] | None, dict[str, Any] | None]]


class MemoryStore:
    """`DocumentStore`; see the module. `lsn` of a read: as of that commit."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._history: dict[str, dict[Partition, dict[str, list[Version]]]] = {
            name: {} for name in CONTAINERS
        }
        self._latest: dict[str, dict[Key, Version]] = {name: {} for name in CONTAINERS}
        """In the order of the commits: a reader of changes looks at what is new to it only."""
        self._swept: dict[str, dict[Key, None]] = {name: {} for name in CONTAINERS}
        self.lsn = 0
        self._bodies: dict[tuple[str, Partition | None], tuple[int, dict[Key, Any]]] = {}
        self._commit_times: list[float] = []
        self._commit_lsns: list[int] = []
        self.observers: list[Callable[[Commit], None]] = []
        self.closed = False

    def lsn_at(self, time: float) -> int:
        """The last commit at or before `time` (epoch ms)."""
        at = bisect_right(self._commit_times, time)
        return self._commit_lsns[at - 1] if at else 0

    # --- reads ------------------------------------------------------------------------------------

    def _find(self, container: str, key: Key, lsn: int | None) -> Version | None:
        versions = self._history[container].get(key[0], _NOTHING).get(key[1])
        if not versions:
            return None
        found = versions[-1]
        if lsn is not None and found.lsn > lsn:
            at = bisect_right(versions, lsn, key=lambda version: version.lsn)
            if not at:
                return None
            found = versions[at - 1]
        return found if found.alive(self._now()) else None

    async def read(
        self, container: str, partition: Partition, id: str, *, lsn: int | None = None
    ) -> Document:
        """One document. Raises `NotFound`."""
        self._check(container, partition)
        found = self._find(container, (partition, id), lsn)
        if found is None or found.raw is None:
            raise NotFound(f"no {container} document {id!r:.80}")
        return Document(id, orjson.loads(found.raw), str(found.lsn))

    async def read_many(
        self, container: str, partition: Partition, ids: Sequence[str], *, lsn: int | None = None
    ) -> dict[str, Document]:
        """Those of `ids` that exist, by id."""
        self._check(container, partition)
        result: dict[str, Document] = {}
        for id in ids:
            found = self._find(container, (partition, id), lsn)
            if found is not None and found.raw is not None:
                result[id] = Document(id, orjson.loads(found.raw), str(found.lsn))
        return result

    async def query(
        self, container: str, query: Query, *, lsn: int | None = None
    ) -> list[Document]:
        """Documents that match; see `ports.Query`."""
        self._open()
        compile_query(container_spec(container), query, self._now())  # the same refusals
        field, rows = query.order_by, []
        for key in self._candidates(container, query, lsn):
            found = self._find(container, key, lsn)
            if found is None or not all(matches(found.fields, where) for where in query.where):
                continue
            value = found.fields.get(field)
            if type(value) not in (str, int, float):
                continue
            place = (key[1],) if field == "id" else (rank(value), key[1])
            rows.append((place, key[1], found))
        if query.after is not None:
            value, id = query.after
            after = (id,) if field == "id" else (rank(value), id)
            rows = [row for row in rows if (row[0] < after if query.descending else row[0] > after)]
        rows.sort(key=lambda row: row[0], reverse=query.descending)
        return [
            Document(id, orjson.loads(found.raw or b"null"), str(found.lsn))
            for _, id, found in rows[: query.limit]
        ]

    async def count(self, container: str, query: Query, *, lsn: int | None = None) -> int:
        """How many `query` would give."""
        compile_count(container_spec(container), query, self._now())  # the same refusals
        return len(await self.query(container, query, lsn=lsn))

    def _candidates(self, container: str, query: Query, lsn: int | None) -> list[Key]:
        """Keys that may match. What has a `sweepAt` now is kept apart: sweeps are most queries."""
        prefix = query.partition or ()
        if query.order_by == "sweepAt" and lsn is None:
            return [key for key in self._swept[container] if key[0][: len(prefix)] == prefix]
        return [
            (partition, id)
            for partition, documents in self._history[container].items()
            if partition[: len(prefix)] == prefix
            for id in documents
        ]

    async def changes(self, container: str, cursor: str | None, limit: int) -> ChangePage:
        """Documents changed since `cursor`."""
        self._open()
        container_spec(container)
        after = 0
        if cursor is not None:
            match = re.fullmatch(r"m\.([a-z]+)\.(0|[1-9][0-9]{0,17})", cursor, re.ASCII)
            if match is None or match[1] != container:
                raise BadCursor(f"not a cursor of {container} in this store")
            after = int(match[2])
        now = self._now()
        rows: list[tuple[int, str, Version]] = []
        for (_, id), version in reversed(self._latest[container].items()):
            if version.lsn <= after:
                break
            if version.alive(now):
                rows.append((version.lsn, id, version))
        rows = rows[::-1][:limit]
        if rows:
            after = rows[-1][0]
        return ChangePage(
            [Document(id, orjson.loads(row.raw or b"null"), str(lsn)) for lsn, id, row in rows],
            f"m.{container}.{after}",
        )

    # --- writes -----------------------------------------------------------------------------------

    async def create(self, container: str, partition: Partition, body: dict[str, Any]) -> str:
        """Store a new document. Raises `Conflict`."""
        return self._single(container, partition, Create(body))

    async def replace(
        self,
        container: str,
        partition: Partition,
        body: dict[str, Any],
        *,
        if_match: str | None = None,
    ) -> str:
        """Overwrite. Raises `NotFound`, `PreconditionFailed`."""
        return self._single(container, partition, Replace(body, if_match))

    async def upsert(self, container: str, partition: Partition, body: dict[str, Any]) -> str:
        """Create or overwrite."""
        return self._single(container, partition, Upsert(body))

    async def delete(
        self, container: str, partition: Partition, id: str, *, if_match: str | None = None
    ) -> None:
        """Remove. Raises `NotFound`, `PreconditionFailed`."""
        self._single(container, partition, Delete(id, if_match))

    async def batch(
        self, container: str, partition: Partition, operations: Sequence[Operation]
    ) -> list[str]:
        """All or nothing."""
        return self._apply(container, partition, operations)

    async def close(self) -> None:
        """Nothing is released; later calls raise `Unavailable`."""
        self.closed = True

    def _single(self, container: str, partition: Partition, operation: Operation) -> str:
        try:
            return self._apply(container, partition, [operation])[0]
        except StoreError as error:
            error.operation = None
            raise

    def _apply(
        self, container: str, partition: Partition, operations: Sequence[Operation]
    ) -> list[str]:
        self._check(container, partition)
        bodies = encode_batch(container_spec(container), partition, operations)
        history, now = self._history[container].setdefault(partition, {}), self._now()
        latest = self._latest[container]
        trial: dict[str, Version | None] = {}
        before: dict[str, Version | None] = {}
        etags: list[str] = []
        lsn = self.lsn
        for position, (operation, raw) in enumerate(zip(operations, bodies, strict=True)):
            id = operation.id if isinstance(operation, Delete) else operation.body["id"]
            old = trial[id] if id in trial else self._find(container, (partition, id), None)
            before.setdefault(id, old)
            _check_operation(operation, id, old, position)
            lsn += 1
            if isinstance(operation, Delete):
                trial[id] = None
                etags.append("")
            else:
                trial[id] = _version(lsn, operation.body, raw, now)
                etags.append(str(lsn))
        self.lsn = lsn
        self._commit_times.append(now)
        self._commit_lsns.append(lsn)
        for id, new in trial.items():
            version = new or Version(lsn, None, {}, None)
            history.setdefault(id, []).append(version)
            latest.pop((partition, id), None)
            latest[partition, id] = version
            if "sweepAt" in version.fields:
                self._swept[container][partition, id] = None
            else:
                self._swept[container].pop((partition, id), None)
        if self.observers:
            changes = [(id, _body(before[id]), _body(trial[id])) for id in trial]
            commit = Commit(lsn, container, partition, changes)
            for observer in self.observers:
                observer(commit)
        return etags

    def _open(self) -> None:
        if self.closed:
            raise Unavailable("the store is closed")

    def _check(self, container: str, partition: Partition) -> None:
        self._open()
        check_partition(container_spec(container), partition)

    # --- for the simulation -----------------------------------------------------------------------

    def bodies(self, container: str, partition: Partition | None = None) -> dict[Key, Any]:
        """Every document that is there now, by partition and id. To look at, not to change: who
        waits for silence asks again and again, and what has not changed is not parsed anew."""
        known = self._bodies.get((container, partition))
        if known is not None and known[0] == self.lsn:
            return known[1]
        everything = self._history[container]
        some = everything if partition is None else {partition: everything.get(partition, {})}
        found = {
            (owner, id): _body(versions[-1])
            for owner, documents in some.items()
            for id, versions in documents.items()
            if versions[-1].raw is not None
        }
        self._bodies[container, partition] = (self.lsn, found)
        return found

    def body(self, container: str, partition: Partition, id: str) -> dict[str, Any] | None:
        """One document as it is now."""
        return _body(self._find(container, (partition, id), None))


def _body(version: Version | None) -> dict[str, Any] | None:
    """To look at, not to change: parsed once, however often it is looked at."""
    if version is None or version.raw is None:
        return None
    if version.body is None:
        version.body = orjson.loads(version.raw)
    return version.body


def _version(lsn: int, body: dict[str, Any], raw: bytes, now: int) -> Version:
    fields = {name: value for name, value in body.items() if not isinstance(value, dict | list)}
    ttl = body.get("ttl")
    return Version(lsn, raw, fields, None if ttl is None else now + ttl * 1000)


def _check_operation(operation: Operation, id: str, old: Version | None, position: int) -> None:
    if isinstance(operation, Create):
        if old is not None:
            raise Conflict(f"{id!r} exists", operation=position)
    elif isinstance(operation, Replace | Delete):
        if old is None or not is_storable_id(id):
            raise NotFound(f"no document {id!r:.80}", operation=position)
        if operation.if_match not in (None, str(old.lsn)):
            raise PreconditionFailed(f"{id!r} was changed since it was read", operation=position)
