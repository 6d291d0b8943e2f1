"""What kind of request it is: by method, path and headers, as the REST API tells them apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request with its path taken apart and unquoted."""

    method: str
    parts: list[str]  # ["dbs", d, "colls", c, "docs", id]
    headers: Mapping[str, str]  # case-insensitive
    body: bytes


def _is(request: Request, header: str) -> bool:
    return request.headers.get(header, "").lower() == "true"


def classify(request: Request) -> str:
    """The kind, as `faults` and `counters` call it; "unknown" for anything else."""
    match request.parts:
        case []:
            return "account"
        case ["dbs"] | ["dbs", _]:
            return "database"
        case ["dbs", _, "colls"] | ["dbs", _, "colls", _]:
            return "container"
        case ["dbs", _, "colls", _, "pkranges"]:
            return "pkranges"
        case ["dbs", _, "colls", _, "docs"]:
            return _feed(request)
        case ["dbs", _, "colls", _, "docs", _]:
            kinds = {"GET": "read", "PUT": "replace", "DELETE": "delete"}
            return kinds.get(request.method, "unknown")
        case _:
            return "unknown"


def _feed(request: Request) -> str:
    if request.method == "GET":
        return "feed" if request.headers.get("a-im") == "Incremental Feed" else "unknown"
    if request.method != "POST" or _is(request, "x-ms-cosmos-is-query-plan-request"):
        return "unknown"
    if _is(request, "x-ms-documentdb-isquery"):
        return "query"
    if _is(request, "x-ms-cosmos-is-batch-request"):
        return "batch"
    return "upsert" if _is(request, "x-ms-documentdb-is-upsert") else "create"
