"""The approval sample: answered by the lead, by the manager, by nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.parsing import parse_yaml
from orchestrator.engine import signals
from tests.support.world import START, TENANT, FakeActivities
from tests.unit.engine.conftest import MakeWorld

SAMPLE = Path(__file__).parents[3] / "samples/expense-approval/workflow.yaml"
DAY = 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("after", "signal", "payload", "paid", "by"),
    [
        (0, "lead-decision", {"approved": True, "by": "Grace"}, 120.5, "Grace"),
        (1.9, "lead-decision", {"approved": False, "by": "Grace"}, None, "Grace"),
        (2.1, "manager-decision", {"approved": True, "by": "Alan"}, 120.5, "Alan"),
        (0, None, None, None, "nobody"),
    ],
)
async def test_an_approval_with_timeout_and_escalation(
    make: MakeWorld, after: float, signal: Any, payload: Any, paid: Any, by: str
) -> None:
    world = await make()
    assert isinstance(world.activities, FakeActivities)
    definition: Any = parse_yaml(SAMPLE.read_bytes())
    await world.publish(definition)
    started = await world.start("expense-approval", {"who": "Ada", "amount": 120.5})
    if signal is not None:
        await world.run_until_quiet(int(after * DAY))
        await world.clock.advance(max(0, int(after * DAY) - (world.clock.now() - START)))
        await signals.send(world.engine, TENANT, started.id, signal, payload)
    await world.run_until_quiet()
    view = await world.view(started.id)
    assert view.status.value == "COMPLETED"
    assert view.output["verdict"]["by"] == by
    assert (view.output["paid"] or {}).get("paid") == paid
    await world.verified(started.id)
