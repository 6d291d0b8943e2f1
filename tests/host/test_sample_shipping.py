"""The order-shipping sample on a real platform: what its README says."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.local.testing import platform

SAMPLE = Path(__file__).parents[2] / "samples/order-shipping"


def test_each_warehouse_ships_in_a_child_of_its_own(tmp_path: Path) -> None:
    """One is refused by the child's schema, and tolerated."""
    given = json.loads((SAMPLE / "order.json").read_text())
    with platform(tmp_path) as client:
        for name in ("shipping.yaml", "order.yaml"):
            definition = (SAMPLE / name).read_bytes()
            definition = definition.replace(b"duration: 1s", b"duration: 50ms")
            client.publish(definition, content_type="application/yaml", dry_run=False)
        id = client.start("order-shipping", {"input": given})["id"]
        execution = client.execution(id, wait_ms=50_000)
        assert execution["status"] == "COMPLETED"
        assert execution["output"]["shipped"] == ["WEFT-A-1042-HH", "WEFT-A-1042-M"]
        assert execution["output"]["shipments"][2] is None
        assert len(execution["output"]["shipments"][0]["parcels"]) == 2
        assert client.verify(id)["ok"]
        tasks = {task["id"]: task for task in client.tasks(id)["items"]}
        assert (tasks["ship"]["map"]["completed"], tasks["ship"]["map"]["failed"]) == (2, 1)
