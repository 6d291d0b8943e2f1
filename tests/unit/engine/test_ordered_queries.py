"""Every order that the engine asks for is indexed: Cosmos DB refuses an ordered query without its
composite index (400), and no other store tells."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.adapters.azure.cosmos_containers import definitions

ENGINE = Path(__file__).parents[3] / "orchestrator/engine"


def test_what_the_engine_orders_by_has_a_composite_index() -> None:
    asked = {
        name
        for path in ENGINE.rglob("*.py")
        for name in re.findall(r'order_by="(\w+)"', path.read_text())
    }
    indexed = {
        index[0]["path"].removeprefix("/")
        for container in definitions()
        for index in container["indexingPolicy"]["compositeIndexes"]
    }
    assert asked - {"id"} <= indexed
    assert {"sweepAt", "createdAt", "dueAt", "receivedAt", "n"} <= asked
