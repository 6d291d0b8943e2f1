"""The stored form of a concurrency group, see `places`."""

from __future__ import annotations

import logging
from typing import Any, Final

from orchestrator.domain.places import Group, Holder
from orchestrator.domain.topology import SCHEMA_VERSION
from orchestrator.engine import documents
from orchestrator.engine.core import Engine
from orchestrator.ports import Document

log = logging.getLogger(__name__)

EMPTY_TTL_SECONDS: Final = 24 * 3600


def id_of(place: dict[str, Any]) -> str:
    """The document's id, from the field of a header."""
    return f"place:{place['group']}"


def body(tenant: str, place: dict[str, Any], stored: Group) -> dict[str, Any]:
    """The document; it goes by itself after a while if nobody is in it."""
    doc: dict[str, Any] = {
        "id": id_of(place),
        "type": "place",
        "tenantId": tenant,
        "v": SCHEMA_VERSION,
        "holders": [[one.execution, one.at, one.called] for one in stored.holders],
        "waiting": list(stored.waiting),
        "displaced": [list(one) for one in stored.displaced],
        "version": stored.version,
        "limit": stored.limit,
    }
    return doc if stored.holders or stored.waiting else doc | {"ttl": EMPTY_TTL_SECONDS}


def group(engine: Engine, found: Document | None) -> Group:
    """The stored group. One that is damaged begins anew: who waits asks again, and those that run
    may be too many for once, which is better than that nobody ever runs."""
    try:
        return _parse(found)
    except (KeyError, TypeError, ValueError):
        engine.metrics.count("weft_concurrency_total", "unreadable")
        log.error(
            "concurrency group cannot be read, it begins anew",
            extra={"action": "places.unreadable", "document": "" if found is None else found.id},
        )
        return Group()


def _parse(found: Document | None) -> Group:
    """Raises `NewerSchema`, what a damaged document makes Python raise."""
    if found is None:
        return Group()
    documents.check_version(found.body)
    return Group(
        holders=tuple(Holder(*one) for one in found.body["holders"]),
        waiting=tuple(found.body["waiting"]),
        displaced=tuple((victim, by) for victim, by in found.body["displaced"]),
        version=int(found.body.get("version", 0)),
        limit=int(found.body.get("limit", 0)),
    )
