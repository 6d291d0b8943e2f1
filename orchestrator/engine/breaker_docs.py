"""The stored form of circuit breakers, in container `control` (each document is a partition).

    id                        type       holds
    breaker:{hash}            breaker    one dependency of one tenant, guarded by its ETag
    breakers:{hash}           breakers   the names of a tenant's breakers, latest first

There is a document only for what has failed or was opened by hand. It lives 7 days after its last
change; one that an operator opened for good stays. The list is written before the breaker: a name
without a document is a closed breaker.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from orchestrator.domain.breakers import Breaker, BreakerStatus, Probe
from orchestrator.domain.topology import SCHEMA_VERSION
from orchestrator.engine import documents

TTL_SECONDS: Final = 7 * 24 * 3600
MAX_LISTED: Final = 500
"""Of one tenant; the oldest name that is closed goes. Urls with hosts from data could make any
number."""


def breaker_id(tenant: str, dependency: str) -> str:
    """Id of a breaker's document. A hash: names may hold what ids may not."""
    return f"breaker:{_hash(tenant, dependency)}"


def list_id(tenant: str) -> str:
    """Id of the list of a tenant's breakers."""
    return f"breakers:{_hash(tenant)}"


def list_doc(tenant: str, names: list[str]) -> dict[str, Any]:
    """The list."""
    return {
        "id": list_id(tenant),
        "type": "breakers",
        "tenantId": tenant,
        "v": SCHEMA_VERSION,
        "names": names[:MAX_LISTED],
    }


def to_doc(breaker: Breaker) -> dict[str, Any]:
    """The stored form."""
    doc: dict[str, Any] = {
        "id": breaker_id(breaker.tenant, breaker.dependency),
        "type": "breaker",
        "tenantId": breaker.tenant,
        "v": SCHEMA_VERSION,
        "dependency": breaker.dependency,
        "status": breaker.status.value,
        "seen": {name: [list(one) for one in counts] for name, counts in breaker.seen.items()},
        "errors": list(breaker.errors),
        "openedAt": breaker.opened_at,
        "until": breaker.until,
        "spanMs": breaker.span_ms,
        "manual": breaker.manual,
        "by": breaker.by,
        "reason": breaker.reason,
        "forMs": breaker.for_ms,
        "epoch": breaker.epoch,
        "closedAt": breaker.closed_at,
        "updatedAt": breaker.updated_at,
    }
    if breaker.probe is not None:
        doc["probe"] = {"token": breaker.probe.token, "until": breaker.probe.until}
    if breaker.status is BreakerStatus.OPEN and breaker.until is None:
        return doc
    return doc | {"ttl": TTL_SECONDS}


def from_doc(doc: dict[str, Any]) -> Breaker:
    """Inverse of `to_doc`. Raises `NewerSchema`, and `KeyError`, `ValueError` or `TypeError` for
    what is no breaker."""
    documents.check_version(doc)
    probe = doc.get("probe")
    return Breaker(
        tenant=doc["tenantId"],
        dependency=doc["dependency"],
        status=BreakerStatus(doc["status"]),
        seen={
            name: tuple((start, failures, successes) for start, failures, successes in counts)
            for name, counts in doc["seen"].items()
        },
        errors=tuple(doc["errors"]),
        opened_at=doc["openedAt"],
        until=doc["until"],
        span_ms=doc["spanMs"],
        probe=Probe(probe["token"], probe["until"]) if probe else None,
        manual=doc["manual"],
        by=doc["by"],
        reason=doc["reason"],
        for_ms=doc["forMs"],
        epoch=doc["epoch"],
        closed_at=doc["closedAt"],
        updated_at=doc["updatedAt"],
    )


def _hash(*parts: str) -> str:
    text = "\n".join(parts).encode("utf-8", errors="surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()
