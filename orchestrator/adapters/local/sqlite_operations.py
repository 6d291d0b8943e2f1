"""One operation of a batch, prepared outside the transaction and applied inside it.

Everything is copied out of the bodies at once: the caller may change them while the group waits.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from orchestrator.adapters.document_rules import is_storable_id
from orchestrator.adapters.local.sqlite_common import primary_code
from orchestrator.adapters.local.sqlite_schema import Statements
from orchestrator.ports import (
    Conflict,
    Create,
    Delete,
    NotFound,
    Operation,
    PreconditionFailed,
    Replace,
    StoreError,
    TooLarge,
    Unavailable,
    Upsert,
)

Step = tuple[type[Operation], str, tuple[Any, ...], int | None]
"""Kind, id, the row without its lsn, the lsn to match."""


def prepare(pk: str, operation: Operation, raw: bytes, now: int) -> Step:
    """`raw`: the body as checked JSON. `ttl` counts from `now`."""
    if isinstance(operation, Delete):
        return Delete, operation.id, (), _match(operation.if_match)
    match = _match(operation.if_match) if isinstance(operation, Replace) else None
    return type(operation), operation.body["id"], _row(pk, operation.body, raw, now), match


def apply(
    db: sqlite3.Connection, texts: Statements, pk: str, step: Step, lsn: int, now: int
) -> str:
    """Run it as change number `lsn`; the etag. Raises the port's error without having written."""
    kind, id, row, match = step
    if kind is Create:
        if db.execute(texts.insert, (lsn, *row, now)).rowcount != 1:
            raise Conflict(f"{id!r} exists")
        return str(lsn)
    if kind is Upsert:
        db.execute(texts.upsert, (lsn, *row))
        return str(lsn)
    if kind is Replace:
        if match is None:
            done = db.execute(texts.update, (lsn, *row, now)).rowcount
        else:
            done = db.execute(texts.update_if, (lsn, *row, now, match)).rowcount
        if done == 1:
            return str(lsn)
    elif not is_storable_id(id):
        raise NotFound(f"no document {id!r:.80}")
    else:
        if match is None:
            done = db.execute(texts.delete, (pk, id, now)).rowcount
        else:
            done = db.execute(texts.delete_if, (pk, id, now, match)).rowcount
        if done == 1:
            return ""
    if db.execute(texts.read, (pk, id, now)).fetchall():
        raise PreconditionFailed(f"{id!r} was changed since it was read")
    raise NotFound(f"no document {id!r}")


def _row(pk: str, body: dict[str, Any], raw: bytes, now: int) -> tuple[Any, ...]:
    """In the order of the statements."""
    get = body.get
    ttl = get("ttl")
    return (
        _scalar(get("type")),
        _scalar(get("sweepAt")),
        _scalar(get("createdAt")),
        _scalar(get("tenantId")),
        None if ttl is None else now + ttl * 1000,
        raw.decode(),
        pk,
        body["id"],
    )


def _scalar(value: Any) -> str | int | float | None:
    """Text and numbers; anything else is not queried through a column."""
    if type(value) in _USUAL:
        return value
    return value if isinstance(value, _SCALAR) and not isinstance(value, bool) else None


_USUAL: Final = frozenset({str, int, float, type(None)})
_SCALAR: Final = (str, int, float)


def _match(etag: str | None) -> int | None:
    """The lsn to match; -1, which no document has, for a text that is no etag of ours."""
    if etag is None:
        return None
    return int(etag) if etag.isascii() and etag.isdigit() and len(etag) < 19 else -1


def unavailable(error: Exception) -> StoreError:
    """A database error as a port error, a fresh one for every caller."""
    if isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_TOOBIG:
        failure: StoreError = TooLarge(str(error))
    else:
        failure = Unavailable(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
