"""What the wire tests share. Opening a link takes the SDK half a second: once per session."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.wire.servicebus_support import ServiceBusPair


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def servicebus_links() -> AsyncIterator[ServiceBusPair]:
    """Our own broker, and the real SDK's links to it; `reset` it before use. Tests that use it run
    in the session's event loop."""
    pair = ServiceBusPair.start()
    yield pair
    await pair.close()
