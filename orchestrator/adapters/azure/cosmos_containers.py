"""How the Cosmos containers must be created, so that `cosmos_store` finds what it relies on.

Bicep, the emulator's set-up and the tests' endpoint all follow this table. Without the composite
indexes every ordered query is refused with 400; without the time-to-live setting `ttl` in a body
has no effect; with everything indexed, the replace of an execution's task map costs several times
the request units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from orchestrator.domain.topology import CONTAINERS, CONTROL, EXECUTIONS, LEASES, ContainerSpec

TTL_PER_DOCUMENT: Final = -1
"""`defaultTtl`: nothing expires, except documents whose body has `ttl`."""


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """What of a container is indexed. `id` and `_ts` always are."""

    ordered: tuple[str, ...] = ()
    """Properties that lists are ordered by, each together with `id` (keyset paging)."""
    only: tuple[str, ...] | None = None
    """Index these properties (and `ordered`, and the partition key) and nothing else; None: all."""


INDEXES: Final[dict[str, IndexSpec]] = {
    # Read by key, but for the sweeper (type, sweepAt), rebuilds (type, createdAt) and the signals
    # of an execution (type, receivedAt).
    EXECUTIONS: IndexSpec(ordered=("sweepAt", "createdAt", "receivedAt"), only=("type",)),
    CONTROL: IndexSpec(only=()),
    LEASES: IndexSpec(),  # the Functions extension owns it, and queries it
}
_OTHERS: Final = IndexSpec(ordered=("createdAt",))


def index_spec(container: str) -> IndexSpec:
    """The indexes of a container of `topology.CONTAINERS`."""
    return INDEXES.get(container, _OTHERS)


def definition(spec: ContainerSpec, *, ordered: tuple[str, ...] = ()) -> dict[str, Any]:
    """The container resource, as the REST API takes it; `ordered`: further order properties."""
    index = index_spec(spec.name)
    orders = (*index.ordered, *spec.orders, *ordered)
    if index.only is None:
        included, excluded = ["/*"], ['/"_etag"/?']
    else:
        wanted = dict.fromkeys((*spec.partition, *index.only, *orders))
        included = [f"{_path(name)}/?" for name in wanted if name != "id"]
        excluded = ["/*"]
    return {
        "id": spec.name,
        "partitionKey": {
            "paths": [f"/{name}" for name in spec.partition],
            "kind": "MultiHash" if len(spec.partition) > 1 else "Hash",
            "version": 2,
        },
        "defaultTtl": TTL_PER_DOCUMENT,
        "indexingPolicy": {
            "indexingMode": "consistent",
            "automatic": True,
            "includedPaths": [{"path": path} for path in included],
            "excludedPaths": [{"path": path} for path in excluded],
            "compositeIndexes": [
                # Serves descending lists too: both properties then run backwards.
                [{"path": _path(name), "order": "ascending"}, {"path": "/id", "order": "ascending"}]
                for name in orders
            ],
        },
    }


def _path(name: str) -> str:
    return f"/{name}" if name.isidentifier() and name.isascii() else f'/"{name}"'


def definitions() -> list[dict[str, Any]]:
    """All containers of `topology.CONTAINERS`."""
    return [definition(spec) for spec in CONTAINERS.values()]
