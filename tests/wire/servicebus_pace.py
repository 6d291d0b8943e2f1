"""The Service Bus SDK looks every 50 or 100 ms whether a link has opened, and every second whether
it was closed: half a second of nothing for each link, and so a fifth of all the time that the
tests of this adapter took. Here it looks fifty times as often, and does the same otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from azure.servicebus._pyamqp.aio import _client_async, _connection_async, _session_async
from azure.servicebus.aio import _servicebus_receiver_async, _servicebus_sender_async

POLLS_S = (0.05, 0.1, 1)
"""The SDK's own intervals; other times (backoff) are left as they are."""
FASTER = 50
PLACES: tuple[Any, ...] = (
    _client_async,
    _connection_async,
    _session_async,
    _servicebus_receiver_async,
    _servicebus_sender_async,
)


class _Hurried:
    """`asyncio` with shorter polls."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, delay: float) -> None:
        """As asyncio's."""
        await asyncio.sleep(delay / FASTER if delay in POLLS_S else delay)


@contextmanager
def pace(module: Any) -> Generator[None]:
    """The SDK's modules use `module` as their asyncio."""
    with pytest.MonkeyPatch.context() as patch:
        for place in PLACES:
            patch.setattr(place, "asyncio", module)
        yield


@pytest.fixture(scope="session", autouse=True)
def hurried_sdk() -> Generator[None]:
    """For all tests that can see it."""
    with pace(_Hurried()):
        yield


@pytest.fixture
def sdk_at_its_own_pace() -> Generator[None]:
    """Where it is the time that it takes to open a link which counts."""
    with pace(asyncio):
        yield
