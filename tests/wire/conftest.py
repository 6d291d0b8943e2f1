"""What the wire tests share. Links are opened once per session."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.wire.servicebus_pace import hurried_sdk, sdk_at_its_own_pace
from tests.wire.servicebus_support import ServiceBusPair

__all__ = ["hurried_sdk", "sdk_at_its_own_pace", "servicebus_links"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def servicebus_links() -> AsyncIterator[ServiceBusPair]:
    """Our own broker, and the real SDK's links to it; `reset` it before use. Tests that use it run
    in the session's event loop."""
    pair = ServiceBusPair.start()
    yield pair
    await pair.close()
