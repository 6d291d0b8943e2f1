"""The stored form of tenants' slots, in container `control` (each document is a partition).

    id              type    holds
    slots:{hash}    slots   who holds how many of one tenant's slots until when, guarded by its ETag

There is a document only for a tenant with a limit that ran something lately; it lives a day after
its last change.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from orchestrator.domain.slots import Holding, Slots
from orchestrator.domain.topology import CONTROL, SCHEMA_VERSION
from orchestrator.engine import documents
from orchestrator.engine.core import Engine
from orchestrator.ports import Query, Where

TYPE: Final = "slots"
TTL_SECONDS: Final = 24 * 3600
MAX_READ: Final = 1_000
"""Tenants of which one recount looks at."""


def slots_id(tenant: str) -> str:
    """Id of a tenant's document. A hash: names may hold what ids may not."""
    text = tenant.encode("utf-8", errors="surrogatepass")
    return f"slots:{hashlib.blake2b(text, digest_size=16).hexdigest()}"


async def find(engine: Engine, tenant: str) -> tuple[Slots, str | None]:
    """The slots and their ETag (None: no document). Raises `StoreError`, `NewerSchema`, and
    `KeyError`, `TypeError` or `ValueError` for what is no such document."""
    id = slots_id(tenant)
    found = (await engine.store.read_many(CONTROL, (id,), [id])).get(id)
    return (Slots(), None) if found is None else (from_doc(found.body), found.etag)


async def write(engine: Engine, tenant: str, slots: Slots, etag: str | None) -> None:
    """Store them, unless somebody else did. Raises `StoreError`, of it `Conflict`, `NotFound` or
    `PreconditionFailed` if somebody did."""
    id = slots_id(tenant)
    doc = {
        "id": id,
        "type": TYPE,
        "tenantId": tenant,
        "v": SCHEMA_VERSION,
        "holders": {name: [one.count, one.until] for name, one in slots.holders.items()},
        "fullAt": slots.full_at,
        "ttl": TTL_SECONDS,
    }
    if etag is None:
        await engine.store.create(CONTROL, (id,), doc)
    else:
        await engine.store.replace(CONTROL, (id,), doc, if_match=etag)


def from_doc(doc: dict[str, Any]) -> Slots:
    """Inverse of what `write` stores."""
    documents.check_version(doc)
    return Slots(
        holders={name: Holding(count, until) for name, (count, until) in doc["holders"].items()},
        full_at=doc["fullAt"],
    )


async def all_of(engine: Engine) -> list[tuple[str, Slots, str]]:
    """Tenant, slots and ETag of every document that can be read. Raises `StoreError`."""
    query = Query(where=(Where("type", "=", TYPE),), limit=MAX_READ)
    result: list[tuple[str, Slots, str]] = []
    for found in await engine.store.query(CONTROL, query):
        try:
            result.append((found.body["tenantId"], from_doc(found.body), found.etag))
        except (documents.NewerSchema, KeyError, TypeError, ValueError):
            continue
    return result
