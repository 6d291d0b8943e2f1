"""The activities of the order-fulfilment sample."""

from __future__ import annotations

from typing import Any

import pytest
from activities_support import failure_from, make_call

from activities.registry import default_registry, discover
from activities.runner import Runner
from orchestrator.domain.jsontypes import Json

LINES: list[Any] = [
    {"sku": "TEA-1", "quantity": 3, "unitPrice": 0.1},
    {"sku": "CUP-2", "quantity": 25, "unitPrice": "4.35"},
]


@pytest.fixture
def runner() -> Runner:
    """The sample activities, as an app finds them."""
    discover()
    return Runner(default_registry())


async def test_validate_adds_up_without_rounding_errors(runner: Runner) -> None:
    order = {"orderId": "o-1", "lines": LINES}
    result = await runner.run(make_call("orders.validate", {"order": order}))
    assert result == {"orderId": "o-1", "currency": "EUR", "units": 28, "total": 109.05}


async def test_validate_lists_every_fault(runner: Runner) -> None:
    order = {"orderId": "", "lines": [{"sku": "x", "quantity": 0, "unitPrice": "1.005"}], "x": 1}
    failure = await failure_from(runner.run(make_call("orders.validate", {"order": order})))
    assert failure.type == "INPUT_INVALID"
    for path in ("orderId", "lines[0].sku", "lines[0].quantity", "lines[0].unitPrice", "x"):
        assert f"$.order.{path}: " in failure.message


async def test_validate_refuses_a_sku_that_comes_twice(runner: Runner) -> None:
    order = {"orderId": "o-1", "lines": [LINES[0], LINES[0]]}
    failure = await failure_from(runner.run(make_call("orders.validate", {"order": order})))
    assert (failure.type, failure.retryable) == ("OrderRejected", False)


async def test_pack_gives_the_same_parcel_on_every_attempt(runner: Runner) -> None:
    async def pack(attempt: int, key: str) -> Json:
        call = make_call(
            "orders.pack", {"line": LINES[1], "index": 1}, attempt=attempt, idempotency_key=key
        )
        return await runner.run(call)

    first: Any = await pack(1, "a")
    assert first == await pack(2, "a")
    assert first["parcelId"] != (await pack(1, "b"))["parcelId"]  # type: ignore[index]
    assert {k: v for k, v in first.items() if k != "parcelId"} == {
        "sku": "CUP-2", "quantity": 25, "boxes": 3, "weightGrams": 25 * 350 + 3 * 120,
    }  # fmt: skip


async def test_tidy_runs_with_or_without_parcels(runner: Runner) -> None:
    parcel = await runner.run(make_call("orders.pack", {"line": LINES[0], "index": 0}))
    assert isinstance(parcel, dict)
    for given, released in [
        (None, []),
        ({}, []),
        ({"parcels": [parcel, parcel]}, [parcel["parcelId"]]),
    ]:
        result = await runner.run(make_call("orders.tidy", given))
        assert result == {"released": released}
