"""The bundled shop of the order-fulfilment sample keeps the promises that its README makes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

SERVER = Path(__file__).parents[3] / "samples/order-fulfilment/server.py"


@pytest.fixture
async def shop():
    app = runpy.run_path(str(SERVER))["application"]()
    async with TestClient(TestServer(app)) as client:
        yield client


async def charge(shop: TestClient, key: str, amount: float = 9.5) -> tuple[int, dict]:
    headers = {"Idempotency-Key": key}
    body = {"orderId": "A", "amount": amount}
    async with shop.post("/charges", json=body, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_each_charge_fails_twice_then_is_made_once(shop: TestClient) -> None:
    assert [(await charge(shop, "k"))[0] for _ in range(4)] == [503, 503, 201, 200]
    assert (await charge(shop, "k"))[1]["id"] == "ch-1"
    assert (await charge(shop, "other"))[0] == 503
    async with shop.get("/charges") as answer:
        assert [made["id"] for made in await answer.json()] == ["ch-1"]


async def test_a_charge_over_the_limit_is_declined_for_good(shop: TestClient) -> None:
    assert [(await charge(shop, "k", 100_000))[0] for _ in range(4)] == [503, 503, 402, 402]


async def test_a_repeated_shipment_has_the_same_tracking(shop: TestClient) -> None:
    seen = set()
    for _ in range(2):
        body, headers = {"title": "x"}, {"Idempotency-Key": "s"}
        async with shop.post("/shipments", json=body, headers=headers) as answer:
            seen.add((await answer.json())["tracking"])
    assert seen == {"TRK-000001"}
