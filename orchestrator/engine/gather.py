"""Put a map's results together, in the order of its items, as one JSON list.

Run by a worker like any attempt (lease, retry, limits), because it may read many megabytes. The
texts are joined as they are, so numbers and strings come through untouched.
"""

from __future__ import annotations

from orchestrator.domain.payload import Payload
from orchestrator.domain.status import TaskStatus
from orchestrator.domain.topology import EXECUTIONS, MAX_PAYLOAD_BYTES
from orchestrator.engine import claimcheck, documents
from orchestrator.engine.claimcheck import PayloadTooLarge
from orchestrator.engine.core import Engine
from orchestrator.engine.resilience import patiently
from orchestrator.ports import Query, Where

PAGE = 200


async def gather(
    engine: Engine, partition: tuple[str, str], task: str, count: int, failed: int = 0
) -> bytes:
    """JSON text of the list of all `count` item outputs, null for the `failed` ones. Raises
    `PayloadTooLarge` as soon as that is certain, `ItemMissing` if a result is not there."""
    first = documents.task_id(task) + ":"
    end = documents.task_id(task) + ";"  # the character after the colon
    texts: dict[int, bytes] = {}
    size, after, missed = 2, None, 0
    while True:
        query = Query(
            partition=partition,
            where=(Where("id", ">=", first), Where("id", "<", end), Where("type", "=", "task")),
            after=after,
            limit=PAGE,
        )
        found = await patiently(engine, engine.store.query, EXECUTIONS, query)
        for doc in found:
            output = doc.body.get("output")
            if output is not None:
                text = await claimcheck.read_text(engine, Payload.from_doc(output))
            elif doc.body["status"] == TaskStatus.DEAD_LETTERED.value and missed < failed:
                text, missed = b"null", missed + 1
            else:
                raise ItemMissing(f"item {doc.body.get('item')} has no result")
            size += len(text) + 1
            if size - 1 > MAX_PAYLOAD_BYTES:
                raise PayloadTooLarge(size - 1)
            texts[doc.body["item"]] = text
        if len(found) < PAGE:
            break
        after = (found[-1].id, found[-1].id)
    if missed != failed:
        raise ItemMissing("of a failed item, an older state is to be seen")
    if len(texts) != count:
        raise ItemMissing(f"{count - len(texts)} of {count} results are not there")
    return b"[" + b",".join(texts[item] for item in range(count)) + b"]"


class ItemMissing(Exception):
    """A replica lags behind, or a document was removed: the attempt fails and is retried."""
