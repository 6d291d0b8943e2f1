"""Point reads, single writes and transactional batches, from a request to an answer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson

from tests.wire.cosmos import charges
from tests.wire.cosmos.documents import MAX_BYTES
from tests.wire.cosmos.requests import Request
from tests.wire.cosmos.state import Container
from tests.wire.cosmos.wire import Answer, Refused

_TYPES = {"create": "Create", "upsert": "Upsert", "replace": "Replace", "delete": "Delete"}


def _partition(request: Request) -> tuple[Any, ...]:
    key = request.headers.get("x-ms-documentdb-partitionkey")
    if key is None:
        raise Refused(400, "PartitionKey value must be supplied for this operation.")
    return tuple(orjson.loads(key))


def _minimal(request: Request) -> bool:
    return request.headers.get("prefer") == "return=minimal"


def read(container: Container, request: Request, *, stale: bool) -> Answer:
    """A point read. `stale`: as a replica would answer that missed the last write."""
    partition, id = _partition(request), request.parts[5]
    item = container.documents.read(partition, id)
    if stale:
        item = container.documents.previous.get((partition, id), item)
    return Answer(200, item.to_json(), charges.point_read(len(item.raw)), {"etag": item.etag})


def single(container: Container, request: Request, kind: str) -> Answer:
    """Create, upsert, replace or delete."""
    if kind not in _TYPES:
        raise Refused(501, f"{request.method} {request.parts}: not a request of our adapter")
    if len(request.body) > MAX_BYTES + 1024:
        raise Refused(413, "Request size is too large")
    operation: dict[str, Any] = {"operationType": _TYPES[kind]}
    if request.body:
        operation["resourceBody"] = orjson.loads(request.body)
    if len(request.parts) == 6:
        operation["id"] = request.parts[5]
    if "if-match" in request.headers:
        operation["ifMatch"] = request.headers["if-match"]
    status, item, charge = container.documents.write(_partition(request), operation)
    if item is None:
        return Answer(status, b"", charge)
    body = b"" if _minimal(request) else item.to_json()
    return Answer(status, body, charge, {"etag": item.etag})


def batch(
    container: Container, request: Request, failing: dict[Any, Refused], counts: Counter[str]
) -> Answer:
    """A transactional batch: 200 with every operation's answer, or 207 and nothing changed."""
    if len(request.body) > MAX_BYTES:
        raise Refused(413, "Request size is too large")
    if request.headers.get("x-ms-cosmos-batch-atomic", "").lower() != "true":
        raise Refused(501, "only atomic batches")
    operations = orjson.loads(request.body)
    results = container.documents.batch(_partition(request), operations, failing)
    answers: list[dict[str, Any]] = []
    for position, (status, item, charge) in enumerate(results):
        one: dict[str, Any] = {"statusCode": status, "requestCharge": charge}
        if item is not None:
            one["eTag"] = item.etag
            if not _minimal(request):
                one["resourceBody"] = orjson.Fragment(item.to_json())
        if position in failing:
            one["subStatusCode"] = failing[position].sub_status
            if "x-ms-retry-after-ms" in failing[position].headers:
                one["retryAfterMilliseconds"] = int(
                    failing[position].headers["x-ms-retry-after-ms"]
                )
        answers.append(one)
    counts.update(f"batch.{one['operationType'].lower()}" for one in operations)
    charge = round(sum(one[2] for one in results), 2)
    failed = any(one[0] >= 400 for one in results)
    return Answer(207 if failed else 200, orjson.dumps(answers), charge)
