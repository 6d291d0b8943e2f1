"""How large an input, a signal, an output may be."""

from __future__ import annotations

import pytest

from orchestrator.domain.errors import TooLargeError
from orchestrator.domain.tenant_limits import TenantLimits
from orchestrator.domain.topology import MAX_PAYLOAD_BYTES
from orchestrator.engine import signals
from tests.support.definitions import flow, task
from tests.support.faults import FaultyStore
from tests.support.signals import awaiting
from tests.support.world import TENANT
from tests.unit.engine.conftest import MakeWorld
from tests.unit.engine.test_admission import limited

SMALL = 2_000


@pytest.mark.parametrize(("size", "fits"), [(SMALL - 2, True), (SMALL - 1, False)])
async def test_inputs_signals_and_outputs_have_a_size(
    make: MakeWorld, size: int, fits: bool
) -> None:
    world = await make(
        tunables=limited(payload_bytes=SMALL), noop=lambda call: "x" * size, wrap_store=FaultyStore
    )
    await world.publish(flow(a=task("noop")))
    await world.publish(flow("waits", s=awaiting()))
    waiting = await world.start("waits")
    text = "x" * size  # and two quotes
    if fits:
        await world.start("flow", text)
        await signals.send(world.engine, TENANT, waiting.id, "go", text)
    else:
        for work in (
            world.start("flow", text),
            signals.send(world.engine, TENANT, waiting.id, "go", text),
        ):
            with pytest.raises(TooLargeError) as caught:
                await work
            assert caught.value.code == "PAYLOAD_TOO_LARGE"
            assert caught.value.details[0].message == f"{SMALL} allowed, now {SMALL + 1}"
    one = await world.start("flow")
    await world.settle()
    view = await world.view(one.id)
    if fits:
        assert view.status.value == "COMPLETED"
    else:
        assert view.error is not None
        assert (view.error.type, view.error.retryable) == ("PAYLOAD_TOO_LARGE", False)
        assert str(SMALL) in view.error.message


@pytest.mark.parametrize(("copies", "status"), [(3, "COMPLETED"), (4, "FAILED")])
async def test_the_output_of_a_workflow_has_a_size_too(
    make: MakeWorld, copies: int, status: str
) -> None:
    """However small each of the tasks' outputs is that it is made of."""
    world = await make(tunables=limited(payload_bytes=SMALL), noop=lambda call: "x" * 600)
    await world.publish(flow(a=task("noop"), output=["${tasks.a.output}"] * copies))
    one = await world.start("flow")
    await world.settle()
    view = await world.view(one.id)
    assert view.status.value == status
    if status == "FAILED":
        assert view.error is not None
        assert (view.error.type, view.error.field) == ("PAYLOAD_TOO_LARGE", "$.output")
        assert str(SMALL) in view.error.message
    await world.verified(one.id)


def test_without_a_limit_that_of_the_platform_is_shown() -> None:
    assert TenantLimits().shown()["payloadBytes"] == MAX_PAYLOAD_BYTES
    assert TenantLimits(payload_bytes=SMALL).shown()["payloadBytes"] == SMALL
