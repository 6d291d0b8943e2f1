"""What a document store accepts, checked before anything is written, alike for every adapter.

Without one shared rule a body that passes on SQLite fails in Cosmos, deep in a run (ids with a
slash, NaN, 200 levels). Text rules: U+0000 inside a body is kept; lone surrogates, which UTF-8
cannot hold, are refused (the engine replaces them at its edge); ids and partition values hold
neither.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

import orjson

from orchestrator.domain.topology import (
    CONTAINERS,
    FORBIDDEN_ID_CHARACTERS,
    MAX_BATCH_BYTES,
    MAX_BATCH_OPERATIONS,
    MAX_ID_BYTES,
    MAX_ITEM_BYTES,
    MAX_NESTING,
    ContainerSpec,
)
from orchestrator.ports import (
    BadDocument,
    Create,
    Delete,
    Operation,
    Partition,
    Replace,
    TooLarge,
    Upsert,
)

MAX_PARTITION_BYTES: Final = 2048  # Cosmos: all values of a partition key together
MAX_INT: Final = 2**63 - 1

_BAD_IN_ID: Final = re.compile(f"[{re.escape(FORBIDDEN_ID_CHARACTERS)}\x00\t\r\n]| \\Z")
"""Beyond what the service forbids: the Python SDK also refuses tabs, line ends and a last space."""

_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


def container_spec(name: str) -> ContainerSpec:
    """The container's definition. Raises `BadDocument` for a name that topology does not have."""
    spec = CONTAINERS.get(name)
    if spec is None:
        raise BadDocument(f"no container {name!r}; expected one of {', '.join(CONTAINERS)}")
    return spec


def check_partition(spec: ContainerSpec, partition: Partition, *, prefix: bool = False) -> None:
    """Raises `BadDocument` unless `partition` is a full key of the container (or a prefix)."""
    wanted = len(spec.partition)
    if len(partition) > wanted or (len(partition) < wanted and not prefix):
        raise BadDocument(f"{spec.name} is partitioned by {spec.partition}, got {partition!r}")
    size = 0
    for value in partition:
        if not isinstance(value, str) or "\0" in value:
            raise BadDocument(f"partition values are text without U+0000, got {value!r}")
        try:
            size += len(value.encode())
        except UnicodeEncodeError:
            raise BadDocument(f"partition value {value!r} is not valid Unicode") from None
    if size > MAX_PARTITION_BYTES:
        raise BadDocument(f"partition key of {size} bytes, at most {MAX_PARTITION_BYTES}")


def is_storable_id(id: object) -> bool:
    """Whether a document of this id could exist at all."""
    if not isinstance(id, str) or not id or _BAD_IN_ID.search(id):
        return False
    if id.isascii():
        return len(id) <= MAX_ID_BYTES
    try:
        return len(id.encode()) <= MAX_ID_BYTES
    except UnicodeEncodeError:
        return False


def encode_body(spec: ContainerSpec, partition: Partition, body: dict[str, Any]) -> bytes:
    """The body as JSON, after all checks. Raises `BadDocument`, `TooLarge`."""
    id = body.get("id")
    if not is_storable_id(id):
        raise BadDocument(
            f"id must be text of 1 to {MAX_ID_BYTES} bytes without "
            f"{' '.join(FORBIDDEN_ID_CHARACTERS)}, U+0000, tabs, line ends or a last space, "
            f"got {id!r:.80}"
        )
    for name, value in zip(spec.partition, partition, strict=True):
        if body.get(name) != value:
            raise BadDocument(
                f"{name} must be {value!r} as in the partition, got {body.get(name)!r:.80}"
            )
    ttl = body.get("ttl")
    if ttl is not None and (type(ttl) is not int or not 0 < ttl <= 2**31 - 1):
        raise BadDocument(f"ttl must be a positive number of seconds, got {ttl!r:.80}")
    try:
        _check_json(body, 1)
    except _NotJson as fault:
        path = ".".join(["$", *map(str, reversed(fault.keys))])
        raise BadDocument(f"{fault}, at {path:.200}") from None
    try:
        raw = orjson.dumps(body, option=_OPTIONS)
    except (TypeError, ValueError) as error:  # orjson.JSONEncodeError is a TypeError
        raise BadDocument(f"{id}: not JSON: {error}") from error
    if len(raw) > MAX_ITEM_BYTES:
        raise TooLarge(f"{id}: {len(raw)} bytes, at most {MAX_ITEM_BYTES}")
    return raw


_WITH_BODY: Final = (Create, Replace, Upsert)  # a tuple: `|` would make a new type each time


def encode_batch(
    spec: ContainerSpec, partition: Partition, operations: Sequence[Operation]
) -> list[bytes]:
    """The bodies of a batch as JSON (b"" for deletes), after all checks.

    Raises `BadDocument`, `TooLarge` with `operation` set where one operation is to blame.
    """
    if not operations:
        raise BadDocument("a batch needs at least one operation")
    if len(operations) > MAX_BATCH_OPERATIONS:
        raise TooLarge(f"{len(operations)} operations in a batch, at most {MAX_BATCH_OPERATIONS}")
    bodies: list[bytes] = []
    total = 0
    for position, operation in enumerate(operations):
        if isinstance(operation, Delete):
            bodies.append(b"")
            continue
        if not isinstance(operation, _WITH_BODY):
            raise BadDocument(f"not a batch operation: {operation!r:.80}", operation=position)
        try:
            raw = encode_body(spec, partition, operation.body)
        except (BadDocument, TooLarge) as error:
            error.operation = position
            raise
        total += len(raw)
        bodies.append(raw)
    if total > MAX_BATCH_BYTES:
        raise TooLarge(f"a batch of {total} bytes, at most {MAX_BATCH_BYTES}")
    return bodies


def _check_json(value: Any, depth: int) -> None:
    """Refuse what the encoder would let pass silently: NaN (it writes null), integers that CEL and
    SQLite cannot hold, nesting that Cosmos refuses, UUIDs and other objects that become text.

    It runs for every value that is stored, so the place of a fault is only put together (inside
    out, while the error passes) when there is one. Raises `_NotJson`.
    """
    if depth > MAX_NESTING:
        raise _NotJson(f"nested deeper than {MAX_NESTING} levels")
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        kind = type(item)
        if kind in _PLAIN:
            continue
        if kind is int:
            if not -MAX_INT - 1 <= item <= MAX_INT:
                raise _NotJson("integer beyond 64 bits", key)
        elif kind is float:
            if not -math.inf < item < math.inf:  # also false for NaN
                raise _NotJson(f"{item} is not JSON", key)
        elif isinstance(item, _NESTED):
            try:
                _check_json(item, depth + 1)
            except _NotJson as fault:
                fault.keys.append(key)
                raise
        elif not isinstance(item, _WRITTEN):  # enums of text or int are written as their value
            raise _NotJson(f"{kind.__name__} is not JSON", key)


_PLAIN: Final = frozenset({str, bool, type(None)})
_NESTED: Final = (dict, list, tuple)
_WRITTEN: Final = (str, int)


class _NotJson(Exception):
    """`keys`: where, innermost first."""

    def __init__(self, reason: str, *keys: object) -> None:
        super().__init__(reason)
        self.keys = list(keys)
