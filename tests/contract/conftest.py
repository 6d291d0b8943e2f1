"""One fixture per port, parametrised over every adapter of `contract_support`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from contract_support import BROKERS, PAYLOADS, STORES, Broker, ManualClock, OpenStore

from orchestrator.ports import DocumentStore, PayloadStore
from tests.wire.cosmos.opening import delete_databases
from tests.wire.servicebus_pace import hurried_sdk
from tests.wire.servicebus_support import ServiceBusPair

__all__ = ["hurried_sdk"]


@pytest.fixture(scope="session", autouse=True)
def real_accounts_left_clean() -> Iterator[None]:
    yield
    delete_databases()


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


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def servicebus() -> AsyncIterator[ServiceBusPair]:
    """The Azure family: the real SDK on the broker of `tests/wire`. Its links are opened once per
    session; so tests of brokers run in the session's loop."""
    pair = ServiceBusPair.start()
    yield pair
    await pair.close()


@pytest_asyncio.fixture(params=[*BROKERS, "servicebus"], loop_scope="session")
async def broker(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock, servicebus: ServiceBusPair
) -> AsyncIterator[Broker]:
    if request.param == "servicebus":
        servicebus.reset(clock)
        yield servicebus
        return
    async with BROKERS[request.param](tmp_path, clock) as opened:
        yield opened


@pytest.fixture(params=PAYLOADS)
async def payloads(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PayloadStore]:
    async with PAYLOADS[request.param](tmp_path) as opened:
        yield opened
