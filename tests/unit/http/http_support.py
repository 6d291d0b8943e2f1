"""Use cases that are played: what they were asked is recorded. The fixtures are in conftest.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

from http_client import Client, Got

from orchestrator.domain.status import ExecutionStatus
from orchestrator.engine import views
from orchestrator.engine.metrics import Metrics
from orchestrator.functions import http_api, http_operations
from orchestrator.functions.provider import EngineProvider
from orchestrator.ports_telemetry import NoTracer
from tests.support.identities import DEVELOPMENT

ENGINE: Any = SimpleNamespace(
    name="engine",
    authenticator=DEVELOPMENT,
    clock=SimpleNamespace(now=lambda: 0),
    metrics=Metrics(),
    tracer=NoTracer(),
    platform_tenant="",
)
PROGRESS = views.Progress(total=1)
EXECUTION = {
    "id": "e-1",
    "workflow": "hello",
    "version": 1,
    "status": ExecutionStatus.PENDING,
    "created_at": 1_767_225_600_123,
    "progress": PROGRESS,
}


class UseCases:
    """`answers[name]` is what a use case gives: a value, an exception to raise, or a function of
    its arguments. `asked` has every call's name and arguments (engine left out)."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}

    def play(self, name: str) -> Callable[..., Any]:
        async def use_case(engine: Any, *args: Any, **more: Any) -> Any:
            assert engine is ENGINE
            self.asked.append((name, args, more))
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer(*args, **more) if callable(answer) else answer

        return use_case

    @property
    def last(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """The latest call."""
        return self.asked[-1]


_PROVIDER: ContextVar[EngineProvider] = ContextVar("provider")


class _Current:
    """The provider of the client that is calling."""

    learn = None  # no durable client here

    def __getattr__(self, name: str) -> Any:
        return getattr(_PROVIDER.get(), name)


@functools.cache
def _indexed() -> Client:
    """Built once: what the SDK's decorators do for seventy routes takes 20 ms."""
    provider: Any = _Current()
    tables = (*http_api.TABLES, http_operations.ROUTES)
    return Client(*(routes.blueprint(provider) for routes in tables))


class ProvidedClient(Client):
    """A client of all routes, over an engine of its own."""

    def __init__(self, provider: EngineProvider) -> None:
        self.bound = _indexed().bound
        self._provider = provider

    async def __call__(self, method: str, url: str, **request: Any) -> Got:
        """See `Client`."""
        before = _PROVIDER.set(self._provider)
        try:
            return await super().__call__(method, url, **request)
        finally:
            _PROVIDER.reset(before)


def make_client(provider: EngineProvider) -> Client:
    return ProvidedClient(provider)
