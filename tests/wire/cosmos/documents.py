"""Documents of one container: single writes, batches, ETags, time to live.

As documented: a write gives a new `_etag` and the container's next LSN; `If-Match` compares with
the newest version (412); an id is unique within its logical partition (409); a transactional batch
is applied whole or not at all, in one logical partition, with 424 for the operations that were not
to blame; an item may have 2 MB, a batch 100 operations and 2 MB; ids hold none of `/ \\ ? #` and at
most 1,023 bytes; `ttl` counts from the last write, if the container has a default time to live.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from tests.wire.cosmos import charges
from tests.wire.cosmos.wire import Refused

MAX_BYTES = 2 * 1024 * 1024
MAX_OPERATIONS = 100
MAX_NESTING = 128

Key = tuple[tuple[Any, ...], str]


@dataclass(frozen=True, slots=True)
class Item:
    """A stored version of a document."""

    raw: bytes  # the client's JSON
    body: dict[str, Any]
    system: bytes  # what the service adds
    etag: str
    place: tuple[int, int]  # LSN, and position within the transaction
    effective_key: str
    expires_at: int | None
    terms: int

    def to_json(self) -> bytes:
        """The document as it is returned."""
        return self.raw[:-1] + b"," + self.system + b"}"


class Documents:
    """The documents of one container, and the order in which they last changed."""

    def __init__(
        self,
        *,
        paths: list[str],
        rid: str,
        default_ttl: int | None,
        clock: Callable[[], int],
        effective_key: Callable[[list[Any]], str],
        terms: Callable[[dict[str, Any]], int],
    ) -> None:
        self._paths, self._rid, self._default_ttl = paths, rid, default_ttl
        self._clock, self._effective_key, self._terms = clock, effective_key, terms
        self.items: dict[Key, Item] = {}
        self.previous: dict[Key, Item] = {}  # for stale reads
        self.lsn = 0

    def read(self, partition: tuple[Any, ...], id: str) -> Item:
        """Raises 404."""
        item = self._alive(self.items.get((partition, id)))
        if item is None:
            raise Refused(404, f"Entity with the specified id does not exist: {id}")
        return item

    def living(self) -> list[tuple[Key, Item]]:
        """All that has not expired."""
        now = self._clock()
        return [
            (key, item)
            for key, item in self.items.items()
            if item.expires_at is None or item.expires_at > now
        ]

    def write(
        self, partition: tuple[Any, ...], operation: dict[str, Any]
    ) -> tuple[int, Item | None, float]:
        """One operation in a transaction of its own: status, new version, charge."""
        self._check_partition(partition)
        overlay: dict[Key, Item | None] = {}
        result = self._apply(overlay, partition, operation, (self.lsn + 1, 0))
        self._commit(overlay)
        return result

    def batch(
        self,
        partition: tuple[Any, ...],
        operations: list[dict[str, Any]],
        failing: dict[int, Refused],
    ) -> list[tuple[int, Item | None, float]]:
        """Statuses and versions of all operations, applied only if none failed. `failing`: what to
        answer instead of executing an operation."""
        self._check_partition(partition)
        if not operations or len(operations) > MAX_OPERATIONS:
            raise Refused(400, f"a batch of {len(operations)} operations, 1 to {MAX_OPERATIONS}")
        overlay: dict[Key, Item | None] = {}
        results: list[tuple[int, Item | None, float]] = []
        for position, operation in enumerate(operations):
            try:
                if position in failing:
                    raise failing[position]
                results.append(self._apply(overlay, partition, operation, (self.lsn + 1, position)))
            except Refused as error:
                results = [(424, None, 0.0)] * len(operations)
                results[position] = (error.status, None, error.charge)
                return results
        self._commit(overlay)
        return results

    def _apply(
        self,
        overlay: dict[Key, Item | None],
        partition: tuple[Any, ...],
        operation: dict[str, Any],
        place: tuple[int, int],
    ) -> tuple[int, Item | None, float]:
        kind = operation["operationType"]
        body = operation.get("resourceBody")
        id = body.get("id") if isinstance(body, dict) else operation.get("id")
        self._check_id(id)
        key = (partition, str(id))
        current = overlay[key] if key in overlay else self._alive(self.items.get(key))
        if kind == "Create" and current is not None:
            raise Refused(409, "Entity with the specified id already exists in the system.")
        if kind in ("Replace", "Delete"):
            if operation.get("id") != id:
                raise Refused(400, "the id in the body is not the one in the address")
            if current is None:
                raise Refused(404, "Entity with the specified id does not exist in the system.")
            wanted = operation.get("ifMatch")
            if wanted is not None and wanted not in ("*", current.etag):
                raise Refused(412, "One of the specified pre-condition is not met")
        elif kind not in ("Create", "Upsert"):
            raise Refused(400, f"not an operation of ours: {kind}")
        if kind == "Delete":
            overlay[key] = None
            return 204, None, charges.delete(current.terms if current else 0)
        item = self._version(partition, dict(body or {}), place)
        overlay[key] = item
        if current is None:
            return 201, item, charges.create(len(item.raw), item.terms)
        return 200, item, charges.replace(len(item.raw), item.terms)

    def _version(
        self, partition: tuple[Any, ...], body: dict[str, Any], place: tuple[int, int]
    ) -> Item:
        if tuple(body.get(name) for name in self._paths) != partition:
            raise Refused(
                400,
                "PartitionKey extracted from document doesn't match the one in the header",
                sub_status=1001,
            )
        raw = orjson.dumps(body)
        if len(raw) > MAX_BYTES:
            raise Refused(413, f"Request size is too large: {len(raw)} bytes")
        if _depth(body) > MAX_NESTING:
            raise Refused(400, "The document is nested too deeply")
        now = self._clock()
        ttl = body.get("ttl", self._default_ttl) if self._default_ttl is not None else None
        etag = f'"{place[1]:08x}-0000-0000-0000-{place[0]:012x}"'
        system = orjson.dumps(
            {
                "_rid": f"{self._rid}{place[0]}-{place[1]}",
                "_self": f"dbs/d/colls/c/docs/{place[0]}-{place[1]}/",
                "_etag": etag,
                "_attachments": "attachments/",
                "_ts": now // 1000,
            }
        )[1:-1]
        return Item(
            raw=raw,
            body=body,
            system=system,
            etag=etag,
            place=place,
            effective_key=self._effective_key(list(partition)),
            expires_at=now + int(ttl) * 1000 if ttl is not None and int(ttl) > 0 else None,
            terms=self._terms(body),
        )

    def _commit(self, overlay: dict[Key, Item | None]) -> None:
        self.lsn += 1
        for key, item in overlay.items():
            old = self.items.pop(key, None)
            if old is not None:
                self.previous[key] = old
            if item is not None:
                self.items[key] = item  # to the end: the dict is in order of change

    def _alive(self, item: Item | None) -> Item | None:
        if item is None or item.expires_at is None or item.expires_at > self._clock():
            return item
        return None

    def _check_partition(self, partition: tuple[Any, ...]) -> None:
        if len(partition) != len(self._paths):
            raise Refused(400, "a write needs the whole partition key", sub_status=1001)

    @staticmethod
    def _check_id(id: Any) -> None:
        if not isinstance(id, str) or not id or len(id.encode()) > 1023:
            raise Refused(400, "id: 1 to 1,023 bytes of text")
        if set(id) & set("/\\?#"):
            raise Refused(400, f"id: characters that are not allowed: {id!r}")


def _depth(value: Any) -> int:
    levels, at = 0, [value]
    while at:
        at = [
            inner
            for one in at
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        levels += 1
    return levels
