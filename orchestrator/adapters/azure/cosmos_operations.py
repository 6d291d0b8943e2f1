"""Keys, ETags and batch operations in the shapes that the SDK takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import orjson

from orchestrator.domain.topology import ContainerSpec
from orchestrator.ports import Create, Delete, Operation, Partition, Replace, Upsert

_ETAG: Final = re.compile(r'"[!#-~]+"')
_NEVER: Final = '"00000000-0000-0000-0000-000000000000"'


def key_of(spec: ContainerSpec, partition: Partition) -> Any:
    """The SDK's partition key: a list for a hierarchical key, else the value."""
    return list(partition) if len(spec.partition) > 1 else partition[0]


def sendable_etag(etag: str) -> str:
    """The ETag, or one that no document has if it cannot be one of the service's: `*` would match
    anything, and text with line ends or beyond ASCII does not go into a header."""
    return etag if _ETAG.fullmatch(etag) else _NEVER


def batch_tuples(operations: Sequence[Operation], bodies: Sequence[bytes]) -> list[Any]:
    """Operations of `execute_item_batch`, all objects fresh, for one try only."""
    return [_tuple(each, raw) for each, raw in zip(operations, bodies, strict=True)]


def _tuple(each: Operation, raw: bytes) -> Any:
    match each:
        case Create():
            return "create", (orjson.loads(raw),)
        case Upsert():
            return "upsert", (orjson.loads(raw),)
        case Replace():
            body = orjson.loads(raw)
            return "replace", (body["id"], body), _options(each.if_match)
        case Delete():
            return "delete", (each.id,), _options(each.if_match)


def _options(if_match: str | None) -> dict[str, str]:
    return {} if if_match is None else {"if_match_etag": sendable_etag(if_match)}
