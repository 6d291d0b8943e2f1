"""One fixture per port, parametrised over every adapter of `contract_support`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contract_support import BROKERS, PAYLOADS, STORES, Broker, ManualClock, OpenStore

from orchestrator.ports import DocumentStore, PayloadStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest) -> OpenStore:
    return STORES[request.param]


@pytest.fixture
async def store(
    open_store: OpenStore, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[DocumentStore]:
    async with open_store(tmp_path, clock) as opened:
        yield opened


@pytest.fixture(params=BROKERS)
async def broker(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Broker]:
    async with BROKERS[request.param](tmp_path, clock) as opened:
        yield opened


@pytest.fixture(params=PAYLOADS)
async def payloads(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PayloadStore]:
    async with PAYLOADS[request.param](tmp_path) as opened:
        yield opened
